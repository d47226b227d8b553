"""The table of groups and members that commits are checked against: see group_table.pyx."""
from collections.abc import Iterable
from typing import final

from barnabas.cext.partition.partitions import PartitionTable

MemberRow = tuple[str, str | None, int, bool, bytes]

@final
class GroupTable:
    def __init__(self) -> None: ...
    def put(
        self,
        group_id: str,
        partition: int,
        members: Iterable[tuple[str, str | None, int, bool] | MemberRow] = (),
        *,
        kind: str = "classic",
        state: str = "Empty",
        generation: int = 0,
    ) -> None: ...
    def remove(self, group_id: str) -> None: ...
    def set_state(self, group_id: str, state: str, generation: int) -> None: ...
    def put_member(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        epoch: int = -1,
        speaks_classic: bool = True,
        held: bytes = b"",
    ) -> None: ...
    def remove_member(self, group_id: str, member_id: str) -> None: ...
    def heard_ms(self, group_id: str, member_id: str) -> int: ...
    def hold(self, group_id: str) -> None: ...
    def release(self, group_id: str, partition: int = -1) -> None: ...
    def take_new(self) -> list[tuple[str, int]]: ...
    @property
    def new_count(self) -> int: ...
    def follow(self, table: PartitionTable, topic: str) -> None: ...
    def close(self) -> None: ...
    def check(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        version: int,
        transactional: bool,
        partitions: Iterable[tuple[bytes, int]] = (),
    ) -> int: ...
    @property
    def count(self) -> int: ...
