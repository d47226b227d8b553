from typing import NamedTuple

from barnabas.cext.log.segment import SegmentCache

class Damage(NamedTuple):
    path: str
    base_offset: int
    first: int
    end: int

def take_damage(cache: SegmentCache) -> list[Damage]: ...
def corrupt_ranges(cache: SegmentCache) -> int: ...
