"""The requests by which the controller sends the state of the cluster to another broker.

`AcknowledgedState` is the state that a broker has acknowledged since it registered. `next_requests`
compares it with the current state and returns requests for the differences only, so the controller
needs no queue: a broker that was slow or stopped gets fewer and larger requests. What is new for
brokers that have acknowledged the same state is computed once (state_difference.py). No function
does I/O.

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
from types import MappingProxyType
from typing import Any, NamedTuple

from barnabas.controller.state_difference import (
    PARTITIONS_MAX,
    UPDATE_METADATA,
    PartitionRow,
    Place,
    StateDifference,
)
from barnabas.errors import InconsistentTopicId, KafkaStorageError
from barnabas.metadata.cluster_state import Broker, ClusterState, Partition, Topic
from barnabas.metadata.znodes import PartitionState, TopicAssignment, uuid_bytes
from barnabas.wire import Struct, request
from barnabas.wire.uuids import uuid_text

LEADER_AND_ISR, STOP_REPLICA = 4, 5
LEADER_AND_ISR_MAX, STOP_REPLICA_MAX, UPDATE_METADATA_MAX = 7, 4, 8
DURING_DELETE = -2
PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


LedPartition = tuple[str | None, int, tuple[int, ...]]


class AcknowledgedPartition(NamedTuple):
    """A partition as a broker has acknowledged it."""

    topic_id: str | None
    version: int
    leader_epoch: int
    replicas: tuple[int, ...]
    is_replica: bool  # LeaderAndIsr asked the broker to lead or follow it


NO_TOPICS: Mapping[str, Topic] = MappingProxyType({})  # one object: new brokers share what is new


def _nothing() -> Mapping[str, Topic]:
    return NO_TOPICS


@dataclass(slots=True)
class AcknowledgedState:
    """The state of the cluster that one broker has acknowledged since it registered.

    `base` has the topics that the broker has acknowledged as a whole; brokers share it. `led` has
    the replicas that LeaderAndIsr has named since then, by topic and partition: topic id, leader
    epoch and replicas. `rows` has the partitions that the broker knows otherwise, None for one that
    it does not know: a replica that moved away or was refused, and a deleted topic."""

    broker_id: int
    broker_epoch: int
    brokers: Mapping[int, Broker] | None = None
    controller_epoch: int = -1
    base: Mapping[str, Topic] = field(default_factory=_nothing)
    led: dict[str, dict[int, LedPartition]] = field(default_factory=dict)
    rows: dict[str, dict[int, AcknowledgedPartition | None]] = field(default_factory=dict)
    offline: frozenset[Place] = frozenset()  # replicas whose log the broker cannot use
    asks_again: bool = False  # LeaderAndIsr is due for all of its replicas
    refused: set[str] = field(default_factory=set)  # topics with replicas that were refused
    completed: Mapping[str, Topic] = field(default_factory=_nothing)  # of the last whole state
    # Acknowledged, and not yet in the fields above: the key of the request, and its partitions.
    _recent: list[tuple[int, list[PartitionRow]]] = field(default_factory=list)
    # How many parts of which difference are among them; None: other requests too.
    _parts: tuple[StateDifference, int] | None = None

    def has(self, state: ClusterState) -> bool:
        """Returns whether the broker has acknowledged all topics of a state. Any thread may call
        it."""
        base = self.base
        return base is state.topics or all(
            base.get(name) is topic for name, topic in state.topics.items()
        )

    def row(self, topic: Topic, index: int) -> AcknowledgedPartition | None:
        """Returns the partition as the broker knows it. None: the broker does not know it, or knows
        only one of an earlier topic with the same name."""
        row = self.by_name(topic.name, index)
        return None if row is None or row.topic_id != topic.topic_id else row

    def by_name(self, name: str, index: int) -> AcknowledgedPartition | None:
        """As `row`, of any topic with this name."""
        rows = self.rows.get(name)
        if rows is not None and index in rows:
            return rows[index]
        found, led = self._in_base(name, index), self.led.get(name, {}).get(index)
        if led is None:
            return found
        topic_id, leader_epoch, replicas = led
        version = found.version if found is not None and found.topic_id == topic_id else -1
        return AcknowledgedPartition(topic_id, version, leader_epoch, replicas, True)

    def known(self, name: str) -> Iterator[tuple[int, AcknowledgedPartition]]:
        """Yields the partitions that the broker knows, of any topic with this name."""
        topic = self.base.get(name)
        indexes = dict.fromkeys(() if topic is None else topic.partitions)
        for rows in (self.led, self.rows):
            indexes |= dict.fromkeys(rows.get(name, ()))
        for index in indexes:
            row = self.by_name(name, index)
            if row is not None:
                yield index, row

    def names(self) -> Iterator[str]:
        """Yields the topics of which the broker knows more than `base`."""
        yield from self.led
        yield from self.rows

    def _in_base(self, name: str, index: int) -> AcknowledgedPartition | None:
        topic = self.base.get(name)
        partition = None if topic is None or topic.deleting else topic.partitions.get(index)
        if topic is None or partition is None or partition.state is None:
            return None
        return AcknowledgedPartition(
            topic.topic_id,
            partition.state_version,
            partition.state.leader_epoch,
            partition.replicas,
            self.broker_id in partition.replicas,
        )

    def note(self, key: int, rows: list[PartitionRow]) -> None:
        """Records that the broker has acknowledged partitions of LeaderAndIsr or UpdateMetadata."""
        self._recent.append((key, rows))

    def note_part(self, difference: StateDifference, part: int) -> None:
        """Records that the broker has acknowledged a part of UpdateMetadata that brokers share, and
        all requests before it."""
        self._parts = difference, part + 1

    def note_refused(self, row: PartitionRow) -> None:
        """Records that the broker did not take a replica: it knows what it knew before."""
        self._set(row.place, self.row(row.topic, row.number))
        self.refused.add(row.topic.name)

    def note_stopped(self, place: Place) -> None:
        row = self.by_name(*place)
        if row is not None:
            self._set(place, row._replace(is_replica=False))

    def forget(self, place: Place) -> None:
        """Removes a partition that the broker no longer has."""
        self.offline -= {place}
        self._set(place, None)

    def _set(self, place: Place, row: AcknowledgedPartition | None) -> None:
        self.rows.setdefault(place[0], {})[place[1]] = row

    def settle(self) -> None:
        """Puts what was acknowledged before an interruption into `base`, `led` and `rows`."""
        for key, part in self._recent:
            for row in part:
                self._settle(key, row)
        self._recent.clear()
        if self._parts is None:
            return
        difference, count = self._parts
        self._parts = None
        if self.rows:  # a topic may have a refused replica, to be sent again
            rows = [row for part in difference.parts[:count] for row in part]
        else:
            rows = difference.divided(count)
        is_whole = not self.rows
        for row in rows:
            self._settle(UPDATE_METADATA, row)
        if is_whole:
            self.base = difference.after(count)

    def _settle(self, key: int, row: PartitionRow) -> None:
        known, now = self.row(row.topic, row.number), row.partition
        if key == LEADER_AND_ISR and row.topic.name not in self.rows:
            led = row.topic.topic_id, row.state.leader_epoch, now.replicas
            self.led.setdefault(row.topic.name, {})[row.number] = led
            return
        version, is_replica = now.state_version, True
        if key == LEADER_AND_ISR:
            version = -1 if known is None else known.version
        else:
            is_replica = known is not None and known.is_replica
        acknowledged = AcknowledgedPartition(
            row.topic.topic_id, version, row.state.leader_epoch, now.replicas, is_replica
        )
        self._set(row.place, acknowledged)

    def complete(self, difference: StateDifference) -> None:
        """Records that the broker has acknowledged all of a state. `rows` keeps the partitions that
        the broker knows otherwise nevertheless: a refused replica, a later state."""
        for topic in difference.irregular:
            for index in topic.partitions:
                self._set((topic.name, index), self.by_name(topic.name, index))
        for key, part in self._recent:
            for row in part:
                if row.topic.name in self.rows:
                    self._settle(key, row)
        for row in difference.newer if self._parts is not None and self.rows else ():
            if row.topic.name in self.rows:
                self._settle(UPDATE_METADATA, row)
        self._recent.clear()
        self._parts = None
        self.led.clear()
        self.refused.clear()
        self.base = self.completed = difference.state.topics
        for name in list(self.rows):
            for index, known in list(self.rows[name].items()):
                if _is_same(known, self._in_base(name, index)):
                    del self.rows[name][index]
            if not self.rows[name]:
                del self.rows[name]


def _is_same(row: AcknowledgedPartition | None, base: AcknowledgedPartition | None) -> bool:
    """Returns whether the same requests follow from both."""
    if row is None or base is None:
        return row is base
    if not row.is_replica:  # such a broker learns epoch and replicas by the version only
        return base[:2] == row[:2] and not base.is_replica
    return row == base


class Request(NamedTuple):
    """A request in any version, and the function that records the broker's answer."""

    key: int
    version_max: int
    body: Callable[[int], Struct | bytes]  # by version; bytes: encoded
    acknowledge: Callable[[Struct], None]


