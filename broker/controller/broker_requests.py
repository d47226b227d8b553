"""The requests by which the controller sends the state of the cluster to another broker.

`AcknowledgedState` is the state that a broker has acknowledged since it registered. `next_requests`
compares it with the current state and returns requests for the differences only, so the controller
needs no queue: a broker that was slow or stopped gets fewer and larger requests. No function does
I/O.

    UpdateMetadata    of the live brokers to every broker: a Kafka broker follows only leaders that
                      it knows as live brokers
    StopReplica       to a former replica, and to the replicas of a topic that is deleted
    UpdateMetadata    of deleted partitions to every broker: their leader is -2 (DURING_DELETE)
    LeaderAndIsr      to a replica, when its partition is new to it, or has another leader epoch or
                      other replicas
    UpdateMetadata    to every broker: all states that are new to it

A Kafka broker keeps the files of a topic that was deleted while the broker was stopped, and refuses
a later topic of the same name (INCONSISTENT_TOPIC_ID). The controller then stops the replica, which
deletes its files, and sends LeaderAndIsr again.

Source: Kafka's ControllerBrokerRequestBatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.errors import InconsistentTopicId, KafkaStorageError
from barnabas.metadata.cluster_state import Broker, ClusterState, Partition, Topic
from barnabas.metadata.znodes import PartitionState, TopicAssignment, uuid_bytes
from barnabas.wire import Struct, request
from barnabas.wire.uuids import uuid_text

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
LEADER_AND_ISR_MAX, STOP_REPLICA_MAX, UPDATE_METADATA_MAX = 7, 4, 8
PARTITIONS_MAX = 10_000  # in one request
DURING_DELETE = -2
PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

Place = tuple[str, int]


class AcknowledgedPartition(NamedTuple):
    """A partition as a broker has acknowledged it."""

    topic_id: str | None
    version: int
    leader_epoch: int
    replicas: tuple[int, ...]
    is_replica: bool  # LeaderAndIsr asked the broker to lead or follow it


@dataclass(slots=True)
class AcknowledgedState:
    """The state of the cluster that one broker has acknowledged since it registered."""

    broker_id: int
    broker_epoch: int
    brokers: Mapping[int, Broker] | None = None
    controller_epoch: int = -1
    # By topic and partition.
    rows: dict[str, dict[int, AcknowledgedPartition]] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)  # whose rows are up to date
    offline: frozenset[Place] = frozenset()  # replicas whose log the broker cannot use
    asks_again: bool = False  # LeaderAndIsr is due for all of its replicas

    def row(self, topic: Topic, index: int) -> AcknowledgedPartition | None:
        """Returns the partition as the broker knows it. None: the broker does not know it, or knows
        only one of an earlier topic with the same name."""
        row = self.rows.get(topic.name, {}).get(index)
        return None if row is None or row.topic_id != topic.topic_id else row

    def note(self, row: _PartitionUpdate, version: int, is_replica: bool) -> None:
        """Records that the broker has acknowledged a partition."""
        self.rows.setdefault(row.topic.name, {})[row.number] = AcknowledgedPartition(
            row.topic.topic_id,
            version,
            row.state.leader_epoch,
            row.partition.replicas,
            is_replica,
        )

    def note_stopped(self, place: Place) -> None:
        row = self.rows.get(place[0], {}).get(place[1])
        if row is not None:
            self.rows[place[0]][place[1]] = row._replace(is_replica=False)

    def forget(self, place: Place) -> None:
        """Removes a partition that the broker no longer has."""
        self.offline -= {place}
        rows = self.rows.get(place[0], {})
        rows.pop(place[1], None)
        if not rows:
            self.rows.pop(place[0], None)


class Request(NamedTuple):
    """A request in any version, and the function that records the broker's answer."""

    key: int
    version_max: int
    body: Callable[[int], Struct]  # by version
    acknowledge: Callable[[Struct], None]


