"""DescribeClientQuotas (48), versions 0 and 1: the quotas of the entities that pass a filter.

v1 flexible. The filter has a condition for each type of entity that it names: the name itself, the
default, or any. `strict` leaves out entities that have further types.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import QuotaContext
from barnabas.errors import InvalidRequest, KafkaError, UnsupportedVersion
from barnabas.quotas.entities import CLIENT_ID, IP, USER, quotas_in
from barnabas.security.acl_codes import DESCRIBE_CONFIGS
from barnabas.wire import Struct

KEY = 48
VERSIONS = (0, 1)
CONTEXT = QuotaContext
ACCESS = of_cluster(DESCRIBE_CONFIGS)
EXACT, DEFAULT, SPECIFIED = range(3)
Condition = Callable[[str | None], bool]


def handle(request: Struct, call: Call[QuotaContext]) -> Struct:
    try:
        conditions = _conditions(request.components)
    except KafkaError as error:
        return call.answer()(
            errorCode=error.code, errorMessage=error.message or error.meaning, entries=None
        )
    row, part, value = (
        call.struct(path) for path in ("entries", "entries.entity", "entries.values")
    )
    entries = []
    found = quotas_in(call.context.cluster().configs)
    for entity, values in sorted(found, key=lambda row: row[0].path):
        names = entity.names()
        if not conditions.keys() <= names.keys():
            continue
        if request.strict and len(names) != len(conditions):
            continue
        if all(holds(names[kind]) for kind, holds in conditions.items()):
            entries.append(
                row(
                    entity=[part(entityType=kind, entityName=name) for kind, name in names.items()],
                    values=[value(key=key, value=limit) for key, limit in sorted(values.items())],
                )
            )
    return call.answer()(errorMessage="", entries=entries)


def _conditions(components: list[Struct]) -> dict[str, Condition]:
    """Returns the condition for each type. Raises KafkaError, as Kafka's ClientQuotasImage does."""
    found: dict[str, Condition] = {}
    for row in components:
        kind = row.entityType
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in found:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersion(f"Unsupported entity type {kind}")
        found[kind] = _condition(row)
    if IP in found and len(found) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component."
        )
    return found


def _condition(row: Struct) -> Condition:
    match = row.match
    if row.matchType == EXACT:
        if match is None:
            raise InvalidRequest(
                "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        return lambda name: name == match
    if row.matchType not in (DEFAULT, SPECIFIED):
        raise InvalidRequest(f"Unknown match type {row.matchType}")
    kind = "MATCH_TYPE_DEFAULT" if row.matchType == DEFAULT else "MATCH_TYPE_SPECIFIED"
    if match is not None:
        raise InvalidRequest(f"Request specified {kind}, but also specified a match string.")
    return (lambda name: name is None) if row.matchType == DEFAULT else (lambda name: True)


def refuse(request: Struct, code: int, call: Call[QuotaContext]) -> Struct:
    return call.answer()(errorCode=code, entries=None)
