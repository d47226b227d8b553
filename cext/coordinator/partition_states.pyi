from typing import final

NOT_LED: int
LOADING: int
LED: int

@final
class PartitionStates:
    count: int
    def __init__(self) -> None: ...
    def set(self, partition: int, state: int) -> None: ...
    def get(self, partition: int) -> int: ...