def next_requests(
    acknowledged: AcknowledgedState, state: ClusterState, controller_id: int
) -> Iterator[Request]:
    """Yields the requests that bring a broker up to date. The caller sends them in order and calls
    `acknowledge` after each answer; after a failure it calls this function again."""
    changed = [
        topic
        for topic in state.topics.values()
        if acknowledged.asks_again or acknowledged.topics.get(topic.name) is not topic
    ]
    if (
        acknowledged.brokers != state.brokers
        or acknowledged.controller_epoch != state.controller_epoch
    ):
        yield _update_metadata(acknowledged, state, [], controller_id)
    deleted = list(_deleted(acknowledged, state, changed))
    stopped = [place for place, is_replica in deleted if is_replica]
    stopped += [place for topic in changed for place in _stopped(acknowledged, topic)]
    for places in _parts(stopped):
        yield _stop_replica(acknowledged, state, places, controller_id)
    for places in _parts([place for place, _ in deleted]):
        yield _removal(acknowledged, state, places, controller_id)
    strays: list[_PartitionUpdate] = []
    replicas = [row for topic in changed for row in _updates(acknowledged, topic) if row.is_replica]
    for part in _parts(replicas):
        yield _leader_and_isr(acknowledged, state, part, controller_id, strays)
    for part in _parts(strays):
        yield _stop_replica(
            acknowledged, state, [row.place for row in part], controller_id, strays=True
        )
        yield _leader_and_isr(acknowledged, state, part, controller_id, [])
    acknowledged.asks_again = False
    newer = [row for topic in changed for row in _updates(acknowledged, topic) if row.is_newer]
    for part in _parts(newer):
        yield _update_metadata(acknowledged, state, part, controller_id)
    for topic in changed:
        acknowledged.topics[topic.name] = topic
    for name in [name for name in acknowledged.topics if name not in state.topics]:
        del acknowledged.topics[name]


def _deleted(
    acknowledged: AcknowledgedState, state: ClusterState, changed: Iterable[Topic]
) -> Iterator[tuple[Place, bool]]:
    """Yields the partitions of deleted topics, of earlier topics with the same name, and of topics
    that are being deleted, each with whether the broker must stop its replica. For a topic that is
    being deleted, all replicas are stopped: an earlier controller may have sent them."""
    for name in [name for name in acknowledged.rows if name not in state.topics]:
        yield from (
            ((name, index), row.is_replica) for index, row in acknowledged.rows[name].items()
        )
    for topic in changed:
        for index, row in acknowledged.rows.get(topic.name, {}).items():
            if row.topic_id != topic.topic_id:
                yield (topic.name, index), row.is_replica
        if topic.deleting:
            for index, partition in topic.partitions.items():
                yield (topic.name, index), acknowledged.broker_id in partition.replicas


class _PartitionUpdate(NamedTuple):
    topic: Topic
    number: int
    partition: Partition
    state: PartitionState
    is_replica: bool  # goes into LeaderAndIsr
    is_newer: bool  # goes into UpdateMetadata

    @property
    def place(self) -> Place:
        return self.topic.name, self.number


def _updates(acknowledged: AcknowledgedState, topic: Topic) -> Iterator[_PartitionUpdate]:
    if topic.deleting:
        return
    for index, partition in topic.partitions.items():
        state = partition.state
        if state is None:
            continue
        row = acknowledged.row(topic, index)
        hosts = acknowledged.broker_id in partition.replicas
        is_new = row is None or partition.state_version > row.version
        is_replica = hosts and (
            row is None
            or not row.is_replica
            or acknowledged.asks_again
            or row.leader_epoch != state.leader_epoch
            or row.replicas != partition.replicas
        )
        if is_new or is_replica:
            yield _PartitionUpdate(topic, index, partition, state, is_replica, is_new)


def _stopped(acknowledged: AcknowledgedState, topic: Topic) -> Iterator[Place]:
    """Yields the partitions that moved to other brokers."""
    for index, partition in topic.partitions.items():
        row = acknowledged.row(topic, index)
        if row is not None and row.is_replica and acknowledged.broker_id not in partition.replicas:
            yield topic.name, index


def _parts(rows: list[Any]) -> list[list[Any]]:
    return [rows[at : at + PARTITIONS_MAX] for at in range(0, len(rows), PARTITIONS_MAX)]


