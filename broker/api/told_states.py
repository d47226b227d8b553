"""What LeaderAndIsr, StopReplica and UpdateMetadata have in common: their sender, and the states of
partitions that they tell."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.api.call import Call
from barnabas.api.contexts import ReplicaContext
from barnabas.errors import StaleBrokerEpoch, StaleControllerEpoch
from barnabas.metadata.cluster_state import ToldState
from barnabas.metadata.znodes import PartitionState
from barnabas.wire import Struct
from barnabas.wire.uuids import uuid_text

NO_ID = bytes(16)
IS_DELETED = -2  # the leader of a partition whose topic is being deleted


def check_sender(request: Struct, call: Call[ReplicaContext]) -> None:
    """Raises StaleBrokerEpoch for a request to an earlier registration of this node, and
    StaleControllerEpoch for one from a former controller."""
    state = call.context.cluster()
    own = state.brokers.get(call.context.node_id)
    if own is not None and 0 <= getattr(request, "brokerEpoch", -1) < own.epoch:
        raise StaleBrokerEpoch()
    if request.controllerEpoch < state.controller_epoch:
        raise StaleControllerEpoch()


def told_states(request: Struct, ungrouped_to: int, version: int) -> Iterator[ToldState]:
    """The states of a LeaderAndIsr or UpdateMetadata request; versions up to `ungrouped_to` list
    them without their topics."""
    if version <= ungrouped_to:
        for row in request.ungroupedPartitionStates:
            yield _told(row.topicName, None, row)
        return
    for topic in request.topicStates:
        raw = getattr(topic, "topicId", NO_ID)
        topic_id = None if raw == NO_ID else uuid_text(raw)
        for row in topic.partitionStates:
            yield _told(topic.topicName, topic_id, row)


def _told(topic: str, topic_id: str | None, row: Struct) -> ToldState:
    state = PartitionState(
        leader=row.leader,
        leader_epoch=row.leaderEpoch,
        isr=tuple(row.isr),
        controller_epoch=row.controllerEpoch,
        recovering=getattr(row, "leaderRecoveryState", 0) == 1,
    )
    version = row.partitionEpoch if hasattr(row, "partitionEpoch") else row.zkVersion
    return ToldState(topic, topic_id, row.partitionIndex, state, version)
