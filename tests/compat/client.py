"""The face that each foreign client shows to the tests.

A client produces to and reads from one named partition; groups are another matter. What a client
cannot do by its own design (kcat sets no timestamps) it says in a class attribute, and the tests
ask it for something else in that place instead of leaving it out.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from compat.support import Read, Sent


class Client(ABC):
    name: str
    family: str  # implementations that share code read each other's work too easily
    sets_timestamps = True
    headers_differ = True  # each record of one call may have headers of its own
    null_header_values = True
    keeps_empty = True  # tells empty from null when it sends

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int] | None:
        """Sends the records, in one batch when they fit, with acks=all, and waits.

        The offsets that the broker told, or None of a client that keeps them to itself."""

    @abstractmethod
    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Read]:
        """The next `count` records from an offset on. Raises TimeoutError."""

    @abstractmethod
    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        """The first offset with this timestamp or a later one; None when there is none."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of connections and processes."""