def _leader_and_isr(
    acknowledged: AcknowledgedState,
    state: ClusterState,
    rows: list[_PartitionUpdate],
    controller_id: int,
    strays: list[_PartitionUpdate],
) -> Request:
    """Returns a LeaderAndIsr request. `acknowledge` adds to `strays` the partitions that the broker
    refuses because it has files of an earlier topic."""

    def body(version: int) -> Struct:
        message = request(LEADER_AND_ISR)
        made = message.cls(
            controllerId=controller_id,
            controllerEpoch=state.controller_epoch,
            brokerEpoch=acknowledged.broker_epoch,
            liveLeaders=_live_leaders(message, state, rows),
        )
        return _with_rows(made, message, rows, state, "partitionEpoch", by_topic=version >= 2)

    def acknowledge(answer: Struct) -> None:
        errors = _errors_of(answer)
        offline, online = set(), set()
        for row in rows:
            code = errors.get(row.place) or errors.get((row.topic.topic_id, row.number), 0)
            if code == InconsistentTopicId.code:
                strays.append(row)
                continue
            if code == KafkaStorageError.code:
                offline.add(row.place)
            elif code == 0:
                online.add(row.place)
            known = acknowledged.row(row.topic, row.number)
            acknowledged.note(row, version=-1 if known is None else known.version, is_replica=True)
        acknowledged.offline = (acknowledged.offline - online) | offline

    return Request(LEADER_AND_ISR, LEADER_AND_ISR_MAX, body, acknowledge)


def _errors_of(answer: Struct) -> dict[tuple[str | None, int], int]:
    """Returns the error codes of the partitions in a LeaderAndIsr response: by the topic's name up
    to version 4, later by its id."""
    found: dict[tuple[str | None, int], int] = {
        (row.topicName, row.partitionIndex): row.errorCode
        for row in getattr(answer, "partitionErrors", None) or ()
    }
    for topic in getattr(answer, "topics", None) or ():
        for row in topic.partitionErrors:
            found[uuid_text(topic.topicId), row.partitionIndex] = row.errorCode
    return found


