"""AlterClientQuotas (49), versions 0 and 1: quotas of users, client ids and addresses.

v1 flexible. An entity that fails does not stop the others. As in Kafka, an entity that the request
names twice is changed the first time, and its answer is the error of the second.
"""

from __future__ import annotations

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import QuotaContext
from barnabas.api.store_errors import ANSWERED, kafka_error_of
from barnabas.errors import InvalidRequest, KafkaError
from barnabas.quotas.entities import entity_of
from barnabas.security.acl_codes import ALTER_CONFIGS
from barnabas.wire import Struct

KEY = 49
VERSIONS = (0, 1)
CONTEXT = QuotaContext
ACCESS = of_cluster(ALTER_CONFIGS)
Names = tuple[tuple[str, str | None], ...]


def handle(request: Struct, call: Call[QuotaContext]) -> Struct:
    outcomes: dict[Names, KafkaError | None] = {}
    for row in request.entries:
        names = {part.entityType: part.entityName for part in row.entity}
        key = tuple(sorted(names.items()))
        keys = [op.key for op in row.ops]
        if key in outcomes or len(set(keys)) < len(keys):
            outcomes[key] = InvalidRequest(f"Ignoring duplicate entity {_text(names)}")
            continue
        values = {op.key: None if op.remove else op.value for op in row.ops}
        outcomes[key] = None
        try:
            call.context.quotas().alter(entity_of(names), values, request.validateOnly)
        except ANSWERED as failure:
            outcomes[key] = kafka_error_of(failure, call)
    return _answer(call, outcomes)


def _answer(call: Call[QuotaContext], outcomes: dict[Names, KafkaError | None]) -> Struct:
    entry, part = call.struct("entries"), call.struct("entries.entity")
    return call.answer()(
        entries=[
            entry(
                errorCode=0 if error is None else error.code,
                errorMessage=None if error is None else error.message or error.meaning,
                entity=[part(entityType=kind, entityName=name) for kind, name in names],
            )
            for names, error in outcomes.items()
        ]
    )


def _text(names: dict[str, str | None]) -> str:
    """Returns an entity as Kafka writes it."""
    inner = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in names.items())
    return f"ClientQuotaEntity(entries={{{inner}}})"


def refuse(request: Struct, code: int, call: Call[QuotaContext]) -> Struct:
    entry, part = call.struct("entries"), call.struct("entries.entity")
    return call.answer()(
        entries=[
            entry(
                errorCode=code,
                entity=[
                    part(entityType=row.entityType, entityName=row.entityName)
                    for row in asked.entity
                ],
            )
            for asked in request.entries
        ]
    )
