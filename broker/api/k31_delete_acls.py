"""DeleteAcls (31), versions 0-3: deletes the access rules that match filters.

The answer has the deleted rules of each filter. When it arrives, they are out of force on this
broker, on connections that are open too. Without an authorizer each filter gets SECURITY_DISABLED,
as in Kafka.

v1 pattern types; v2 flexible; v3 user resources (delegation tokens).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.errors import KafkaError, SecurityDisabled
from barnabas.security.acl_codes import ALTER
from barnabas.wire import Struct

if TYPE_CHECKING:
    from barnabas.security.access_rules import AccessControlEntry, AclBinding, ResourcePattern

KEY = 31
VERSIONS = (0, 3)
CONTEXT = MetadataContext
ACCESS = of_cluster(ALTER)


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    from barnabas.api.acl_rows import NO_AUTHORIZER, error_of_outcome, filter_of, text_of
    from barnabas.security.access_rules import AclBinding

    result_of = call.struct("filterResults")
    authorizer = call.authorizer
    if authorizer is None:
        code = SecurityDisabled.code
        rows = [result_of(errorCode=code, errorMessage=NO_AUTHORIZER) for _ in request.filters]
        return call.answer()(filterResults=rows)
    asked: list[Sequence[AclBinding] | KafkaError] = []
    for row in request.filters:
        try:
            asked.append(authorizer.store.rules.matching(filter_of(row)))
        except KafkaError as error:
            asked.append(error)
    removed: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for rules in asked:
        for pattern, entry in () if isinstance(rules, KafkaError) else rules:
            removed.setdefault(pattern, set()).add(entry)
    outcomes = authorizer.store.change({}, removed)
    errors = {pattern: error_of_outcome(found, call) for pattern, found in outcomes.items()}
    for pattern, entries in removed.items():
        for entry in entries if errors[pattern] is None else ():
            authorizer.audit.changed(
                call.principal,
                call.peer[0],
                f"deleted the access rule {text_of(AclBinding(pattern, entry))}",
            )
    return call.answer()(filterResults=[_result(found, errors, call) for found in asked])


def _result(
    found: Sequence[AclBinding] | KafkaError,
    errors: Mapping[ResourcePattern, KafkaError | None],
    call: Call[MetadataContext],
) -> Struct:
    result_of = call.struct("filterResults")
    if isinstance(found, KafkaError):
        return result_of(errorCode=found.code, errorMessage=found.message)
    row_of = call.struct("filterResults.matchingAcls")
    rows = []
    for pattern, entry in found:
        error = errors[pattern]
        rows.append(
            row_of(
                errorCode=0 if error is None else error.code,
                errorMessage=None if error is None else error.message,
                resourceType=pattern.resource_type,
                resourceName=pattern.name,
                patternType=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permissionType=entry.permission,
            )
        )
    return result_of(errorMessage=None, matchingAcls=rows)


def refuse(request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    row = call.struct("filterResults")
    return call.answer()(
        filterResults=[row(errorCode=code, errorMessage=None) for _ in request.filters]
    )