def _stop_replica(
    acknowledged: AcknowledgedState,
    state: ClusterState,
    places: list[Place],
    controller_id: int,
    strays: bool = False,
) -> Request:
    """Returns a StopReplica request. `strays`: the broker has files of an earlier topic in these
    places."""
    by_topic: dict[str, list[int]] = {}
    for name, index in places:
        by_topic.setdefault(name, []).append(index)

    def body(version: int) -> Struct:
        message = request(STOP_REPLICA)
        made = message.cls(
            controllerId=controller_id,
            controllerEpoch=state.controller_epoch,
            brokerEpoch=acknowledged.broker_epoch,
        )
        if version == 0:
            row_of = message.struct("ungroupedPartitions")
            made.deletePartitions = True
            made.ungroupedPartitions = [row_of(topicName=n, partitionIndex=i) for n, i in places]
        elif version < 3:
            topic_of = message.struct("topics")
            made.deletePartitions = True
            made.topics = [topic_of(name=n, partitionIndexes=rows) for n, rows in by_topic.items()]
        else:
            topic_of = message.struct("topicStates")
            row_of = message.struct("topicStates.partitionStates")
            made.topicStates = [
                topic_of(
                    topicName=name,
                    partitionStates=[
                        row_of(
                            partitionIndex=index,
                            leaderEpoch=DURING_DELETE
                            if strays
                            else _stop_epoch(acknowledged, state, name, index),
                            deletePartition=True,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic.items()
            ]
        return made

    def acknowledge(_answer: Struct) -> None:
        for place in places:
            acknowledged.note_stopped(place)

    return Request(STOP_REPLICA, STOP_REPLICA_MAX, body, acknowledge)


def _stop_epoch(acknowledged: AcknowledgedState, state: ClusterState, name: str, index: int) -> int:
    """Returns the leader epoch of a StopReplica row; -2 when the topic is deleted."""
    topic = state.topics.get(name)
    if topic is None or topic.deleting or acknowledged.row(topic, index) is None:
        return DURING_DELETE
    now = topic.partitions[index].state
    return DURING_DELETE if now is None else now.leader_epoch


def _removal(
    acknowledged: AcknowledgedState, state: ClusterState, places: list[Place], controller_id: int
) -> Request:
    """Returns an UpdateMetadata request for deleted partitions."""
    without = PartitionState(DURING_DELETE, 0, (), state.controller_epoch)
    rows = []
    for name, index in places:
        row = acknowledged.rows.get(name, {}).get(index)
        topic = state.topics.get(name)
        topic_id = row.topic_id if row is not None else topic.topic_id if topic else None
        assignment = TopicAssignment({}, topic_id)
        gone = Topic(name, assignment, -1, {}, deleting=True)
        rows.append(_PartitionUpdate(gone, index, Partition((), without, 0), without, False, True))
    made = _update_metadata(acknowledged, state, rows, controller_id)

    def acknowledge(_answer: Struct) -> None:
        for place in places:
            acknowledged.forget(place)

    return made._replace(acknowledge=acknowledge)


def _update_metadata(
    acknowledged: AcknowledgedState,
    state: ClusterState,
    rows: list[_PartitionUpdate],
    controller_id: int,
) -> Request:
    def body(version: int) -> Struct:
        message = request(UPDATE_METADATA)
        made = message.cls(
            controllerId=controller_id,
            controllerEpoch=state.controller_epoch,
            brokerEpoch=acknowledged.broker_epoch,
            liveBrokers=_live_brokers(message, state, version),
        )
        return _with_rows(made, message, rows, state, "zkVersion", by_topic=version >= 5)

    def acknowledge(_answer: Struct) -> None:
        acknowledged.brokers, acknowledged.controller_epoch = state.brokers, state.controller_epoch
        for row in rows:
            known = acknowledged.row(row.topic, row.number)
            is_replica = known is not None and known.is_replica
            acknowledged.note(row, version=row.partition.state_version, is_replica=is_replica)

    return Request(UPDATE_METADATA, UPDATE_METADATA_MAX, body, acknowledge)


def _with_rows(
    made: Struct,
    message: Any,
    rows: list[_PartitionUpdate],
    state: ClusterState,
    epoch_name: str,
    *,
    by_topic: bool,
) -> Struct:
    """Returns the request with its partitions. `epoch_name`: the field for the version of the
    state's znode."""
    if by_topic:
        made.topicStates = _by_topic(message, rows, state, epoch_name)
    else:
        row_of = message.struct("ungroupedPartitionStates")
        made.ungroupedPartitionStates = [_row(row_of, row, state, epoch_name) for row in rows]
    return made


def _by_topic(
    message: Any, rows: list[_PartitionUpdate], state: ClusterState, epoch_name: str
) -> list[Struct]:
    topic_of = message.struct("topicStates")
    row_of = message.struct("topicStates.partitionStates")
    topics: dict[str, Struct] = {}
    for row in rows:
        made = topics.get(row.topic.name)
        if made is None:
            made = topics[row.topic.name] = topic_of(topicName=row.topic.name, partitionStates=[])
            if row.topic.topic_id is not None:
                made.topicId = uuid_bytes(row.topic.topic_id)
        made.partitionStates.append(_row(row_of, row, state, epoch_name))
    return list(topics.values())


def _row(
    row_of: Callable[..., Struct], row: _PartitionUpdate, state: ClusterState, epoch_name: str
) -> Struct:
    made = row_of(
        partitionIndex=row.number,
        controllerEpoch=row.state.controller_epoch,
        leader=row.state.leader,
        leaderEpoch=row.state.leader_epoch,
        isr=list(row.state.isr),
        replicas=list(row.partition.replicas),
        **{epoch_name: row.partition.state_version},
    )
    if hasattr(made, "topicName"):
        made.topicName = row.topic.name
    if hasattr(made, "offlineReplicas"):
        made.offlineReplicas = [id_ for id_ in row.partition.replicas if id_ not in state.brokers]
    if hasattr(made, "addingReplicas"):
        made.addingReplicas = list(row.topic.assignment.adding_replicas.get(row.number, ()))
        made.removingReplicas = list(row.topic.assignment.removing_replicas.get(row.number, ()))
    return made


def _live_leaders(message: Any, state: ClusterState, rows: list[_PartitionUpdate]) -> list[Struct]:
    row_of = message.struct("liveLeaders")
    leaders = sorted({row.state.leader for row in rows} & state.brokers.keys())
    found = []
    for broker_id in leaders:
        endpoint = state.brokers[broker_id].registration.endpoints[0]
        found.append(row_of(brokerId=broker_id, hostName=endpoint.host, port=endpoint.port))
    return found


def _live_brokers(message: Any, state: ClusterState, version: int) -> list[Struct]:
    broker_of = message.struct("liveBrokers")
    endpoint_of = message.struct("liveBrokers.endpoints")
    rows = []
    for broker_id, broker in sorted(state.brokers.items()):
        endpoints = broker.registration.endpoints
        if version == 0:
            rows.append(broker_of(id=broker_id, v0Host=endpoints[0].host, v0Port=endpoints[0].port))
            continue
        rows.append(
            broker_of(
                id=broker_id,
                endpoints=[
                    endpoint_of(
                        port=each.port,
                        host=each.host,
                        listener=each.listener_name,
                        securityProtocol=PROTOCOLS[each.security_protocol],
                    )
                    for each in endpoints
                ],
                rack=broker.registration.rack,
            )
        )
    return rows
