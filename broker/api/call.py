"""The context of a request: its client, its version, and the objects that its handler may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.api.later import Later
from barnabas.wire import Struct, response

if TYPE_CHECKING:
    from barnabas.cext.network.request_queue import PendingRequest

ANONYMOUS = "User:ANONYMOUS"

Context = TypeVar("Context", covariant=True)


@dataclass(frozen=True, slots=True)
class Call(Generic[Context]):
    """The context of one request. `context` is the record that the handler's module declares."""

    context: Context
    key: int
    version: int
    pending: PendingRequest

    @property
    def client_id(self) -> str | None:
        return self.pending.client_id

    @property
    def listener(self) -> str:
        return self.pending.listener

    @property
    def peer(self) -> tuple[str, int]:
        """The client's address and port."""
        return self.pending.peer

    @property
    def connection_id(self) -> int:
        """The connection's id; no later connection gets the same."""
        return self.pending.connection_id

    @property
    def principal(self) -> str:
        """The principal of the connection: User:NAME; User:ANONYMOUS before a login, and on a
        listener that asks for none."""
        return self.pending.principal.decode() or ANONYMOUS

    def proceed(self) -> Later:
        """Gives the request back to its native handler, which answers it."""
        self.pending.proceed(again=True)
        return Later()

    def answer(self) -> type[Struct]:
        """Returns the class of the response."""
        return response(self.key).cls

    def struct(self, path: str) -> type[Struct]:
        """Returns the class of a struct inside the response. `path`: for example
        "topics.partitions"."""
        return response(self.key).struct(path)
