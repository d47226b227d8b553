"""SyncGroup (14), versions 0-5: the leader sends the assignment, and each member gets its part.

The answer comes when the leader's assignment is durable; no thread waits for it.

v1 throttle time; v3 static members; v4 flexible; v5 protocol type and name, which must match those
of the group.
"""

from barnabas.api.access import of_group
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.api.later import Later
from barnabas.coordinator.groups.classic_group import SyncResult
from barnabas.errors import InconsistentGroupProtocol, error_of
from barnabas.security.acl_codes import READ
from barnabas.wire import Struct

KEY = 14
VERSIONS = (0, 5)
CONTEXT = GroupContext
ACCESS = of_group(READ)


def handle(request: Struct, call: Call[GroupContext]) -> Later:
    if call.version >= 5 and None in (request.protocolType, request.protocolName):
        raise InconsistentGroupProtocol()
    later = Later()
    call.context.groups.sync(
        request.groupId,
        request.memberId,
        request.groupInstanceId,
        request.generationId,
        (request.protocolType, request.protocolName),
        [(row.memberId, bytes(row.assignment)) for row in request.assignments],
        lambda result: later.settle(_answer(result, call)),
    )
    return later


def _answer(result: SyncResult, call: Call[GroupContext]) -> Struct:
    return call.answer()(
        errorCode=0 if result.error is None else result.error.code,
        protocolType=result.protocol_type,
        protocolName=result.protocol_name,
        assignment=result.assignment,
    )


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    return _answer(SyncResult(error_of(code)()), call)
