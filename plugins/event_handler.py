"""The old producer's own event handler: a batch is encoded, partitioned and sent.

    event.handler=kafka.producer.async.DefaultEventHandler        (or default-event-handler)

It is the default. A handler of your own may look like it, and send other events, send them to
another system first, or drop them.
"""

from collections.abc import Sequence

from barnabas.hooks import EventSender, KeyedMessage, hookimpl


class DefaultEventHandler:
    """Sends each batch as it is."""

    @hookimpl
    def handle_events(self, events: Sequence[KeyedMessage], sender: EventSender) -> None:
        sender.send(events)
