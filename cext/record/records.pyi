from collections.abc import Iterable
from typing import final

from typing_extensions import Buffer

Header = tuple[str, bytes | None]

class CorruptRecords(ValueError):
    reason: str
    position: int
    kind: str
    def __init__(self, reason: str, position: int = 0, kind: str = "corrupt") -> None: ...

@final
class Record:
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[Header, ...]: ...
    def __init__(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        timestamp: int = -1,
        headers: Iterable[Header] = (),
        offset: int = -1,
    ) -> None: ...

@final
class BatchInfo:
    @property
    def start(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def batch_length(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def magic(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def append_time(self) -> bool: ...
    @property
    def transactional(self) -> bool: ...
    @property
    def control(self) -> bool: ...
    @property
    def delete_horizon(self) -> bool: ...

def parse_header(data: Buffer, offset: int = 0) -> BatchInfo: ...
def check_crc(data: Buffer, offset: int = 0) -> None: ...
def check_records(
    body: Buffer, header: BatchInfo, *, strict: bool = True, require_keys: bool = False
) -> tuple[int, int, int]: ...
def decode_records(
    body: Buffer,
    *,
    count: int,
    base_offset: int = 0,
    base_timestamp: int = 0,
    append_time: int | None = None,
) -> list[Record]: ...
def encode_records(
    records: Iterable[Record | bytes],
    *,
    base_timestamp: int | None = None,
    base_offset: int | None = None,
) -> tuple[bytes, int, int, int, int]: ...
def encode_batch(
    records: Iterable[Record | bytes],
    *,
    base_offset: int = 0,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    last_offset_delta: int | None = None,
    keep_offsets: bool = False,
) -> bytes: ...
def seal_batch(
    body: Buffer,
    *,
    count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes: ...
def stamp(
    data: Buffer,
    base_offset: int,
    leader_epoch: int,
    *,
    offset: int = 0,
    append_time: int | None = None,
) -> None: ...
