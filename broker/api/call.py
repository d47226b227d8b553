"""What a handler gets beside the request: who asks, in which version, and the rooms below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.value_class import value_class
from barnabas.wire import Struct, response

if TYPE_CHECKING:
    from barnabas.api.rooms import Rooms
    from barnabas.server.closings import Connection


@value_class()
class Call:
    """One request's surroundings."""

    rooms: Rooms
    key: int
    version: int
    client_id: str | None
    listener: str
    peer: tuple[str, int]
    connection_id: int = 0  # never used again; 0: not known
    connection: Connection | None = None  # for who wants to hear when it closes

    def answer(self) -> type[Struct]:
        """The class of the response."""
        return response(self.key).cls

    def struct(self, path: str) -> type[Struct]:
        """The class of a struct inside the response: "topics.partitions"."""
        return response(self.key).struct(path)
