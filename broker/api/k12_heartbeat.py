"""Heartbeat (12), versions 0-4: a member lives; it is told of rebalances by the error.

Those of a generation that is begun there are answered by ../../cext/coordinator/membership.pyx.

v1 throttle time; v3 static members; v4 flexible.
"""

from barnabas.api.call import Call
from barnabas.wire import Struct

KEY = 12
VERSIONS = (0, 4)


def handle(request: Struct, call: Call) -> Struct:
    call.rooms.groups.heartbeat(
        request.groupId, request.memberId, request.groupInstanceId, request.generationId
    )
    return call.answer()(errorCode=0)


def refuse(request: Struct, code: int, call: Call) -> Struct:
    return call.answer()(errorCode=code)
