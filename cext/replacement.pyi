from collections.abc import Sequence

from barnabas.cext.compact import Cleaning
from barnabas.cext.log import LogHandle

def replace_segments(handle: LogHandle, bases: Sequence[int], cleaned: Cleaning) -> bool: ...
