"""The context of a request: its client, its version, and the objects that its handler may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.wire import Struct, response

if TYPE_CHECKING:
    from barnabas.cext.network.request_queue import PendingRequest


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
        """Its address and port."""
        return self.pending.peer

    @property
    def connection_id(self) -> int:
        """Never used again."""
        return self.pending.connection_id

    def answer(self) -> type[Struct]:
        """The class of the response."""
        return response(self.key).cls

    def struct(self, path: str) -> type[Struct]:
        """The class of a struct inside the response: "topics.partitions"."""
        return response(self.key).struct(path)
