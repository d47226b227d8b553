from collections.abc import Sequence

from barnabas.cext.log.cleaner.compact import Cleaning
from barnabas.cext.log.log_handle import LogHandle

def replace_segments(handle: LogHandle, bases: Sequence[int], cleaned: Cleaning) -> bool: ...
