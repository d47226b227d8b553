"""Clusters over SASL_SSL with access rules: settings of the brokers, of clients, and their rules.

`pytest --over sasl_ssl` (or BARNABAS_OVER) runs the faults of `faults.rig` in such a cluster. The
brokers log in as "broker", who may act for the cluster by a rule; the administrator is the only
super user."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from compat.support import Wire
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from security.login_broker import PLAIN_MODULE
from tls.tls_broker import AUTHORITY, pem_settings

from barnabas.client.connection import Connection
from barnabas.client.security import Sasl, Security, Tls
from barnabas.wire import Struct

OVER = os.environ.get("BARNABAS_OVER") or "plaintext"
IS_SECURE = OVER == "sasl_ssl"
USERS = {name: f"password of {name}" for name in ("broker", "admin", "alice", "stranger")}
ANY = "*"


def settings_of(folder: Path, hosts: Sequence[str] = ("127.0.0.1",)) -> dict[str, str]:
    """The settings of brokers with these addresses. Certificate and authority are in `folder`."""
    (folder / "ca.pem").write_text(AUTHORITY.pem)
    accepted = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    own = f'username="broker" password="{USERS["broker"]}"'
    return {
        "listeners": "SAFE://127.0.0.1:0",
        "listener.security.protocol.map": "SAFE:SASL_SSL",
        "inter.broker.listener.name": "SAFE",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.safe.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {own} {accepted};",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
        **pem_settings(folder, AUTHORITY.issue("CN=broker,O=Example", tuple(hosts), kind="rsa")),
    }


def client(user: str) -> dict[str, str]:
    """The settings of librdkafka for a user."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": AUTHORITY.pem,
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


def rule(user: str, resource: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(resource, name, literal, f"User:{user}", "*", operation, allow)


FOR_THE_CLUSTER = rule("broker", ResourceType.BROKER, "kafka-cluster", AclOperation.CLUSTER_ACTION)
RULES = [
    FOR_THE_CLUSTER,
    *(
        rule("alice", ResourceType.TOPIC, ANY, operation)
        for operation in (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE)
    ),
    rule("alice", ResourceType.GROUP, ANY, AclOperation.READ),
]


def grant(servers: str, rules: Sequence[AclBinding]) -> None:
    """Creates access rules, as the administrator."""
    admin = AdminClient({"bootstrap.servers": servers, **client("admin")})
    for made in admin.create_acls(list(rules)).values():
        made.result(30)


class LoggedIn:
    """A connection of alice, with the interface of Wire."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        login = Sasl("PLAIN", "alice", USERS["alice"])
        security = Security(tls=Tls(trusted=AUTHORITY.pem), sasl=login)
        self._connection = Connection(host, int(port), security=security)

    def close(self) -> None:
        self._connection.close()

    def call(self, key: int, version: int, body: Struct) -> Struct:
        return self._connection.call(key, body, low=version, high=version)


# What the tests of faults use, as --over says.
CLIENT: Mapping[str, str] = client("alice") if IS_SECURE else {}
connection = LoggedIn if IS_SECURE else Wire
