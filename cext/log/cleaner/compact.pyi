from collections.abc import Callable, Iterable
from os import PathLike
from typing import final

from barnabas.cext.log.cleaner.offset_map import OffsetMap
from barnabas.cext.memory.sys import SystemCalls

Aborted = tuple[int, int, int, int]

class Uncleanable(Exception): ...

class _Walk:
    full: bool  # only in Learning: the map is full
    path: str | PathLike[str]
    position: int
    bytes_read: int
    def open(self, path: str | PathLike[str], size_bytes: int) -> None: ...
    def turn(self, bytes_max: int) -> bool: ...

@final
class Learning(_Walk):
    def __init__(
        self,
        system: SystemCalls,
        map: OffsetMap,
        *,
        decompress: Callable[[int, bytes], bytes],
        inflated_max: int,
        from_offset: int,
        end_offset: int,
        aborted: Iterable[Aborted] = (),
        io_bytes: int = 262144,
    ) -> None: ...

@final
class Cleaning(_Walk):
    records_read: int
    records_kept: int
    keeps_old_tombstones: bool  # of message formats 0 and 1, in the current segment
    def __init__(
        self,
        system: SystemCalls,
        map: OffsetMap,
        *,
        decompress: Callable[[int, bytes], bytes],
        compress: Callable[[int, bytes], bytes],
        inflated_max: int,
        now_ms: int,
        delete_retention_ms: int,
        index_interval_bytes: int,
        aborted: Iterable[Aborted] = (),
        producers: Iterable[tuple[int, int, int]] = (),
        io_bytes: int = 262144,
    ) -> None: ...
    def begin(self, stem: str | PathLike[str], base_offset: int) -> None: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def max_timestamp_offset(self) -> int: ...
    def finish(self) -> None: ...
