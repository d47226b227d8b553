"""Errors of the old producer, under the names of Kafka 0.7 and 0.8."""

import barnabas.clients.failures as clients


class ProducerError(Exception):
    """Base class of the producer's own errors; `str` is one line."""


class InvalidConfig(ProducerError, clients.InvalidConfig):
    """Invalid settings, one line for each problem (0.7: InvalidConfigException)."""


class ProducerClosed(ProducerError):
    """`send` was called after `close` (0.7: QueueClosedException)."""


class QueueFull(ProducerError):
    """The queue stayed full for queue.enqueue.timeout.ms (QueueFullException)."""


class MessageSizeTooLarge(ProducerError, ValueError):
    """A message is larger than max.message.size (0.7: MessageSizeTooLargeException)."""


class FailedToSend(ProducerError):
    """Messages were not acknowledged within the retries (0.8: FailedToSendMessageException).
    `count`: their number; `__cause__`: the last error."""

    def __init__(self, text: str, count: int) -> None:
        self.count = count
        super().__init__(text)
