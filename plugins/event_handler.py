"""The default event handler of the old producer: encodes, partitions and sends a batch.

    event.handler=kafka.producer.async.DefaultEventHandler        (or default-event-handler)

It is the default. Your own handler may follow its form and send other events, send them to another
system first, or drop them.
"""

from collections.abc import Sequence

from barnabas.hooks import EventSender, KeyedMessage, hookimpl


class DefaultEventHandler:
    """Sends each batch unchanged."""

    @hookimpl
    def handle_events(self, events: Sequence[KeyedMessage], sender: EventSender) -> None:
        sender.send(events)
