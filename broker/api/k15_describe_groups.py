"""DescribeGroups (15), versions 0-6: the state and members of classic groups.

v1 throttle time; v3 authorized operations; v4 static members; v5 flexible; v6 a missing group gets
GROUP_ID_NOT_FOUND with a message; before, it was "Dead" without an error.
"""

from barnabas.api.access import NOT_ASKED, of_rows
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.coordinator.groups.classic_group import DEAD
from barnabas.errors import GroupIdNotFound, KafkaError
from barnabas.security.acl_codes import DESCRIBE, GROUP
from barnabas.wire import Struct

KEY = 15
VERSIONS = (0, 6)
CONTEXT = GroupContext
ACCESS = of_rows(DESCRIBE, GROUP, "groups", "groups")
NOT_FOUND_FROM = 6


def handle(request: Struct, call: Call[GroupContext]) -> Struct:
    return call.answer()(groups=[_group(group_id, request, call) for group_id in request.groups])


def _group(group_id: str, request: Struct, call: Call[GroupContext]) -> Struct:
    row = call.struct("groups")
    allowed = NOT_ASKED
    if call.version >= 3 and request.includeAuthorizedOperations:
        allowed = call.authorized_operations(GROUP, group_id)
    try:
        found = call.context.administration.describe(group_id)
    except GroupIdNotFound as error:
        answer = row(groupId=group_id, groupState=DEAD, authorizedOperations=allowed)
        if call.version >= NOT_FOUND_FROM:
            answer.errorCode, answer.errorMessage = error.code, error.message
        return answer
    except KafkaError as error:
        return row(groupId=group_id, errorCode=error.code)
    member_of = call.struct("groups.members")
    return row(
        groupId=group_id,
        groupState=found.state,
        protocolType=found.protocol_type,
        protocolData=found.protocol_name,
        authorizedOperations=allowed,
        members=[
            member_of(
                memberId=member.member_id,
                groupInstanceId=member.instance_id,
                clientId=member.client_id,
                clientHost=member.client_host,
                memberMetadata=member.metadata,
                memberAssignment=member.assignment,
            )
            for member in found.members
        ],
    )


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    row = call.struct("groups")
    return call.answer()(groups=[row(groupId=name, errorCode=code) for name in request.groups])
