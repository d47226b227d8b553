"""CreateAcls (30), versions 0-3: adds access rules; one that is there already stays.

When the answer arrives, the rules are durable and in force on this broker, on connections that are
open too. Without an authorizer each rule gets SECURITY_DISABLED, as in Kafka.

v1 pattern types; v2 flexible; v3 user resources (delegation tokens).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.errors import KafkaError, SecurityDisabled
from barnabas.security.acl_codes import ALTER
from barnabas.wire import Struct

if TYPE_CHECKING:
    from barnabas.security.access_rules import AccessControlEntry, AclBinding, ResourcePattern

KEY = 30
VERSIONS = (0, 3)
CONTEXT = MetadataContext
ACCESS = of_cluster(ALTER)


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    from barnabas.api.acl_rows import NO_AUTHORIZER, error_of_outcome, rule_of, text_of

    if call.authorizer is None:
        return _answer([SecurityDisabled(NO_AUTHORIZER)] * len(request.creations), call)
    asked: list[AclBinding | KafkaError] = []
    for row in request.creations:
        try:
            asked.append(rule_of(row))
        except KafkaError as error:
            asked.append(error)
    rules = [rule for rule in asked if not isinstance(rule, KafkaError)]
    added: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for pattern, entry in rules:
        added.setdefault(pattern, set()).add(entry)
    outcomes = call.authorizer.store.change(added, {})
    errors = {pattern: error_of_outcome(found, call) for pattern, found in outcomes.items()}
    for rule in rules:
        if errors[rule.pattern] is None:
            call.authorizer.audit.changed(
                call.principal, call.peer[0], f"added the access rule {text_of(rule)}"
            )
    return _answer(
        [rule if isinstance(rule, KafkaError) else errors[rule.pattern] for rule in asked], call
    )


def refuse(request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    row = call.struct("results")
    return call.answer()(
        results=[row(errorCode=code, errorMessage=None) for _ in request.creations]
    )


def _answer(errors: Sequence[KafkaError | None], call: Call[MetadataContext]) -> Struct:
    row = call.struct("results")
    return call.answer()(
        results=[
            row(errorCode=0, errorMessage=None)
            if error is None
            else row(errorCode=error.code, errorMessage=error.message)
            for error in errors
        ]
    )
