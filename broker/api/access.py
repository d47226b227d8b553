"""Which access rules a request needs: the rows beside each API.

A handler's module has `ACCESS`, one Access for all its versions, which guard.py applies before the
handler runs. What does not fit asks `call.may` or `call.require` in the handler, and says so in
`elsewhere`. A native handler asks for itself; `native` says for what, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.errors import (
    ClusterAuthorizationFailed,
    DelegationTokenAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from barnabas.security.acl_codes import (
    CLUSTER,
    DELEGATION_TOKEN,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
)

NOT_ASKED = -(2**31)  # authorized operations that the client did not request (KIP-430)

ERRORS: dict[int, type[KafkaError]] = {
    TOPIC: TopicAuthorizationFailed,
    GROUP: GroupAuthorizationFailed,
    CLUSTER: ClusterAuthorizationFailed,
    TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
    DELEGATION_TOKEN: DelegationTokenAuthorizationFailed,
    USER: DelegationTokenAuthorizationFailed,
}

Resource = tuple[int, str]  # type and name


class RequestPermission(NamedTuple):
    """A permission without which the whole request is refused: an operation (AclOperation) on the
    resource that `field` names."""

    operation: int
    resource_type: int = CLUSTER
    field: str = ""  # of the request, with the resource's name; "" for the cluster


class RowPermission(NamedTuple):
    """A permission without which one row of the request is refused: an operation (AclOperation) on
    the resource of the row."""

    operation: int
    asked: str  # the list of the request
    answered: str  # the list of the answer
    resource: Callable[[Any], Resource | None]  # of a row; None: its handler refuses it


class Access(NamedTuple):
    """The permissions that the requests of one API need. A test compares them with those of
    Kafka."""

    whole: tuple[RequestPermission, ...] = ()
    rows: RowPermission | None = None
    native: tuple[tuple[int, int], ...] = ()  # operations and types of resources
    elsewhere: str = ""  # where else it is asked, or why nothing has to be asked


def of_cluster(operation: int) -> Access:
    """Returns the access of requests that need an operation on the cluster."""
    return Access((RequestPermission(operation),))


def of_group(operation: int) -> Access:
    """The access of a request that has the group's name as `groupId`."""
    return Access((RequestPermission(operation, GROUP, "groupId"),))


def of_rows(
    operation: int, resource_type: int, asked: str, answered: str, name: str = ""
) -> Access:
    """The access of a request with a list whose rows have the resource's name as `name`, or are the
    name."""

    def resource(row: Any) -> Resource:
        return resource_type, getattr(row, name) if name else row

    return Access(rows=RowPermission(operation, asked, answered, resource))
