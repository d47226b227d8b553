"""Errors of the old producer, under the names of Kafka 0.7 and 0.8."""

import barnabas.clients.failures as clients


class ProducerError(Exception):
    """Base of the producer's own errors; `str` is one plain line."""


class InvalidConfig(ProducerError, clients.InvalidConfig):
    """Settings that cannot be used, one plain line a problem (0.7: InvalidConfigException)."""


class ProducerClosed(ProducerError):
    """`send` after `close` (0.7: QueueClosedException)."""


class QueueFull(ProducerError):
    """No room in the queue of events within queue.enqueue.timeout.ms (QueueFullException)."""


class MessageSizeTooLarge(ProducerError, ValueError):
    """A message beyond max.message.size (0.7: MessageSizeTooLargeException)."""


class FailedToSend(ProducerError):
    """Messages that were not acknowledged when retries were over (0.8: FailedToSendMessage
    Exception). `count`: how many; `__cause__`: the last reason."""

    def __init__(self, text: str, count: int) -> None:
        self.count = count
        super().__init__(text)
