"""Client quotas over the wire (Kafka 2.6 and later): lists and changes them."""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.failures import raise_for
from barnabas.wire import Struct, request

DESCRIBE_QUOTAS, ALTER_QUOTAS = 48, 49
EXACT, DEFAULT = 0, 1
KINDS = ("user", "client-id", "ip")
Names = Mapping[str, str | None]  # of an entity, by type; None: the default


class Quota(NamedTuple):
    """The quotas of one entity, by key."""

    names: Names
    values: Mapping[str, float]


def describe_quotas(cluster: Cluster, names: Names) -> list[Quota]:
    """Returns the quotas of the entities that have these names, and may have others too. `names`:
    entity type (user, client-id, ip) -> name; None: the default of the type. Raises KafkaError,
    ClientError."""
    message = request(DESCRIBE_QUOTAS)
    row = message.struct("components")
    rows = [
        row(entityType=kind, matchType=DEFAULT if name is None else EXACT, match=name)
        for kind, name in names.items()
    ]

    def step() -> list[Quota]:
        answer = cluster.any_connection().call(DESCRIBE_QUOTAS, message.cls(components=rows))
        raise_for(answer.errorCode, "quotas", answer.errorMessage)
        return sorted((_quota(entry) for entry in answer.entries or ()), key=_order)

    return cluster.retrying(step)


def alter_quotas(cluster: Cluster, names: Names, values: Mapping[str, float | None]) -> None:
    """Sets quotas of one entity. `names`: entity type -> name, None: the default; `values`: key,
    such as producer_byte_rate, -> value in the unit of the key (bytes/s, percent); None removes the
    quota. Raises InvalidRequest, ClientError."""
    message = request(ALTER_QUOTAS)
    entry, part, op = (message.struct(p) for p in ("entries", "entries.entity", "entries.ops"))
    row = entry(
        entity=[part(entityType=kind, entityName=name) for kind, name in names.items()],
        ops=[
            op(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()
        ],
    )

    def step() -> None:
        answer = cluster.controller().call(ALTER_QUOTAS, message.cls(entries=[row]))
        for found in answer.entries:
            raise_for(found.errorCode, entity_text(names), found.errorMessage)

    cluster.retrying(step)


def entity_text(names: Names) -> str:
    """Returns an entity as a text for people: `user alice, the default client-id`."""
    return ", ".join(
        f"the default {kind}" if name is None else f"{kind} {name}" for kind, name in names.items()
    )


def _quota(entry: Struct) -> Quota:
    return Quota(
        {part.entityType: part.entityName for part in entry.entity},
        {value.key: value.value for value in entry.values},
    )


def _order(quota: Quota) -> list[tuple[bool, bool, str]]:
    return [
        (kind in quota.names, quota.names.get(kind) is None, quota.names.get(kind) or "")
        for kind in KINDS
    ]
