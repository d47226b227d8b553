"""The old producer's own event handler: a batch is encoded, partitioned and sent.

    event.handler=kafka.producer.async.DefaultEventHandler        (or default-event-handler)

It is what runs when nothing is named. A handler of one's own may look as it does, and send other
events, send them elsewhere first, or not at all.
"""

from collections.abc import Sequence

from barnabas.hooks import EventSender, KeyedMessage, hookimpl


class DefaultEventHandler:
    """Sends each batch as it is."""

    @hookimpl
    def handle_events(self, events: Sequence[KeyedMessage], sender: EventSender) -> None:
        sender.send(events)
