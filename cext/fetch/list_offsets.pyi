from typing import final

from barnabas.cext.network.handler import LaneHandle
from barnabas.cext.partition.partitions import PartitionTable

@final
class ListOffsetsLane(LaneHandle):
    def __init__(self, table: PartitionTable) -> None: ...
    @property
    def served(self) -> int: ...
