"""ConsumerGroupHeartbeat (68), versions 0-1: a member joins a consumer group, stays in it, gets its
assignment, or leaves.

The answer is sent when the change is durable. A member joins with epoch 0 and leaves with -1; a
static member that will come back leaves with -2. A field that is null (or -1) has not changed. The
answer is UNSUPPORTED_VERSION while group.version is 0 or group.coordinator.rebalance.protocols
lacks `consumer`.

v1 regular expressions; the member generates its id itself.
"""

from collections.abc import Callable

from barnabas.api.access import of_group
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.api.later import Later
from barnabas.errors import KafkaError, UnsupportedVersion, error_of
from barnabas.security.acl_codes import DESCRIBE, READ, TOPIC
from barnabas.wire import Struct

KEY = 68
VERSIONS = (0, 1)
CONTEXT = GroupContext
ACCESS = of_group(READ)
REGEX_FROM = 1
PROTOCOLS = "group.coordinator.rebalance.protocols"


def handle(request: Struct, call: Call[GroupContext]) -> Later:
    from barnabas.coordinator.groups.consumer_heartbeats import Heartbeat, HeartbeatResult

    check_enabled(call)
    owned: dict[bytes, set[int]] | None = None
    if request.topicPartitions is not None:
        owned = {}
        for row in request.topicPartitions:
            owned.setdefault(bytes(row.topicId), set()).update(row.partitions)
    names = request.subscribedTopicNames
    for name in names or ():
        call.require(DESCRIBE, TOPIC, name)
    asked = Heartbeat(
        member_id=request.memberId,
        member_epoch=request.memberEpoch,
        instance_id=request.instanceId,
        rack_id=request.rackId,
        rebalance_timeout_ms=request.rebalanceTimeoutMs,
        topics=None if names is None else tuple(names),
        regex=request.subscribedTopicRegex if call.version >= REGEX_FROM else None,
        assignor=request.serverAssignor,
        owned=owned,
        client_id=call.client_id or "",
        client_host=f"/{call.peer[0]}",
        version=call.version,
        may_see=_may_see(call),
    )
    later = Later()

    def answer(result: HeartbeatResult) -> None:
        if result.error is not None:
            later.settle(_refusal(result.error, call))
            return
        assignment = None
        if result.assigned is not None:
            row_of = call.struct("assignment.topicPartitions")
            rows = [row_of(topicId=t, partitions=sorted(p)) for t, p in result.assigned.items()]
            assignment = call.struct("assignment")(topicPartitions=rows)
        later.settle(
            call.answer()(
                memberId=result.member_id,
                memberEpoch=result.member_epoch,
                heartbeatIntervalMs=result.interval_ms,
                assignment=assignment,
            )
        )

    call.context.groups.consumer_heartbeat(request.groupId, asked, answer)
    return later


def _may_see(call: Call[GroupContext]) -> Callable[[str], bool] | None:
    """Returns the filter of the topics that a regular expression of this client may match; None:
    all."""
    if call.authorizer is None:
        return None
    return lambda name: call.may(DESCRIBE, TOPIC, name, quiet=True)


def check_enabled(call: Call[GroupContext]) -> None:
    """Raises UnsupportedVersion when this broker does not enable the consumer protocol."""
    offered = call.context.config.names(PROTOCOLS)
    if "consumer" not in offered or call.context.features.level("group.version") < 1:
        raise UnsupportedVersion()


def _refusal(error: KafkaError, call: Call[GroupContext]) -> Struct:
    return call.answer()(errorCode=error.code, errorMessage=error.message)


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    return _refusal(error_of(code)(), call)
