"""The interface of each foreign client for the tests.

A client produces to and reads from one named partition, without a group. What a client
cannot do by design (kcat sets no timestamps) a class attribute says, and the tests
use something else instead of leaving the client out.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from compat.support import Read, Sent


class Client(ABC):
    name: str
    family: str  # implementations that share code have the same mistakes
    sets_timestamps = True
    headers_differ = True  # each record of one call may have different headers
    null_header_values = True
    keeps_empty = True  # distinguishes empty from null when it sends

    def __init__(self, address: str, settings: Mapping[str, Any] | None = None) -> None:
        """`settings`: of TLS and logins, under the client's own names."""
        self.address, self.settings = address, dict(settings or {})

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
        """Sends the records with acks=all, in one batch if they fit, and waits.

        Returns the offsets in the broker's response, or None if the client does not expose them."""

    @abstractmethod
    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Read]:
        """The next `count` records from an offset on. Raises TimeoutError."""

    @abstractmethod
    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        """The first offset with this timestamp or a later one; None when there is none."""

    @abstractmethod
    def close(self) -> None:
        """Closes connections and ends processes."""
