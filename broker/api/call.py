"""The context of a request: its client, its version, and the objects that its handler may use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.api.access import ERRORS
from barnabas.api.later import Later
from barnabas.security.acl_codes import CLUSTER, CLUSTER_NAME, SUPPORTED
from barnabas.security.principal import principal_text
from barnabas.wire import Struct, response

if TYPE_CHECKING:
    from barnabas.cext.network.request_queue import PendingRequest
    from barnabas.security.authorizer import Authorizer

Context = TypeVar("Context", covariant=True)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[Context]):
    """The context of one request. `context` is the record that the handler's module declares."""

    context: Context
    key: int
    version: int
    pending: PendingRequest
    authorizer: Authorizer | None = None  # None: everyone may do everything

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
        return principal_text(self.pending.principal)

    def may(
        self,
        operation: int,
        resource_type: int = CLUSTER,
        name: str = CLUSTER_NAME,
        *,
        quiet: bool = False,
    ) -> bool:
        """Returns whether the client may do an operation. `quiet`: the client did not request it,
        so that the audit log gets no denial."""
        if self.authorizer is None:
            return True
        who, host = self.principal, self.peer[0]
        if quiet:
            return self.authorizer.may(who, host, operation, resource_type, name)
        return self.authorizer.authorize(who, host, operation, resource_type, name)

    def require(
        self, operation: int, resource_type: int = CLUSTER, name: str = CLUSTER_NAME
    ) -> None:
        """Raises the KafkaError of the resource's type when the client may not do the operation."""
        if not self.may(operation, resource_type, name):
            raise ERRORS[resource_type]()

    def may_by_cluster(self, operation: int, resource_type: int, name: str) -> bool:
        """Returns whether the client may do an operation with a resource because it may do it with
        the cluster. A client without that right may still have the right for the resource."""
        if self.authorizer is None:
            return True
        if not self.may(operation, quiet=True):
            return False
        who, host = self.principal, self.peer[0]
        self.authorizer.audit.permitted(who, host, operation, resource_type, name)
        return True

    def may_any(self, operation: int, resource_type: int) -> bool:
        """Returns whether the client may do an operation with some resource of a type."""
        return self.authorizer is None or self.authorizer.authorize_any(
            self.principal, self.peer[0], operation, resource_type
        )

    def permitted(
        self, rows: Iterable[T], operation: int, resource_type: int, name: Callable[[T], str]
    ) -> Iterable[T]:
        """Returns the rows with whose resources the client may do an operation. The client has not
        named these resources, so the audit log gets no denial."""
        if self.authorizer is None:
            return rows
        return [row for row in rows if self.may(operation, resource_type, name(row), quiet=True)]

    def authorized_operations(self, resource_type: int, name: str = CLUSTER_NAME) -> int:
        """Returns the operations that the client may do with a resource, as a bit set (KIP-430)."""
        supported = SUPPORTED[resource_type]
        if self.authorizer is None:
            return supported
        who, host = self.principal, self.peer[0]
        return self.authorizer.permitted(who, host, resource_type, name, supported)

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
