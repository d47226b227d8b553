"""The entry point of this package, which imports and creates the rest on first use.

Most brokers have no share group, so the start of a broker does not load this code. The first use is
a request, a record of share groups in __consumer_offsets, or a record in __share_group_state.
LazyShare represents the package to the logs of both coordinators. Next: service.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.cext.record.records import Record
from barnabas.errors import KafkaError
from barnabas.metadata.cluster_state import ClusterState
from barnabas.wire.batches import Batch

if TYPE_CHECKING:
    from barnabas.coordinator.share.service import ShareService

RECORD_TYPES = range(10, 16)  # in __consumer_offsets


class LazyShareState:
    """Passes records of __share_group_state to the package."""

    def __init__(self, door: LazyShare) -> None:
        self._door = door

    def replay(self, partition: int, batch: Batch) -> None:
        self._door().state.replay(partition, batch)

    def loaded(self, partition: int) -> None:
        """Does nothing: a loaded partition needs no further step."""

    def unloaded(self, partition: int) -> None:
        if self._door.made is not None:
            self._door.made.state.unloaded(partition)


class LazyShare:
    """Returns the ShareService when called, and creates it at the first call. For the group
    coordinator this object is one of its kinds of groups."""

    def __init__(self, make: Callable[[], ShareService]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self.made: ShareService | None = None
        self.of_states = LazyShareState(self)

    def __call__(self) -> ShareService:
        if self.made is None:
            with self._lock:
                if self.made is None:
                    self.made = self._make()
        return self.made

    def apply(self, state: ClusterState) -> None:
        if self.made is not None:
            self.made.apply(state)

    def stop(self) -> None:
        if self.made is not None:
            self.made.stop()

    # -- calls of the group coordinator ---------------------------------------------------------

    def holds(self, group_id: str) -> bool:
        return self.made is not None and self.made.groups.holds(group_id)

    def listings(self) -> list[tuple[str, str, str, str]]:
        return [] if self.made is None else self.made.groups.listings()

    def delete_group(self, group_id: str, answer: Callable[[KafkaError | None], object]) -> None:
        self().groups.delete_group(group_id, answer)

    def replay(self, partition: int, record: Record) -> bool:
        key = record.key or b""
        if int.from_bytes(key[:2], "big") not in RECORD_TYPES:
            return False
        return self().groups.replay(partition, record)

    def loaded(self, partition: int) -> None:
        if self.made is not None:
            self.made.groups.loaded(partition)

    def unloaded(self, partition: int) -> None:
        if self.made is not None:
            self.made.groups.unloaded(partition)
