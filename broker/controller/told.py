"""What a broker has been told of the cluster, and the requests that tell it the rest.

`Told` is what one registration of a broker has acknowledged. `next_requests` compares it with the
present state and returns requests for the differences alone, so that the controller needs no queue:
a broker that was slow or away gets fewer and larger requests. No function does I/O.

    LeaderAndIsr      to a replica, when its partition is new to it, or has another leader epoch or
                      other replicas
    StopReplica       to a former replica, and to the replicas of a topic that is being deleted
    UpdateMetadata    to every broker: all states that are new to it, and the live brokers

Source: Kafka's ControllerBrokerRequestBatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.metadata.cluster_state import Broker, ClusterState, Partition, Topic
from barnabas.metadata.znodes import PartitionState, uuid_bytes
from barnabas.wire import Struct, request

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
LEADER_AND_ISR_MAX, STOP_REPLICA_MAX, UPDATE_METADATA_MAX = 7, 4, 8
PARTITIONS_MAX = 10_000  # in one request
DURING_DELETE = -2
PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

Place = tuple[str, int]


class Row(NamedTuple):
    """A partition as a broker was told of it."""

    topic_id: str | None
    version: int
    leader_epoch: int
    replicas: tuple[int, ...]
    is_replica: bool  # the broker was asked to lead or follow it


@dataclass(slots=True)
class Told:
    """What one broker, in one registration, has acknowledged."""

    broker_id: int
    broker_epoch: int
    brokers: Mapping[int, Broker] | None = None
    controller_epoch: int = -1
    rows: dict[Place, Row] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)  # whose rows are up to date

    def row(self, topic: Topic, index: int) -> Row | None:
        """What was told of a partition; None for a new one, also of a former topic's name."""
        row = self.rows.get((topic.name, index))
        return None if row is None or row.topic_id != topic.topic_id else row

    def note(self, row: _Wanted, version: int, is_replica: bool) -> None:
        """Notes that the broker has acknowledged a partition."""
        self.rows[row.place] = Row(
            row.topic.topic_id,
            version,
            row.state.leader_epoch,
            row.partition.replicas,
            is_replica,
        )


class Request(NamedTuple):
    """A request in any version, and what its acknowledgement means."""

    key: int
    version_max: int
    body: Callable[[int], Struct]  # by version
    acknowledge: Callable[[], None]


def next_requests(told: Told, state: ClusterState, controller_id: int) -> Iterator[Request]:
    """Yields the requests that bring a broker up to date. Send them in order, and call
    `acknowledge` after each answer; after a failure begin again."""
    changed = [topic for topic in state.topics.values() if told.topics.get(topic.name) is not topic]
    gone = [name for name in told.topics if name not in state.topics]
    asked = [row for topic in changed for row in _wanted(told, topic) if row.is_replica]
    for part in _parts(asked):
        yield _leader_and_isr(told, state, part, controller_id)
    stopped = [place for topic in changed for place in _stopped(told, topic)]
    stopped += [place for place, row in told.rows.items() if place[0] in gone and row.is_replica]
    for places in _parts(stopped):
        yield _stop_replica(told, state, places, controller_id)
    news = [row for topic in changed for row in _wanted(told, topic) if row.is_news]
    has_other_brokers = told.brokers != state.brokers or (
        told.controller_epoch != state.controller_epoch
    )
    for part in _parts(news) or ([[]] if has_other_brokers else []):
        yield _update_metadata(told, state, part, controller_id)
    for topic in changed:
        told.topics[topic.name] = topic
    for name in gone:
        del told.topics[name]
        for place in [place for place in told.rows if place[0] == name]:
            del told.rows[place]


class _Wanted(NamedTuple):
    topic: Topic
    number: int
    partition: Partition
    state: PartitionState
    is_replica: bool  # goes into LeaderAndIsr
    is_news: bool  # goes into UpdateMetadata

    @property
    def place(self) -> Place:
        return self.topic.name, self.number


def _wanted(told: Told, topic: Topic) -> Iterator[_Wanted]:
    for index, partition in topic.partitions.items():
        state = partition.state
        if state is None:
            continue
        row = told.row(topic, index)
        hosts = told.broker_id in partition.replicas
        is_new = row is None or partition.state_version > row.version
        is_replica = hosts and (
            row is None
            or not row.is_replica
            or row.leader_epoch != state.leader_epoch
            or row.replicas != partition.replicas
        )
        if topic.deleting:
            is_replica = False
        if is_new or is_replica:
            yield _Wanted(topic, index, partition, state, is_replica, is_new)


def _stopped(told: Told, topic: Topic) -> Iterator[Place]:
    for index, partition in topic.partitions.items():
        row = told.rows.get((topic.name, index))
        if row is None or not row.is_replica:
            continue
        if topic.deleting or told.broker_id not in partition.replicas:
            yield topic.name, index


