from typing import final

@final
class EndedTransactions:
    def __init__(self) -> None: ...
    @property
    def waiting(self) -> int: ...
