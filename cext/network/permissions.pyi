from collections.abc import Mapping

from barnabas.cext.network.handler import PermissionTable

LIMITS: Mapping[str, int]

class DecisionTable(PermissionTable):
    """The decisions of one broker: principals and names in UTF-8, addresses in 16 bytes, Kafka's
    numbers."""

    @property
    def epoch(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def held_bytes(self) -> int: ...
    def new_epoch(self) -> None: ...
    def decide(
        self,
        principal: bytes,
        address: bytes,
        operation: int,
        resource_type: int,
        name: bytes,
        *,
        allowed: bool,
        epoch: int,
        until_ns: int = ...,
    ) -> None: ...
    def decided(
        self,
        principal: bytes,
        address: bytes,
        operation: int,
        resource_type: int,
        name: bytes,
        *,
        now_ns: int = 0,
    ) -> bool | None: ...