def next_requests(
    acknowledged: AcknowledgedState,
    state: ClusterState,
    controller_id: int,
    difference: StateDifference | None = None,
) -> Iterator[Request]:
    """Yields the requests that bring a broker up to date. The caller sends them in order and calls
    `acknowledge` after each answer; after a failure it calls this function again. `difference`:
    between `acknowledged.base` and `state`, if another broker has needed it."""
    acknowledged.settle()
    if difference is None or difference.base is not acknowledged.base:
        difference = StateDifference(acknowledged.base, state)
    broker_id = acknowledged.broker_id
    own = _own_topics(acknowledged, difference)
    names = {topic.name for topic in own}
    led = {
        (name, index)
        for name, rows in acknowledged.led.items()
        if name not in names
        for index in rows
    }

    if (
        acknowledged.brokers != state.brokers
        or acknowledged.controller_epoch != state.controller_epoch
    ):
        yield _shared_metadata(acknowledged, difference, -1, controller_id)
    deleted = list(_deleted(acknowledged, difference, own))
    stopped = [place for place, is_replica in deleted if is_replica]
    stopped += [
        row
        for row in difference.stopped.get(broker_id, ())
        if row[0] not in names and row not in led
    ]
    stopped += _led_and_moved(acknowledged, state, led)
    stopped += [place for topic in own for place in _stopped(acknowledged, topic)]
    for places in _parts(stopped):
        yield _stop_replica(acknowledged, state, places, controller_id)
    for places in _parts([place for place, _ in deleted]):
        yield _removal(acknowledged, state, places, controller_id)
    strays: list[PartitionRow] = []
    replicas = [
        row
        for row in difference.hosted.get(broker_id, ())
        if row.topic.name not in names and row.place not in led
    ]
    replicas += _led_and_hosted(acknowledged, state, led)
    replicas += [row for topic in own for row in _hosted(acknowledged, topic, topic.partitions)]
    for part in _parts(replicas):
        yield _leader_and_isr(acknowledged, state, part, controller_id, strays)
    for part in _parts(strays):
        yield _stop_replica(
            acknowledged, state, [row.place for row in part], controller_id, strays=True
        )
        yield _leader_and_isr(acknowledged, state, part, controller_id, [])
    acknowledged.asks_again = False
    own_rows = [row for topic in own for row in _newer(acknowledged, topic)]
    if names.isdisjoint(difference.newer_names):
        for number in range(len(difference.parts)):
            yield _shared_metadata(acknowledged, difference, number, controller_id)
    else:
        own_rows += [row for row in difference.newer if row.topic.name not in names]
    for part in _parts(own_rows):
        yield _update_metadata(acknowledged, state, part, controller_id)
    acknowledged.complete(difference)


