"""Quota entities: the clients that a quota applies to, and its node in the metadata tree.

    /config/users/U              a user                      producer_byte_rate, consumer_byte_rate,
    /config/users/U/clients/C    a client id of a user       request_percentage,
    /config/clients/C            a client id                 controller_mutation_rate
    /config/ips/A                an address                  connection_creation_rate

The data has Kafka's form: {"version": 1, "config": {"producer_byte_rate": "1024"}}. U and C are
sanitized names; `<default>` in place of a name stands for each name without a quota of its own. A
user's node may hold SCRAM credentials too (security/credentials.py). A value that is not a number
above 0 is ignored. Next: limits.py.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from barnabas.errors import InvalidRequest
from barnabas.metadata import znodes
from barnabas.metadata.znode_json import ZnodeDataError
from barnabas.metadata.znodes import DEFAULT_ENTITY

log = logging.getLogger("barnabas.quotas")

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATIONS = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
OF_CLIENTS = (PRODUCE, FETCH, REQUEST, MUTATIONS)
OF_ADDRESSES = (CONNECTIONS,)
# The largest value of a key that takes whole numbers only, and its type in Kafka.
WHOLE = {
    PRODUCE: (2**63 - 1, "LONG"),
    FETCH: (2**63 - 1, "LONG"),
    CONNECTIONS: (2**31 - 1, "INT"),
}
FRACTION_MAX = 1e-6  # as Kafka: a value this close to a whole number is one


class Entity(NamedTuple):
    """The clients that a quota applies to. A part is the node's name (DEFAULT_ENTITY, or a
    sanitized name), or None
    when the entity has no such part."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def path(self) -> str:
        """The path below /config."""
        if self.ip is not None:
            return f"ips/{self.ip}"
        steps = (("users", self.user), ("clients", self.client_id))
        return "/".join(f"{kind}/{name}" for kind, name in steps if name is not None)

    def names(self) -> dict[str, str | None]:
        """The name of each part by its type, as the protocol has them; None: the default."""
        found: dict[str, str | None] = {}
        for kind, name in ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip)):
            if name is not None:
                found[kind] = None if name == DEFAULT_ENTITY else _name_of(kind, name)
        return found

    def keys(self) -> tuple[str, ...]:
        """The keys that a quota of this entity may have."""
        return OF_CLIENTS if self.ip is None else OF_ADDRESSES


def _name_of(kind: str, node_name: str) -> str:
    return node_name if kind == IP else znodes.unsanitized(node_name)


def node_name(name: str) -> str:
    """The sanitized name; the two names that no node can have get their dots escaped too."""
    return name.replace(".", "%2E") if name in (".", "..") else znodes.sanitized(name)


def entity_of(names: Mapping[str, str | None]) -> Entity:
    """The entity of these names by type. Raises InvalidRequest, as Kafka's
    ClientQuotaControlManager."""
    if not names:
        raise InvalidRequest("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
    nodes = {
        kind: DEFAULT_ENTITY if name is None else name if kind == IP else node_name(name)
        for kind, name in names.items()
    }
    entity = Entity(nodes.get(USER), nodes.get(CLIENT_ID), nodes.get(IP))
    if entity.ip is not None and len(nodes) > 1:
        raise InvalidRequest(
            "Invalid quota entity combination, IP entity should not be combined with User or"
            " ClientId"
        )
    if entity.ip not in (None, DEFAULT_ENTITY) and not addresses_of(entity.ip):
        raise InvalidRequest(f"{entity.ip} is not a valid IP or resolvable host.")
    return entity


def addresses_of(host: str) -> list[bytes]:
    """The 16 bytes of each address of a host, an IPv4 address as one of IPv6; none when the name
    has no address."""
    import socket

    found = []
    try:
        rows = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    for family, _, _, _, address in rows:
        text = str(address[0]).partition("%")[0]
        packed = socket.inet_pton(family, text)
        found.append(packed if family == socket.AF_INET6 else bytes(10) + b"\xff\xff" + packed)
    return found


def entity_at(path: str) -> Entity | None:
    """The entity of a path below /config; None for other configurations."""
    kind, *names = path.split("/")
    if kind == "users" and len(names) == 3 and names[1] == "clients":
        return Entity(user=names[0], client_id=names[2])
    if len(names) != 1:
        return None
    if kind == "users":
        return Entity(user=names[0])
    if kind == "clients":
        return Entity(client_id=names[0])
    return Entity(ip=names[0]) if kind == "ips" else None


def quotas_in(
    configs: Mapping[str, Mapping[str, str]],
) -> Iterator[tuple[Entity, dict[str, float]]]:
    """Each entity with a quota, and its values by key. `configs`: those of a ClusterState."""
    for path, texts in configs.items():
        entity = entity_at(path)
        if entity is None:
            continue
        try:
            entity.names()
        except ZnodeDataError as error:
            log.warning("the quota of /config/%s is ignored: %s", path, error)
            continue
        values = {key: value_of(path, key, texts[key]) for key in entity.keys() if key in texts}
        found = {key: value for key, value in values.items() if value is not None}
        if found:
            yield entity, found


def value_of(path: str, key: str, text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if value > 0:
        return value
    log.warning("/config/%s: %s=%.60r is not a quota; it is ignored", path, key, text)
    return None


def check(entity: Entity, key: str, value: float) -> str:
    """The stored text of a value. Raises InvalidRequest, as Kafka's ClientQuotaControlManager."""
    if key not in entity.keys():
        raise InvalidRequest(f"Invalid configuration key {key}")
    if not value > 0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    if key not in WHOLE:
        return repr(value)
    largest, kind = WHOLE[key]
    if value > largest:
        raise InvalidRequest(f"Proposed value for {key} is too large for {_AN[kind]} {kind}.")
    if value % 1.0 > FRACTION_MAX:
        raise InvalidRequest(f"{key} cannot be a fractional value.")
    return str(min(int(value + FRACTION_MAX), largest))


_AN = {"LONG": "a", "INT": "an"}
