"""What a handler gets beside the request: who asks, in which version, and the rooms below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.value_class import value_class
from barnabas.wire import Struct, response

if TYPE_CHECKING:
    from barnabas.api.rooms import Rooms


class Asker(Protocol):
    """What of a PendingRequest is used by handlers."""

    client_id: str | None
    listener: str
    connection_id: int

    @property
    def peer(self) -> tuple[str, int]: ...
    def tell_closing(self) -> None: ...


@value_class()
class Call:
    """One request's surroundings."""

    rooms: Rooms
    key: int
    version: int
    connection: Asker

    @property
    def client_id(self) -> str | None:
        return self.connection.client_id

    @property
    def listener(self) -> str:
        return self.connection.listener

    @property
    def peer(self) -> tuple[str, int]:
        """Its address and port."""
        return self.connection.peer

    @property
    def connection_id(self) -> int:
        """Never used again."""
        return self.connection.connection_id

    def answer(self) -> type[Struct]:
        """The class of the response."""
        return response(self.key).cls

    def struct(self, path: str) -> type[Struct]:
        """The class of a struct inside the response: "topics.partitions"."""
        return response(self.key).struct(path)
