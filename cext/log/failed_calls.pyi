from typing import NamedTuple

from barnabas.cext.log.segment import SegmentCache

FAILED_WHAT: tuple[str, ...]

class Failure(NamedTuple):
    what: str
    path: str
    errno: int
    times: int

def take_failures(cache: SegmentCache) -> list[Failure]: ...
def failures_total(cache: SegmentCache) -> int: ...
