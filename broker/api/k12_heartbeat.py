"""Heartbeat (12), versions 0-4: a member starts its session timeout again.

REBALANCE_IN_PROGRESS asks the member to rejoin. There is no native handler: at the default interval
of 3 s, 1,000 members cost 3 % of a core (docs/decisions/one-implementation.md).

v1 throttle time; v3 static members; v4 flexible.
"""

from barnabas.api.access import of_group
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.security.acl_codes import READ
from barnabas.wire import Struct

KEY = 12
VERSIONS = (0, 4)
CONTEXT = GroupContext
ACCESS = of_group(READ)


def handle(request: Struct, call: Call[GroupContext]) -> Struct:
    call.context.groups.heartbeat(
        request.groupId, request.memberId, request.groupInstanceId, request.generationId
    )
    return call.answer()(errorCode=0)


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    return call.answer()(errorCode=code)
