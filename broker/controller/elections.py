"""Elections: the leader and the ISR of a partition after brokers have failed, restarted or joined.

Each function takes one partition and the brokers, and returns the next state of the partition; None
when nothing changes. The functions do no I/O; `Elections` writes the states.

A broker is *steady* for a partition when its registration is older than the partition's state. One
that registered later has restarted: it may have lost records
that were not flushed, so it leaves the ISR until it has fetched again, unless no other member of
the ISR is alive. The zxids of the two commits show which came first.

Source: Kafka's PartitionLeaderElectionAlgorithms and ReplicaStateMachine, and KIP-903.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from barnabas.config import TopicConfig
from barnabas.errors import (
    BrokerNotAvailable,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import (
    Broker,
    ClusterState,
    ClusterStateReader,
    Partition,
    PartitionUpdate,
)
from barnabas.metadata.state_changes import written_states
from barnabas.metadata.tree import CheckVersion, MetadataTree, MultiFailed, SetData, shares
from barnabas.metadata.znodes import PartitionState

log = logging.getLogger("barnabas.controller")

NO_LEADER = -1
ATTEMPTS_MAX = 5  # each met a change of another writer


def steady(partition: Partition, brokers: Mapping[int, Broker]) -> list[int]:
    """Returns the members of the ISR, in its order, that are alive and have not restarted since the
    state was written."""
    state = partition.state
    if state is None:
        return []
    return [
        broker_id
        for broker_id in state.isr
        if broker_id in brokers and brokers[broker_id].epoch <= partition.state_zxid
    ]


def without_restarted(partition: Partition, cluster: ClusterState) -> Partition:
    """Returns the partition as if the members of its ISR that have restarted since its state was
    written were not in the ISR, and did not lead. A state that is written for another reason than a
    failure must not keep them: they would be steady then. A single node has nobody else."""
    state, brokers = partition.state, cluster.brokers
    if state is None or not cluster.is_shared:
        return partition
    restarted = {
        broker_id
        for broker_id in state.isr
        if broker_id in brokers and brokers[broker_id].epoch > partition.state_zxid
    }
    if not restarted:
        return partition
    isr = tuple(broker_id for broker_id in state.isr if broker_id not in restarted)
    leader = NO_LEADER if state.leader in restarted else state.leader
    return replace(partition, state=replace(state, leader=leader, isr=isr))


def after_failures(
    partition: Partition,
    brokers: Mapping[int, Broker],
    controller_epoch: int,
    is_unclean_allowed: bool,
) -> PartitionState | None:
    """Returns the state without brokers that are dead or have restarted; None when nothing changes.

    The leader stays if it is steady. Else the first replica of the assignment that is a steady
    member of the ISR leads; else the first one that is alive and in the ISR, alone; else, with
    `is_unclean_allowed` (unclean.leader.election.enable), the first one that is alive, alone. Else
    the partition has no leader, and keeps its ISR: any of its members may lead later. Kafka removes
    members one by one and keeps the last."""
    state = partition.state
    if state is None:
        return None
    isr = steady(partition, brokers)
    alive_in_isr = [broker_id for broker_id in state.isr if broker_id in brokers]
    if state.leader in isr:
        if tuple(isr) == state.isr:
            return None
        return _next(state, state.leader, isr, controller_epoch)
    if (first := _first(partition, isr)) is not None:
        return _next(state, first, isr, controller_epoch)
    first = _first(partition, alive_in_isr)
    if first is None and is_unclean_allowed:
        first = _first(partition, brokers)
    if first is not None:
        return _next(state, first, [first], controller_epoch)
    if state.leader == NO_LEADER:
        return None
    return _next(state, NO_LEADER, list(state.isr), controller_epoch)


def preferred(
    partition: Partition, brokers: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Returns the state in which the first replica of the assignment leads; None when it leads
    already, is not alive, or is not in the ISR."""
    state = partition.state
    first = partition.replicas[0] if partition.replicas else NO_LEADER
    if state is None or first == state.leader or first not in brokers or first not in state.isr:
        return None
    return _next(state, first, list(state.isr), controller_epoch)


