from collections.abc import Iterable, Mapping
from typing import final

from barnabas.cext.network.handler import LaneHandle
from barnabas.cext.memory.sys import SystemCalls

@final
class MembershipLane(LaneHandle):
    def __init__(self, system: SystemCalls) -> None: ...
    def begin(
        self,
        group_id: str,
        number: int,
        protocol_type: str,
        protocol_name: str,
        leader: str,
        members: Iterable[tuple[str, str | None]],
    ) -> bool: ...
    def assign(self, group_id: str, assignments: Mapping[str, bytes]) -> bool: ...
    def dismiss(self, group_id: str) -> list[tuple[str, int, bool]]: ...
    def heard_ms(self, group_id: str, member_id: str) -> int: ...
    @property
    def members(self) -> int: ...
    @property
    def served(self) -> int: ...
