from os import PathLike
from typing import Literal

Call = Literal[
    "pread",
    "pwritev",
    "sendfile",
    "is_cached",
    "fdatasync",
    "fsync_directory",
    "ftruncate",
    "open",
    "close",
    "rename",
    "unlink",
]
Action = Literal["error", "short", "kill", "delay", "hold"]

def sync_filesystem(path: str | PathLike[str]) -> bool: ...

class SystemCalls:
    def __init__(self) -> None: ...
    def count_calls(self) -> None: ...
    def fault(
        self,
        call: Call,
        action: Action,
        *,
        errno: int = 0,
        nth: int = 1,
        count: int = 1,
        path_contains: object = None,
        delay_ms: int = 0,
    ) -> int: ...
    def clear_faults(self) -> None: ...
    def release(self, rule: int) -> None: ...
    def fired(self, rule: int) -> int: ...
    def calls(self, call: Call) -> int: ...
    def move_wall_clock(self, ms: int) -> None: ...
    def move_monotonic(self, ms: int) -> None: ...
    def wall_ms(self) -> int: ...
    def monotonic_ns(self) -> int: ...

def keep_for_ever(thing: object) -> None: ...