def without_leaving(
    partition: Partition, brokers: Collection[int], leaving: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Returns the state after a controlled shutdown of the brokers `leaving`: they are not in the
    ISR, and another member of the ISR leads. None when nothing changes, or no other member of the
    ISR is alive: then the partition keeps its leader until that broker ends."""
    state = partition.state
    if state is None or not set(leaving) & {state.leader, *state.isr}:
        return None
    isr = [broker_id for broker_id in state.isr if broker_id not in leaving]
    leader = state.leader
    if leader in leaving:
        candidates = [broker_id for broker_id in isr if broker_id in brokers]
        found = _first(partition, candidates)
        if found is None:
            return None
        leader = found
    return _next(state, leader, isr, controller_epoch)


def reassigned(
    partition: Partition,
    target: Sequence[int],
    brokers: Collection[int],
    controller_epoch: int,
) -> PartitionState | None:
    """Returns the state at the end of a reassignment: leader and ISR are of `target`. None until
    all of the target are in the ISR, and one of them is alive."""
    state = partition.state
    if state is None or not set(target) <= set(state.isr):
        return None
    leader = state.leader
    if leader not in target or leader not in brokers:
        found = next((broker_id for broker_id in target if broker_id in brokers), None)
        if found is None:
            return None
        leader = found
    isr = [broker_id for broker_id in state.isr if broker_id in target]
    return _next(state, leader, isr, controller_epoch)


def with_replicas(
    partition: Partition, replicas: Sequence[int], brokers: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Returns the state with other replicas and the next leader epoch: Kafka's brokers accept other
    replicas only with a new leader epoch. None when no replica could lead."""
    state = partition.state
    if state is None:
        return None
    isr = [broker_id for broker_id in state.isr if broker_id in replicas]
    leader: int | None = state.leader
    if leader not in replicas:
        leader = next((row for row in replicas if row in isr and row in brokers), None)
    return None if leader is None else _next(state, leader, isr, controller_epoch)


def _first(partition: Partition, candidates: Collection[int]) -> int | None:
    return next((row for row in partition.replicas if row in candidates), None)


def _next(
    state: PartitionState, leader: int, isr: list[int], controller_epoch: int
) -> PartitionState:
    return PartitionState(
        leader, state.leader_epoch + 1, tuple(isr), controller_epoch, state.recovering
    )


class Elections:
    """Writes the states of partitions that need another leader or ISR. Several threads may use it.

    Each method takes `check`, the result of ControllerRole.fence, and raises MetadataError. When
    another writer has changed a state first, the method decides again from the new state."""

    def __init__(
        self,
        tree: MetadataTree,
        reader: ClusterStateReader,
        topic_config: Callable[[str], TopicConfig],
    ) -> None:
        self._tree = tree
        self._reader = reader
        self._topic_config = topic_config
        self._lock = threading.Lock()
        self._judged = ClusterState()  # no partition of it needs an election
        self._offline: Mapping[tuple[str, int], Collection[int]] = {}
        self.unclean_count = 0  # leaders that were not in the ISR, elected by this node
        self._leaving: dict[int, int] = {}  # brokers that shut down: their epochs

    def set_offline(self, offline: Mapping[tuple[str, int], Collection[int]]) -> None:
        """Sets the brokers whose replica cannot be used because its log has failed, by partition
        (KIP-112). For that partition they count as dead."""
        with self._lock:
            if offline != self._offline:
                self._offline = offline
                self._judged = ClusterState()

    def _usable(self, state: ClusterState, name: str, index: int) -> Mapping[int, Broker]:
        """Returns the brokers that can lead or follow a partition."""
        offline = self._offline.get((name, index))
        if not offline:
            return state.brokers
        return {id_: row for id_, row in state.brokers.items() if id_ not in offline}

    def run(self, check: Sequence[CheckVersion]) -> None:
        """Elects leaders for all partitions whose brokers have ended or restarted, or whose
        replicas are offline."""
        with self._lock:
            brokers = self._reader.state.brokers
            for broker_id, epoch in list(self._leaving.items()):
                if broker_id not in brokers or brokers[broker_id].epoch != epoch:
                    del self._leaving[broker_id]
            self._judged = self._write(check, self._after_failures)

    def leave(self, check: Sequence[CheckVersion], broker_id: int) -> list[tuple[str, int]]:
        """Moves the leadership of a broker that shuts down to other brokers, and takes it out of
        the ISRs. Returns the replicated partitions that it still leads. Raises BrokerNotAvailable
        for an unknown broker."""
        with self._lock:
            broker = self._reader.state.brokers.get(broker_id)
            if broker is None:
                raise BrokerNotAvailable()
            self._leaving[broker_id] = broker.epoch
            self._write(check, self._without_leaving)
            return [
                (name, index)
                for name, index, partition in _partitions(self._reader.state)
                if len(partition.replicas) > 1
                and partition.state is not None
                and partition.state.leader == broker_id
            ]

    def prefer(
        self, check: Sequence[CheckVersion], wanted: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], KafkaError | None]:
        """Makes the first replica of each wanted partition its leader. Returns the error by
        partition, None where it leads now."""
        return self._asked(check, wanted, self._preferred)

    def elect_any(
        self, check: Sequence[CheckVersion], wanted: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], KafkaError | None]:
        """Gives each wanted partition without a leader a live replica, also one outside the ISR (an
        unclean election). Returns the error by partition, None where it has a leader now."""
        return self._asked(check, wanted, self._any)

    def _asked(
        self,
        check: Sequence[CheckVersion],
        wanted: Iterable[tuple[str, int]],
        elect: Callable[[ClusterState, Partition, Mapping[int, Broker]], PartitionState],
    ) -> dict[tuple[str, int], KafkaError | None]:
        outcomes: dict[tuple[str, int], KafkaError | None] = {}
        places = list(dict.fromkeys(wanted))

        def changed(state: ClusterState) -> list[SetData]:
            rows = []
            for name, index in places:
                try:
                    partition = state.partition(name, index)
                    if partition is None or state.topics[name].deleting:
                        raise UnknownTopicOrPartition()
                    after = elect(state, partition, self._usable(state, name, index))
                    rows.append(_write_of(name, index, partition, after))
                    outcomes[name, index] = None
                except ElectionNotNeeded as error:  # or an earlier attempt has written it
                    outcomes.setdefault((name, index), error)
                except KafkaError as error:
                    outcomes[name, index] = error
            return rows

        with self._lock:
            self._write(check, changed)
        return outcomes

    def _preferred(
        self, state: ClusterState, partition: Partition, usable: Mapping[int, Broker]
    ) -> PartitionState:
        first = partition.replicas[0] if partition.replicas else NO_LEADER
        if partition.state is not None and first == partition.state.leader in state.brokers:
            raise ElectionNotNeeded()
        candidates = usable.keys() - self._leaving.keys()
        known = without_restarted(partition, state)
        after = preferred(known, candidates, state.controller_epoch)
        if after is None:
            raise PreferredLeaderNotAvailable()
        return after

    def _any(
        self, state: ClusterState, partition: Partition, usable: Mapping[int, Broker]
    ) -> PartitionState:
        if partition.state is not None and partition.state.leader in usable:
            raise ElectionNotNeeded()
        after = after_failures(partition, usable, state.controller_epoch, True)
        if after is None or after.leader == NO_LEADER:
            raise EligibleLeadersNotAvailable()
        return after

    def _after_failures(self, state: ClusterState) -> list[SetData]:
        judged, changed = self._judged, []
        is_known = judged.controller_epoch == state.controller_epoch
        others = _differing(judged.brokers, state.brokers)
        for name, topic in state.topics.items():
            before = judged.topics.get(name) if is_known else None
            if topic.deleting or (before is topic and not others):
                continue
            known: Mapping[int, Partition] = {} if before is None else before.partitions
            is_unclean = self._topic_config(name).boolean("unclean.leader.election.enable")
            for index, partition in topic.partitions.items():
                if known.get(index) is partition and not _concerns(others, partition):
                    continue
                brokers = self._usable(state, name, index)
                after = after_failures(partition, brokers, state.controller_epoch, is_unclean)
                if after is not None:
                    changed.append(_write_of(name, index, partition, after))
        return changed

    def _without_leaving(self, state: ClusterState) -> list[SetData]:
        changed = []
        for name, index, partition in _partitions(state):
            candidates = self._usable(state, name, index).keys() - self._leaving.keys()
            after = without_leaving(
                without_restarted(partition, state),
                candidates,
                self._leaving.keys(),
                state.controller_epoch,
            )
            if after is not None:
                changed.append(_write_of(name, index, partition, after))
        return changed

    def _write(
        self,
        check: Sequence[CheckVersion],
        changed_in: Callable[[ClusterState], list[SetData]],
    ) -> ClusterState:
        """Writes the states that `changed_in` returns, and calls it again with the new state until
        it returns nothing. Returns the last state."""
        attempt = 0
        while changed := changed_in(state := self._reader.state):
            attempt += 1
            unknown = {znodes.partition_of_state(row.path): None for row in changed}
            try:
                for part in shares(changed, self._tree.limits, check):
                    updates = list(written_states(part, self._tree.multi(part), state))
                    self._reader.apply_updates(updates, is_leader_and_isr=False)
                    for update in updates:
                        del unknown[update.topic, update.index]
                        self._note_if_unclean(state, update)
            except MultiFailed as failed:
                if failed.index < len(check) or attempt == ATTEMPTS_MAX:
                    raise failed.error from failed
            finally:
                self._reader.refresh_partitions(place for place in unknown if place is not None)
        return state

    def _note_if_unclean(self, state: ClusterState, update: PartitionUpdate) -> None:
        """Counts and logs the election of a leader that was not in the ISR of `state`."""
        place, leader = (update.topic, update.index), update.state.leader
        partition = state.partition(*place)
        isr = () if partition is None or partition.state is None else partition.state.isr
        if leader == NO_LEADER or leader in isr:
            return
        self.unclean_count += 1
        log.warning(
            "%s-%d: broker %d leads without having been in the ISR %s, none of which is alive."
            " Acknowledged records that it lacks are lost (unclean leader election).",
            *place,
            leader,
            isr,
        )


def _differing(before: Mapping[int, Broker], now: Mapping[int, Broker]) -> set[int]:
    """Returns the brokers that have ended, joined or restarted."""
    return {id_ for id_ in before.keys() | now.keys() if before.get(id_) != now.get(id_)}


def _concerns(brokers: set[int], partition: Partition) -> bool:
    """Returns whether an election for a partition depends on one of these brokers. One without a
    leader also waits for a change of its configuration."""
    state = partition.state
    if state is None:
        return False
    return bool(brokers) and not (
        state.leader != NO_LEADER
        and brokers.isdisjoint(partition.replicas)
        and brokers.isdisjoint(state.isr)
    )


def _partitions(state: ClusterState) -> Iterator[tuple[str, int, Partition]]:
    for name, topic in state.topics.items():
        if not topic.deleting:
            for index, partition in topic.partitions.items():
                yield name, index, partition


def _write_of(name: str, index: int, partition: Partition, after: PartitionState) -> SetData:
    path = znodes.partition_state_path(name, index)
    return SetData(path, after.encode(), partition.state_version)