def _own_topics(acknowledged: AcknowledgedState, difference: StateDifference) -> list[Topic]:
    """Returns the topics that are compared for this broker alone."""
    topics = difference.state.topics
    if acknowledged.asks_again:
        return list(topics.values())
    names = {topic.name for topic in difference.irregular}
    for name, rows in acknowledged.led.items():
        topic = topics.get(name)
        if topic is not None and any(row[0] != topic.topic_id for row in rows.values()):
            names.add(name)  # the broker knows an earlier topic of that name
    names |= acknowledged.rows.keys()
    if len(names) == len(difference.irregular):
        return difference.irregular
    own = {topic.name: topic for topic in difference.changed if topic.name in names}
    for name in acknowledged.refused:  # and not sent again, because of an interruption
        if name in topics and acknowledged.completed.get(name) is not topics[name]:
            own[name] = topics[name]
    return list(own.values())


def _led_and_moved(
    acknowledged: AcknowledgedState, state: ClusterState, led: Iterable[Place]
) -> list[Place]:
    """Returns the places of `led` whose replicas moved away from the broker."""
    return [
        (name, index)
        for name, index in led
        if (partition := state.partition(name, index)) is not None
        and (row := acknowledged.row(state.topics[name], index)) is not None
        and row.is_replica
        and acknowledged.broker_id not in partition.replicas
    ]


