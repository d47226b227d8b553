"""Writes the ISRs that leaders request by AlterPartition (KIP-497, KIP-903).

Nodes of barnabas write their ISRs themselves (server/isr.py); Kafka's leaders ask the controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from barnabas.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    UnknownTopicOrPartition,
)
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader, Partition
from barnabas.metadata.state_changes import written_by_controller
from barnabas.metadata.tree import CheckVersion, MetadataTree, SetData
from barnabas.metadata.znodes import PartitionState

ANY_EPOCH = -1


class RequestedIsr(NamedTuple):
    """The ISR that the leader `leader_id` wants in place of the one of `version`."""

    leader_id: int
    leader_epoch: int
    version: int  # the partition epoch of the request: the version of the state's node
    isr: Mapping[int, int]  # broker ids, in order: their broker epochs, ANY_EPOCH where unknown
    recovering: bool


class IsrRequests:
    """Answers AlterPartition on the controller."""

    def __init__(self, tree: MetadataTree, reader: ClusterStateReader) -> None:
        self._tree = tree
        self._reader = reader

    def alter(
        self, check: Sequence[CheckVersion], asked: Mapping[tuple[str, int], RequestedIsr]
    ) -> dict[tuple[str, int], Partition | KafkaError]:
        """Writes each wanted ISR by itself: a wrong version of one partition does not affect the
        others. Returns each partition as it is now, or its error. `check`: the result of
        ControllerRole.fence. Raises MetadataError."""
        outcomes: dict[tuple[str, int], Partition | KafkaError] = {}
        for (name, index), row in asked.items():
            try:
                self._alter(check, name, index, row)
            except KafkaError as error:
                outcomes[name, index] = error
        self._reader.refresh_topics({name for name, _index in asked})
        state = self._reader.state
        for name, index in asked.keys() - outcomes.keys():
            partition = state.partition(name, index)
            outcomes[name, index] = UnknownTopicOrPartition() if partition is None else partition
        return outcomes

    def _alter(
        self, check: Sequence[CheckVersion], name: str, index: int, asked: RequestedIsr
    ) -> None:
        partition = self._reader.state.partition(name, index)
        if partition is None or partition.state is None:
            raise UnknownTopicOrPartition()
        after = _altered(partition.state, partition, asked, self._reader.state)
        if after == partition.state:
            return
        path = znodes.partition_state_path(name, index)
        operation = SetData(path, after.encode(), partition.state_version)
        if not written_by_controller([operation], self._tree, check):
            raise InvalidUpdateVersion()


def _altered(
    before: PartitionState, partition: Partition, asked: RequestedIsr, state: ClusterState
) -> PartitionState:
    if before.leader != asked.leader_id or asked.leader_epoch < before.leader_epoch:
        raise FencedLeaderEpoch()
    if asked.leader_epoch > before.leader_epoch or not asked.isr:
        raise InvalidRequest()
    after = replace(before, isr=tuple(asked.isr), recovering=asked.recovering)
    if asked.version != partition.state_version:
        if after == before:
            return before  # it was written, and the answer was lost
        raise InvalidUpdateVersion()
    for broker_id, epoch in asked.isr.items():
        broker = state.brokers.get(broker_id)
        if broker is None or (epoch not in (ANY_EPOCH, broker.epoch)):
            raise IneligibleReplica()
    return after
