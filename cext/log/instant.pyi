from collections.abc import Iterable
from typing import NamedTuple

from barnabas.cext.log.log_handle import LogHandle

class LogAtInstant(NamedTuple):
    start_offset: int
    end_offset: int
    active_base: int
    active_bytes: int
    bases: list[int]
    leader_epochs: list[tuple[int, int]]

def logs_at_instant(handles: Iterable[LogHandle]) -> tuple[list[LogAtInstant], int]: ...