def _led_and_hosted(
    acknowledged: AcknowledgedState, state: ClusterState, led: Iterable[Place]
) -> Iterator[PartitionRow]:
    """Yields the partitions of `led` that LeaderAndIsr sends again."""
    for name, index in led:
        topic, partition = state.topics.get(name), state.partition(name, index)
        if topic is not None and partition is not None and not topic.deleting:
            yield from _hosted(acknowledged, topic, {index: partition})


def _deleted(
    acknowledged: AcknowledgedState, difference: StateDifference, own: Iterable[Topic]
) -> Iterator[tuple[Place, bool]]:
    """Yields the partitions of deleted topics, of earlier topics with the same name, and of topics
    that are being deleted, each with whether the broker must stop its replica. For a topic that is
    being deleted, all replicas are stopped: an earlier controller may have sent them."""
    topics = difference.state.topics
    gone = [*difference.gone, *(name for name in acknowledged.names() if name not in topics)]
    for name in dict.fromkeys(gone):
        yield from (((name, index), row.is_replica) for index, row in acknowledged.known(name))
    for topic in own:
        for index, row in acknowledged.known(topic.name):
            if row.topic_id != topic.topic_id:
                yield (topic.name, index), row.is_replica
        if topic.deleting:
            for index, partition in topic.partitions.items():
                yield (topic.name, index), acknowledged.broker_id in partition.replicas


def _hosted(
    acknowledged: AcknowledgedState, topic: Topic, partitions: Mapping[int, Partition]
) -> Iterator[PartitionRow]:
    """Yields those partitions of a topic that LeaderAndIsr sends to a replica."""
    for index, partition in _with_state(topic, partitions):
        row, state = acknowledged.row(topic, index), partition.state
        if acknowledged.broker_id in partition.replicas and (
            row is None
            or not row.is_replica
            or acknowledged.asks_again
            or row.leader_epoch != state.leader_epoch
            or row.replicas != partition.replicas
        ):
            yield PartitionRow(topic, index, partition, state)


def _newer(acknowledged: AcknowledgedState, topic: Topic) -> Iterator[PartitionRow]:
    """Yields the partitions that UpdateMetadata sends."""
    for index, partition in _with_state(topic, topic.partitions):
        row = acknowledged.row(topic, index)
        if row is None or partition.state_version > row.version:
            yield PartitionRow(topic, index, partition, partition.state)


