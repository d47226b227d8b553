"""SCRAM users over the wire (KIP-554): lists and changes their credentials.

Mechanisms are numbers, as in the protocol. A password does not leave the client: the broker gets
the salted password and keeps its keys.
"""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.failures import raise_for
from barnabas.wire import Struct, request

DESCRIBE_USERS, ALTER_USERS = 50, 51


class UserCredential(NamedTuple):
    """One credential; a broker reveals neither salt nor keys."""

    user: str
    mechanism: int
    iterations: int


class NewCredential(NamedTuple):
    """A credential to be stored. `mechanism`: 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512;
    `salted_password`: of `salt` and `iterations` (RFC 5802), so the broker does not get the
    password."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"<NewCredential {self.user!r}>"


def describe_users(cluster: Cluster, name: str | None = None) -> list[UserCredential]:
    """Returns the credentials of one user, or of all users. Raises ResourceNotFound for a user
    without one."""
    message = request(DESCRIBE_USERS)
    users = None if name is None else [message.struct("users")(name=name)]

    def step() -> list[UserCredential]:
        answer = cluster.any_connection().call(DESCRIBE_USERS, message.cls(users=users))
        raise_for(answer.errorCode, "users", answer.errorMessage)
        found = []
        for row in answer.results:
            raise_for(row.errorCode, f"user {row.user}", row.errorMessage)
            found += [
                UserCredential(row.user, info.mechanism, info.iterations)
                for info in row.credentialInfos
            ]
        return sorted(found)

    return cluster.retrying(step)


def store_credentials(cluster: Cluster, credentials: Iterable[NewCredential]) -> None:
    """Stores SCRAM credentials; a user has at most one for each mechanism (KIP-554). Raises the
    first refusal (UnacceptableCredential) after the broker has stored those of the other users, and
    ClientError."""
    row = request(ALTER_USERS).struct("upsertions")
    rows = [
        row(
            name=each.user,
            mechanism=each.mechanism,
            iterations=each.iterations,
            salt=each.salt,
            saltedPassword=each.salted_password,
        )
        for each in credentials
    ]
    _alter(cluster, request(ALTER_USERS).cls(upsertions=rows))


def delete_credentials(cluster: Cluster, user: str, mechanisms: Iterable[int]) -> None:
    """Deletes the credentials of a user for these mechanisms (1: SCRAM-SHA-256, 2: SCRAM-SHA-512).
    Raises ResourceNotFound when the user has no credential for a mechanism."""
    row = request(ALTER_USERS).struct("deletions")
    rows = [row(name=user, mechanism=mechanism) for mechanism in mechanisms]
    _alter(cluster, request(ALTER_USERS).cls(deletions=rows))


def _alter(cluster: Cluster, body: Struct) -> None:
    def step() -> None:
        for result in cluster.controller().call(ALTER_USERS, body).results:
            raise_for(result.errorCode, f"user {result.user}", result.errorMessage)

    cluster.retrying(step)
