"""ShareGroupHeartbeat (76), version 1: a member of a share group joins, stays or leaves.

A member joins with epoch 0 and leaves with -1. The answer has an assignment when the member joins
or when its assignment has changed. v0 was never stable.
"""

from barnabas.api.access import of_group
from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.api.later import Later
from barnabas.errors import InvalidRequest, KafkaError
from barnabas.security.acl_codes import DESCRIBE, READ, TOPIC
from barnabas.wire import Struct

KEY = 76
VERSIONS = (1, 1)
CONTEXT = ShareContext
ACCESS = of_group(READ)
JOINS, LEAVES = 0, -1


def handle(request: Struct, call: Call[ShareContext]) -> Struct | Later:
    from barnabas.coordinator.share.share_groups import Heartbeat, HeartbeatResult

    share = call.context.share()
    share.check_enabled()
    if not request.memberId.strip():
        return refuse(request, InvalidRequest.code, call)
    wrong = _wrong(request)
    if wrong:
        return _refused(InvalidRequest(wrong), call)
    for name in request.subscribedTopicNames or ():
        call.require(DESCRIBE, TOPIC, name)
    if request.memberEpoch != LEAVES:
        share.ensure_state_topic()
    later = Later()

    def answer(result: HeartbeatResult) -> None:
        later.settle(
            _answer(result, call) if result.error is None else _refused(result.error, call)
        )

    asked = Heartbeat(
        request.memberId,
        request.memberEpoch,
        request.rackId,
        request.subscribedTopicNames,
        call.client_id or "",
        f"/{call.peer[0]}",
    )
    share.groups.heartbeat(request.groupId, asked, answer)
    return later


def _wrong(request: Struct) -> str:
    if not request.groupId.strip():
        return "GroupId can't be empty."
    if request.rackId is not None and not request.rackId.strip():
        return "RackId can't be empty."
    if request.memberEpoch == JOINS and not request.subscribedTopicNames:
        return "SubscribedTopicNames must be set in first request."
    if request.memberEpoch < LEAVES:
        return f"MemberEpoch is {request.memberEpoch}, but must be greater than or equal to -1."
    return ""


def _answer(result: "HeartbeatResult", call: Call[ShareContext]) -> Struct:  # type: ignore[name-defined] # noqa: F821
    answer = call.answer()(
        memberId=result.member_id,
        memberEpoch=result.epoch,
        heartbeatIntervalMs=result.heartbeat_ms,
    )
    if result.assignment is not None:
        row = call.struct("assignment.topicPartitions")
        answer.assignment = call.struct("assignment")(
            topicPartitions=[
                row(topicId=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in result.assignment.items()
            ]
        )
    return answer


def _refused(error: KafkaError, call: Call[ShareContext]) -> Struct:
    return call.answer()(errorCode=error.code, errorMessage=error.message)


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    return call.answer()(errorCode=code)
