from typing import final

from barnabas.cext.lane import LaneHandle
from barnabas.cext.partitions import PartitionTable

@final
class ListOffsetsLane(LaneHandle):
    def __init__(self, table: PartitionTable) -> None: ...
    @property
    def served(self) -> int: ...
