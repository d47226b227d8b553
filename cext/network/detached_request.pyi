from typing import final

from barnabas.cext.network.handler import NativeHandler

@final
class DetachedRequest:
    def __init__(
        self,
        handler: NativeHandler,
        frame: bytes,
        *,
        flexible: bool,
        received_ns: int,
        connection_id: int = 1,
    ) -> None: ...
    @property
    def answer(self) -> bytes | None: ...
    @property
    def deadline_ns(self) -> int: ...
    @property
    def is_for_python(self) -> bool: ...
    def resume(self, *, expired: bool = False) -> bytes | None: ...
