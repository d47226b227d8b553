"""JoinGroup (11), versions 0-9: a client joins a group, or rejoins it for the next generation.

The answer comes when the generation begins, which may take as long as the group's rebalance
timeout; no thread waits for it. Next: coordinator/groups/coordinator.py.

v1 rebalance timeout (before it: the session timeout); v4 a new member first gets its id and joins
again with it (KIP-394); v5 static members (KIP-345); v6 flexible; v7 the protocol type in the
answer, null for no protocol; v8 a reason, for the log only; v9 the answer may ask a leader that
rejoins to keep the present assignment (KIP-814).
"""

from sys import intern

from barnabas.api.access import of_group
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.api.later import Later
from barnabas.coordinator.groups.classic_group import JoinResult
from barnabas.coordinator.groups.rebalance import Join
from barnabas.errors import UnknownMemberId, error_of
from barnabas.security.acl_codes import READ
from barnabas.wire import Struct

KEY = 11
VERSIONS = (0, 9)
CONTEXT = GroupContext
ACCESS = of_group(READ)
ID_REQUIRED_FROM = 4
SKIP_ASSIGNMENT_FROM = 9
NULL_PROTOCOL_FROM = 7


def handle(request: Struct, call: Call[GroupContext]) -> Later:
    later = Later()
    rebalance_ms = request.rebalanceTimeoutMs if call.version >= 1 else request.sessionTimeoutMs
    asked = Join(
        member_id=request.memberId,
        instance_id=request.groupInstanceId,
        # Many members share these strings: intern stores each once.
        client_id=intern(call.client_id or ""),
        client_host=intern(f"/{call.peer[0]}"),
        session_timeout_ms=request.sessionTimeoutMs,
        rebalance_timeout_ms=rebalance_ms,
        protocol_type=intern(request.protocolType),
        protocols=[
            (intern(protocol.name), bytes(protocol.metadata)) for protocol in request.protocols
        ],
        id_required=call.version >= ID_REQUIRED_FROM,
        can_skip_assignment=call.version >= SKIP_ASSIGNMENT_FROM,
    )
    call.context.groups.join(
        request.groupId, asked, lambda result: later.settle(_answer(result, call))
    )
    return later


def _answer(result: JoinResult, call: Call[GroupContext]) -> Struct:
    row = call.struct("members")
    protocol = result.protocol_name
    if protocol is None and call.version < NULL_PROTOCOL_FROM:
        protocol = ""
    return call.answer()(
        errorCode=0 if result.error is None else result.error.code,
        generationId=result.generation,
        protocolType=result.protocol_type,
        protocolName=protocol,
        leader=result.leader,
        skipAssignment=result.skip_assignment,
        memberId=result.member_id,
        members=[
            row(memberId=view.member_id, groupInstanceId=view.instance_id, metadata=view.metadata)
            for view in result.members
        ],
    )


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    member_id = "" if code == UnknownMemberId.code else request.memberId
    return _answer(JoinResult(error_of(code)(), member_id), call)