def _parts(rows: list[Any]) -> list[list[Any]]:
    return [rows[at : at + PARTITIONS_MAX] for at in range(0, len(rows), PARTITIONS_MAX)]


def _leader_and_isr(
    told: Told, state: ClusterState, rows: list[_Wanted], controller_id: int
) -> Request:
    def body(version: int) -> Struct:
        message = request(LEADER_AND_ISR)
        made = message.cls(
            controllerId=controller_id,
            controllerEpoch=state.controller_epoch,
            brokerEpoch=told.broker_epoch,
            liveLeaders=_live_leaders(message, state, rows),
        )
        if version < 2:
            made.ungroupedPartitionStates = [
                _row(message.struct("ungroupedPartitionStates"), row, "partitionEpoch")
                for row in rows
            ]
        else:
            made.topicStates = _by_topic(message, rows, "partitionEpoch")
        return made

    def acknowledge() -> None:
        for row in rows:
            known = told.row(row.topic, row.number)
            told.note(row, version=-1 if known is None else known.version, is_replica=True)

    return Request(LEADER_AND_ISR, LEADER_AND_ISR_MAX, body, acknowledge)


def _stop_replica(
    told: Told, state: ClusterState, places: list[Place], controller_id: int
) -> Request:
    by_topic: dict[str, list[int]] = {}
    for name, index in places:
        by_topic.setdefault(name, []).append(index)

    def body(version: int) -> Struct:
        message = request(STOP_REPLICA)
        made = message.cls(
            controllerId=controller_id,
            controllerEpoch=state.controller_epoch,
            brokerEpoch=told.broker_epoch,
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
                            leaderEpoch=_stop_epoch(state, name, index),
                            deletePartition=True,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic.items()
            ]
        return made

    def acknowledge() -> None:
        for place in places:
            told.rows[place] = told.rows[place]._replace(is_replica=False)

    return Request(STOP_REPLICA, STOP_REPLICA_MAX, body, acknowledge)


def _stop_epoch(state: ClusterState, name: str, index: int) -> int:
    """Returns the leader epoch of a StopReplica row; -2 while the topic is being deleted."""
    topic = state.topics.get(name)
    partition = None if topic is None or topic.deleting else topic.partitions.get(index)
    if partition is None or partition.state is None:
        return DURING_DELETE
    return partition.state.leader_epoch


def _update_metadata(
    told: Told, state: ClusterState, rows: list[_Wanted], controller_id: int
) -> Request:
    def body(version: int) -> Struct:
        message = request(UPDATE_METADATA)
        made = message.cls(
            controllerId=controller_id,
            controllerEpoch=state.controller_epoch,
            brokerEpoch=told.broker_epoch,
            liveBrokers=_live_brokers(message, state, version),
        )
        if version < 5:
            made.ungroupedPartitionStates = [
                _row(message.struct("ungroupedPartitionStates"), row, "zkVersion") for row in rows
            ]
        else:
            made.topicStates = _by_topic(message, rows, "zkVersion")
        return made

    def acknowledge() -> None:
        told.brokers, told.controller_epoch = state.brokers, state.controller_epoch
        for row in rows:
            known = told.row(row.topic, row.number)
            is_replica = known is not None and known.is_replica
            told.note(row, version=row.partition.state_version, is_replica=is_replica)

    return Request(UPDATE_METADATA, UPDATE_METADATA_MAX, body, acknowledge)


def _by_topic(message: Any, rows: list[_Wanted], epoch_name: str) -> list[Struct]:
    topic_of = message.struct("topicStates")
    row_of = message.struct("topicStates.partitionStates")
    topics: dict[str, Struct] = {}
    for row in rows:
        made = topics.get(row.topic.name)
        if made is None:
            made = topics[row.topic.name] = topic_of(topicName=row.topic.name, partitionStates=[])
            if row.topic.topic_id is not None:
                made.topicId = uuid_bytes(row.topic.topic_id)
        made.partitionStates.append(_row(row_of, row, epoch_name))
    return list(topics.values())


def _row(row_of: Callable[..., Struct], row: _Wanted, epoch_name: str) -> Struct:
    made = row_of(
        partitionIndex=row.number,
        controllerEpoch=row.state.controller_epoch,
        leader=DURING_DELETE if row.topic.deleting else row.state.leader,
        leaderEpoch=row.state.leader_epoch,
        isr=list(row.state.isr),
        replicas=list(row.partition.replicas),
        **{epoch_name: row.partition.state_version},
    )
    if hasattr(made, "topicName"):
        made.topicName = row.topic.name
    if hasattr(made, "addingReplicas"):
        made.addingReplicas = list(row.topic.assignment.adding_replicas.get(row.number, ()))
        made.removingReplicas = list(row.topic.assignment.removing_replicas.get(row.number, ()))
    return made


def _live_leaders(message: Any, state: ClusterState, rows: list[_Wanted]) -> list[Struct]:
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
