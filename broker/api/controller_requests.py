"""The common parts of LeaderAndIsr, StopReplica and UpdateMetadata, the requests of the controller:
the check of the sender, and the partition states."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.api.call import Call
from barnabas.api.contexts import ReplicaContext
from barnabas.errors import StaleBrokerEpoch, StaleControllerEpoch
from barnabas.metadata.cluster_state import PartitionUpdate
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


def partition_updates(
    request: Struct, ungrouped_to: int, version: int
) -> Iterator[PartitionUpdate]:
    """Yields the partition states of a LeaderAndIsr or UpdateMetadata request. In versions up to
    `ungrouped_to` the request does not group them by topic."""
    if version <= ungrouped_to:
        for row in request.ungroupedPartitionStates:
            yield _update(row.topicName, None, row)
        return
    for topic in request.topicStates:
        raw = getattr(topic, "topicId", NO_ID)
        topic_id = None if raw == NO_ID else uuid_text(raw)
        for row in topic.partitionStates:
            yield _update(topic.topicName, topic_id, row)


def _update(topic: str, topic_id: str | None, row: Struct) -> PartitionUpdate:
    state = PartitionState(
        leader=row.leader,
        leader_epoch=row.leaderEpoch,
        isr=tuple(row.isr),
        controller_epoch=row.controllerEpoch,
        recovering=getattr(row, "leaderRecoveryState", 0) == 1,
    )
    version = row.partitionEpoch if hasattr(row, "partitionEpoch") else row.zkVersion
    return PartitionUpdate(
        topic, topic_id, row.partitionIndex, state, version, replicas=tuple(row.replicas)
    )
