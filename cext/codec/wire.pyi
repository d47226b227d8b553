from collections.abc import Iterable
from typing import Any

from barnabas.cext.codec.wire_struct import Struct

Buffer = bytes | bytearray | memoryview

KINDS: dict[str, int]

class MalformedMessage(ValueError): ...
class UnwritableMessage(ValueError): ...

class Program:
    title: str
    cls: type[Struct]
    def __init__(
        self,
        title: str,
        cls: type[Struct],
        fields: Iterable[tuple[Any, ...]],
        absent: Iterable[tuple[Any, ...]],
        flexible: bool,
    ) -> None: ...
    def decode(self, data: Buffer, offset: int = 0) -> tuple[Struct, int]: ...
    def decode_whole(self, data: Buffer, offset: int = 0) -> Struct: ...
    def encode(self, message: Struct) -> bytes: ...

def encode(
    header_program: Program,
    header: Struct,
    program: Program,
    message: Struct,
    framed: bool = False,
) -> bytes: ...
