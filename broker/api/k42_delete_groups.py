"""DeleteGroups (42), versions 0-3: deletes groups without members, and their committed offsets.

The answer is sent when the deletion is durable. v2 flexible; v3 a field for a message.
"""

import threading
from functools import partial

from barnabas.api.access import of_rows
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.api.later import Later
from barnabas.errors import KafkaError, error_of
from barnabas.security.acl_codes import DELETE, GROUP
from barnabas.wire import Struct

KEY = 42
VERSIONS = (0, 3)
CONTEXT = GroupContext
ACCESS = of_rows(DELETE, GROUP, "groupsNames", "results")


def handle(request: Struct, call: Call[GroupContext]) -> Struct | Later:
    names = list(dict.fromkeys(request.groupsNames))
    if not names:
        return call.answer()()
    later = Later()
    lock = threading.Lock()
    outcomes: dict[str, KafkaError | None] = {}

    def deleted(name: str, error: KafkaError | None) -> None:
        with lock:
            outcomes[name] = error
            if len(outcomes) < len(names):
                return
        later.settle(_answer(names, outcomes, call))

    for name in names:
        call.context.administration.delete_group(name, partial(deleted, name))
    return later


def _answer(
    names: list[str], outcomes: dict[str, KafkaError | None], call: Call[GroupContext]
) -> Struct:
    row = call.struct("results")
    rows = []
    for name in names:
        error = outcomes[name]
        # Like Kafka, the answer has no message for these errors.
        rows.append(row(groupId=name, errorCode=0 if error is None else error.code))
    return call.answer()(results=rows)


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    names = list(dict.fromkeys(request.groupsNames))
    return _answer(names, dict.fromkeys(names, error_of(code)()), call)
