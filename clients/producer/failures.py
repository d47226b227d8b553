"""What the old producer raises, by the old design's names."""

from collections.abc import Sequence


class ProducerError(Exception):
    """Base of the producer's own errors; `str` is one plain line."""


class InvalidConfig(ProducerError, ValueError):
    """Settings that cannot be used, one plain line a problem (0.7: InvalidConfigException)."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__(" ".join(problems))


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
