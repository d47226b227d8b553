from typing import NamedTuple, final

class WalkedBatch(NamedTuple):
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    magic: int
    attributes: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    record_count: int
    marker: int

NO_MARKER: int
ABORT: int
COMMIT: int

@final
class BatchWalk:
    path: str
    base_offset: int
    size_bytes: int
    position: int
    end_offset: int
    def __init__(self, path: str, base_offset: int) -> None: ...
    def fileno(self) -> int: ...
    def next_batches(self, count_max: int) -> list[WalkedBatch]: ...
    def damage(self) -> tuple[str, int]: ...
    def skip_to(self, position: int) -> None: ...
    def sound_bytes_at(self, position: int, size_bytes: int) -> bytes: ...
