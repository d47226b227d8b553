"""LeaveGroup (13), versions 0-5: removes members before their session timeouts end.

v1 throttle time; v3 several members in one request, each with its own error; static members by
their instance id; v4 flexible; v5 a reason, for the log only.
"""

from barnabas.api.access import of_group
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.errors import KafkaError, UnknownMemberId
from barnabas.security.acl_codes import READ
from barnabas.wire import Struct

KEY = 13
VERSIONS = (0, 5)
CONTEXT = GroupContext
ACCESS = of_group(READ)
BATCHED_FROM = 3


def handle(request: Struct, call: Call[GroupContext]) -> Struct:
    if call.version < BATCHED_FROM:
        ((_, _, error),) = call.context.groups.leave(request.groupId, [(request.memberId, None)])
        return call.answer()(errorCode=_code(error))
    leaving = [(row.memberId, row.groupInstanceId) for row in request.members]
    row = call.struct("members")
    return call.answer()(
        members=[
            row(memberId=member_id, groupInstanceId=instance_id, errorCode=_code(error))
            for member_id, instance_id, error in call.context.groups.leave(request.groupId, leaving)
        ]
    )


def _code(error: KafkaError | None) -> int:
    return 0 if error is None else error.code


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    if call.version >= BATCHED_FROM and code == UnknownMemberId.code:  # the group does not exist
        row = call.struct("members")
        members = [
            row(memberId=m.memberId, groupInstanceId=m.groupInstanceId, errorCode=code)
            for m in request.members
        ]
        return call.answer()(members=members)
    return call.answer()(errorCode=code)
