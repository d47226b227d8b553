"""DescribeUserScramCredentials (50), version 0: mechanisms and iterations, never salts or keys.

Without names: every user that has a credential. Results have the order of the names.
"""

from __future__ import annotations

from collections import Counter

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import UserContext
from barnabas.errors import DuplicateResource, ResourceNotFound
from barnabas.security import credentials
from barnabas.security.acl_codes import DESCRIBE
from barnabas.security.scram import TYPES
from barnabas.wire import Struct

KEY = 50
VERSIONS = (0, 0)
CONTEXT = UserContext
ACCESS = of_cluster(DESCRIBE)
SHOWN_CHARS_MAX = 1000  # of a name in an error message, whose bytes the protocol limits


def handle(request: Struct, call: Call[UserContext]) -> Struct:
    state = call.context.cluster()
    if request.users:
        named = Counter(row.name for row in request.users)
    else:
        found = [name for name in credentials.users(state)]
        named = Counter(name for name in found if credentials.iterations_of(state, name))
    return call.answer()(
        errorMessage="", results=[_result(call, name, count) for name, count in named.items()]
    )


def _result(call: Call[UserContext], name: str, count: int) -> Struct:
    row, info = call.struct("results"), call.struct("results.credentialInfos")
    if count > 1:
        text = "Cannot describe SCRAM credentials for the same user twice in a single request: "
        return row(
            user=name, errorCode=DuplicateResource.code, errorMessage=text + name[:SHOWN_CHARS_MAX]
        )
    found = credentials.iterations_of(call.context.cluster(), name)
    if not found:
        text = "Attempt to describe a user credential that does not exist: "
        return row(
            user=name, errorCode=ResourceNotFound.code, errorMessage=text + name[:SHOWN_CHARS_MAX]
        )
    infos = [
        info(mechanism=number, iterations=found[mechanism])
        for number, mechanism in TYPES.items()
        if mechanism in found
    ]
    return row(user=name, errorMessage="", credentialInfos=infos)


def refuse(request: Struct, code: int, call: Call[UserContext]) -> Struct:
    return call.answer()(errorCode=code)
