"""The one place that applies an API's access rules (access.py) before its handler runs.

`guarded` refuses a request that one of `whole` denies, and takes denied rows out of the request:
the handler sees those that are permitted, and the module's `refuse` answers the others, so that
their answer does not depend on whether a resource exists. Without an authorizer nothing here runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.api.access import ERRORS, RowPermission
from barnabas.api.call import Call
from barnabas.api.later import Later
from barnabas.api.table import Api
from barnabas.errors import KafkaError
from barnabas.security.acl_codes import CLUSTER_NAME
from barnabas.wire import Struct


def guarded(api: Api, asked: Struct, call: Call[Any]) -> Struct | Later:
    """Runs the handler of an API on what the client may ask for. Raises KafkaError, and what the
    handler raises."""
    assert api.handle is not None and api.refuse is not None
    access = api.access()
    for check in access.whole:
        name = getattr(asked, check.field) if check.field else CLUSTER_NAME
        call.require(check.operation, check.resource_type, name)
    if access.rows is None:
        return api.handle(asked, call)
    permitted, denied = _divided(access.rows, asked, call)
    if not denied:
        return api.handle(asked, call)
    answers = [
        api.refuse(_with(asked, access.rows.asked, part), code, call)
        for code, part in denied.items()
    ]
    refused = [row for answer in answers for row in getattr(answer, access.rows.answered)]
    if not permitted:
        setattr(answers[0], access.rows.answered, refused)
        return answers[0]
    wanted = _with(asked, access.rows.asked, permitted)
    return _joined(api.handle(wanted, call), refused, access.rows.answered, wanted, api, call)


def _divided(
    checked: RowPermission, asked: Struct, call: Call[Any]
) -> tuple[Sequence[Any], dict[int, list[Any]]]:
    """Returns the permitted rows, and the others by their error codes."""
    permitted, denied = [], dict[int, list[Any]]()
    for row in getattr(asked, checked.asked):
        resource = checked.resource(row)
        if resource is None or call.may(checked.operation, *resource):
            permitted.append(row)
        else:
            denied.setdefault(ERRORS[resource[0]].code, []).append(row)
    return permitted, denied


def _with(asked: Struct, field: str, part: Sequence[Any]) -> Struct:
    values = {name: getattr(asked, name) for name in asked.layout.names}
    return type(asked)(**values | {field: part})


def _joined(
    answer: Struct | Later,
    refused: Sequence[Struct],
    field: str,
    asked: Struct,
    api: Api,
    call: Call[Any],
) -> Struct | Later:
    """Adds the refused rows to the handler's answer, also when that comes later."""
    if isinstance(answer, Struct):
        setattr(answer, field, [*getattr(answer, field), *refused])
        return answer
    later = Later()

    def settle(outcome: Struct | KafkaError) -> None:
        assert api.refuse is not None
        if isinstance(outcome, KafkaError):
            outcome = api.refuse(asked, outcome.code, call)
        setattr(outcome, field, [*getattr(outcome, field), *refused])
        later.settle(outcome)

    answer.when_settled(settle)
    return later