def _with_state(topic: Topic, partitions: Mapping[int, Partition]) -> Iterator[tuple[int, Any]]:
    if not topic.deleting:
        for index, partition in partitions.items():
            if partition.state is not None:
                yield index, partition


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
    rows: list[PartitionRow],
    controller_id: int,
    strays: list[PartitionRow],
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
        offline, online, taken = set(), set(), []
        for row in rows:
            code = errors.get(row.place) or errors.get((row.topic.topic_id, row.number), 0)
            if code == InconsistentTopicId.code:
                strays.append(row)
                acknowledged.note_refused(row)
                continue
            taken.append(row)
            if code == KafkaStorageError.code:
                offline.add(row.place)
            elif code == 0:
                online.add(row.place)
        acknowledged.note(LEADER_AND_ISR, taken)
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
        row = acknowledged.by_name(name, index)
        topic = state.topics.get(name)
        topic_id = row.topic_id if row is not None else topic.topic_id if topic else None
        assignment = TopicAssignment({}, topic_id)
        gone = Topic(name, assignment, -1, {}, deleting=True)
        rows.append(PartitionRow(gone, index, Partition((), without, 0), without))
    made = _update_metadata(acknowledged, state, rows, controller_id)

    def acknowledge(_answer: Struct) -> None:
        for place in places:
            acknowledged.forget(place)

    return made._replace(acknowledge=acknowledge)


def _update_metadata(
    acknowledged: AcknowledgedState,
    state: ClusterState,
    rows: list[PartitionRow],
    controller_id: int,
) -> Request:
    def body(version: int) -> Struct:
        return _metadata(state, rows, controller_id, version, acknowledged.broker_epoch)

    def acknowledge(_answer: Struct) -> None:
        acknowledged.brokers, acknowledged.controller_epoch = state.brokers, state.controller_epoch
        acknowledged.note(UPDATE_METADATA, rows)

    return Request(UPDATE_METADATA, UPDATE_METADATA_MAX, body, acknowledge)


def _shared_metadata(
    acknowledged: AcknowledgedState, difference: StateDifference, part: int, controller_id: int
) -> Request:
    """Returns an UpdateMetadata request whose bytes brokers share. `part`: of `difference.parts`;
    -1: without partitions."""
    state = difference.state
    rows = difference.parts[part] if part >= 0 else []

    def body(version: int) -> bytes:
        return difference.update_metadata(
            part,
            version,
            acknowledged.broker_epoch,
            lambda: _metadata(state, rows, controller_id, version, -1),
        )

    def acknowledge(_answer: Struct) -> None:
        acknowledged.brokers, acknowledged.controller_epoch = state.brokers, state.controller_epoch
        if part >= 0:
            acknowledged.note_part(difference, part)

    return Request(UPDATE_METADATA, UPDATE_METADATA_MAX, body, acknowledge)


def _metadata(
    state: ClusterState,
    rows: list[PartitionRow],
    controller_id: int,
    version: int,
    broker_epoch: int,
) -> Struct:
    message = request(UPDATE_METADATA)
    made = message.cls(
        controllerId=controller_id,
        controllerEpoch=state.controller_epoch,
        brokerEpoch=broker_epoch,
        liveBrokers=_live_brokers(message, state, version),
    )
    return _with_rows(made, message, rows, state, "zkVersion", by_topic=version >= 5)


def _with_rows(
    made: Struct,
    message: Any,
    rows: list[PartitionRow],
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
    message: Any, rows: list[PartitionRow], state: ClusterState, epoch_name: str
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
    row_of: Callable[..., Struct], row: PartitionRow, state: ClusterState, epoch_name: str
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


def _live_leaders(message: Any, state: ClusterState, rows: list[PartitionRow]) -> list[Struct]:
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
