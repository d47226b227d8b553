from collections.abc import Iterable, Mapping

Place = tuple[bytes, int]
Partition = tuple[bytes, int, int]

class FetchSessions:
    slots_max: int
    def __init__(self, slots_max: int, *, memory_bytes_max: int = 67108864, seed: int) -> None: ...
    @property
    def counters(self) -> dict[str, int]: ...
    def set_epoch(self, session_id: int, epoch: int) -> None: ...
    def exchange(
        self,
        version: int,
        session_id: int,
        epoch: int,
        wanted: Iterable[Partition],
        forgotten: Iterable[Place],
        answers: Mapping[Place, tuple[int, int, int, int, bool]],
        now_ms: int,
        follower: bool = False,
    ) -> tuple[int, int, list[Partition], list[Partition]]: ...
