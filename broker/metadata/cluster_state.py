"""The state of the cluster: brokers, topics, partitions, configurations, as one frozen value.

A `ClusterState` never changes: it shows one moment. `ClusterStateReader` loads it from a tree and
replaces it when the tree changes. The reader watches brokers, the list and the assignment of
topics, the controller and the notes of configuration changes. It does not watch partition states,
because many thousands of watches would cost too much: the writer of a state calls `apply_updates`,
`refresh_partitions` or `refresh_topics`. Other nodes learn of it by a request of the controller, or
by a note in /isr_change_notification, which they watch (state_changes.py).

The reader logs and leaves out data that it cannot decode (another program may have written it): a
damaged topic is listed in `unreadable`, and all other topics are served.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from barnabas.metadata import znodes
from barnabas.metadata.tree import (
    MetadataTree,
    Node,
    NoNode,
    SessionState,
    StoreUnavailable,
    WatchEvent,
    name_of,
)
from barnabas.metadata.znode_json import USE_LATER, ZnodeDataError, ZnodeTooNew
from barnabas.metadata.znodes import BrokerRegistration, PartitionState, TopicAssignment

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker."""

    broker_id: int
    registration: BrokerRegistration
    epoch: int  # number of the commit that registered it


@dataclass(frozen=True, slots=True)
class Partition:
    """The replicas of a partition and its state."""

    replicas: tuple[int, ...]
    state: PartitionState | None = None  # None until the controller has elected a leader
    state_version: int = -1  # of the state's node; a write with it fails if another came first
    state_zxid: int = -1  # number of the commit that wrote the state; -1: unknown


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its partitions by number."""

    name: str
    assignment: TopicAssignment
    assignment_version: int
    partitions: Mapping[int, Partition]
    deleting: bool = False
    czxid: int = 0  # number of the commit that created it
    is_id_kept: bool = True  # False: a tool older than topic ids wrote the assignment without it

    @property
    def topic_id(self) -> str | None:
        return self.assignment.topic_id


def _empty() -> Mapping:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The state of the cluster at one moment. Its mappings must not be changed."""

    cluster_id: str | None = None
    controller_id: int | None = None
    controller_epoch: int = 0
    brokers: Mapping[int, Broker] = field(default_factory=_empty)
    topics: Mapping[str, Topic] = field(default_factory=_empty)
    topics_by_id: Mapping[str, Topic] = field(default_factory=_empty)
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=_empty)  # `topics/T`: ...
    unreadable: Mapping[str, str] = field(default_factory=_empty)  # topic: what is wrong
    without_id: Mapping[str, Topic] = field(default_factory=_empty)  # topic without id: not served
    is_shared: bool = False  # several nodes have this tree

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: str) -> Topic | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, topic: str, partition: int) -> Partition | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)

    def config(self, kind: str, name: str) -> Mapping[str, str]:
        """Returns the stored configuration of an entity, empty if it has none. `kind`: such as
        `topics`."""
        return self.configs.get(f"{kind}/{name}", _empty())

    def leads(self, broker_id: int, partition: Partition) -> bool:
        """Returns whether a broker must lead the partition. In a cluster, a broker that registered
        after the state was written has restarted, and may have lost records that the rest of the
        ISR has: only a later state makes it the leader."""
        state = partition.state
        if state is None or state.leader != broker_id:
            return False
        broker = self.brokers.get(broker_id)
        return not self.is_shared or broker is None or broker.epoch <= partition.state_zxid


@dataclass(frozen=True, slots=True)
class PartitionUpdate:
    """The state of a partition: in a LeaderAndIsr or UpdateMetadata request, or from the tree."""

    topic: str
    topic_id: str | None  # None: the request is older than topic ids
    index: int
    state: PartitionState
    version: int  # of the state's node
    zxid: int = -1  # number of the commit that wrote it; -1: a request does not say it
    replicas: tuple[int, ...] = ()  # of the request, which may know a later assignment


# `state_zxid` of a state with which the controller has asked this node to lead or follow.
LEADER_AND_ISR_ZXID = (1 << 63) - 1


class _States:
    """Decoded partition states by their bytes: most partitions of a cluster have one of a few
    states."""

    def __init__(self) -> None:
        self._seen: dict[bytes, PartitionState] = {}

    def decode(self, data: bytes) -> PartitionState:
        state = self._seen.get(data)
        if state is None:
            state = self._seen[data] = PartitionState.decode(data)
        return state


def topic_of(nodes: list[Node], deleting: bool = False, states: _States | None = None) -> Topic:
    """Returns a topic from its subtree: its node first, then /partitions/P/state in any order.
    Raises ZnodeDataError."""
    states = states or _States()
    top = nodes[0]
    name = znodes.topic_name(name_of(top.path))
    assignment = TopicAssignment.decode(top.data)
    found: dict[int, tuple[PartitionState, int, int]] = {}
    prefix = len(top.path) + len("/partitions/")
    for node in nodes:
        if node.path.endswith("/state") and len(node.path) > prefix:
            number = znodes.partition_number(node.path[prefix : -len("/state")])
            found[number] = states.decode(node.data), node.stat.version, node.stat.mzxid
    partitions = {}
    for number in sorted(assignment.partitions):
        state, version, zxid = found.get(number, (None, -1, -1))
        partitions[number] = Partition(assignment.partitions[number], state, version, zxid)
    found_partitions = MappingProxyType(partitions)
    return Topic(
        name, assignment, top.stat.version, found_partitions, deleting, czxid=top.stat.czxid
    )


def _with_known_id(topic: Topic, known: Topic | None) -> Topic:
    """Returns a topic whose assignment was written without its id, with the id that it had
    before."""
    if topic.topic_id is not None or known is None or known.czxid != topic.czxid:
        return topic
    assignment = replace(topic.assignment, topic_id=known.topic_id)
    return replace(topic, assignment=assignment, is_id_kept=False)


def _topics_in(nodes: list[Node]) -> dict[str, list[Node]]:
    """Returns the subtree of /brokers/topics by topic, each topic's own node first."""
    prefix = len(znodes.TOPICS_PATH) + 1
    topics: dict[str, list[Node]] = {}
    for node in nodes[1:]:
        topics.setdefault(node.path[prefix:].partition("/")[0], []).append(node)
    return topics


def _newer(
    partition: Partition, update: PartitionUpdate, is_leader_and_isr: bool
) -> Partition | None:
    """Returns the partition with the updated state; None if the known state is at least as new."""
    if is_leader_and_isr and update.version >= partition.state_version:
        if partition.state == update.state and partition.state_zxid == LEADER_AND_ISR_ZXID:
            return None
        return replace(
            partition,
            state=update.state,
            state_version=update.version,
            state_zxid=LEADER_AND_ISR_ZXID,
        )
    is_zxid_new = partition.state_zxid < 0 <= update.zxid
    if update.version < partition.state_version + (not is_zxid_new):
        return None
    before = partition.state
    is_same_epoch = before is not None and before.leader_epoch == update.state.leader_epoch
    zxid = partition.state_zxid if update.zxid < 0 and is_same_epoch else update.zxid
    return replace(partition, state=update.state, state_version=update.version, state_zxid=zxid)


def _with_topics_of(state: ClusterState, topics: dict[str, Topic]) -> ClusterState:
    by_id = {topic.topic_id: topic for topic in topics.values() if topic.topic_id is not None}
    return replace(state, topics=MappingProxyType(topics), topics_by_id=MappingProxyType(by_id))


class ClusterStateReader:
    """Keeps `state` current. Any thread may read it; `listener` is called with each new state.

    A topic that a later version has written is refused at the first load, with ZnodeTooNew: a
    broker that left it out would treat its logs as those of no topic."""

    def __init__(
        self,
        tree: MetadataTree,
        listener: Callable[[ClusterState], object] | None = None,
        may_delete: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_delete` returns whether topics that are marked for deletion are left out. Raises
        MetadataError."""
        self.state = ClusterState()
        self._tree = tree
        self._listener = listener
        self._may_delete = may_delete
        self._lock = threading.RLock()  # one replacement at a time; the listener may refresh
        self._notes_seen = ""  # the last note of a configuration change that was read
        self._isr_notes_seen = ""
        self._is_loaded = False
        tree.add_listener(self._session_changed)
        self.load()

    def on_change(self, listener: Callable[[ClusterState], object]) -> None:
        """Calls `listener` with the present state and with each new one, in place of any other."""
        with self._lock:
            self._listener = listener
            listener(self.state)

    def load(self) -> ClusterState:
        """Reads the whole state, and sets new watches. Raises MetadataError."""
        tree = self._tree
        with self._lock:
            # Watches come before values: a change in between then fires a watch and is read again.
            names = self._watch_children(znodes.TOPICS_PATH, self._topics_changed)
            for name in names:
                tree.exists(znodes.topic_path(name), self._topic_changed)
            isr_notes = self._watch_children(znodes.ISR_CHANGES_PATH, self._isr_changed)
            self._isr_notes_seen = max(isr_notes, default="")
            notes = self._watch_children(znodes.CONFIG_CHANGES_PATH, self._configs_changed)
            self._notes_seen = max(notes, default="")
            state = self._with_controller(ClusterState(is_shared=tree.is_shared))
            deleting = self._marked(
                self._watch_children(znodes.DELETE_TOPICS_PATH, self._deletions)
            )
            grouped = _topics_in(tree.subtree(znodes.TOPICS_PATH))
            for name in grouped.keys() - names:
                del grouped[name]  # _topics_changed reads it, and watches it
            state = self._with_topics(state, grouped, deleting, replacing=None)
            configs = {
                node.path.removeprefix("/config/"): config
                for node in tree.subtree(znodes.CONFIG_PATH)
                if node.data and not node.path.startswith(znodes.CONFIG_CHANGES_PATH + "/")
                if (config := self._readable(node.path, znodes.decode_config, node.data))
            }
            state = replace(
                state,
                cluster_id=self._value(znodes.CLUSTER_ID_PATH, znodes.decode_cluster_id),
                brokers=MappingProxyType(self._read_brokers()),
                configs=MappingProxyType(configs),
            )
            self._is_loaded = True
            return self._publish(state)

    def refresh_topics(self, names: Iterable[str]) -> ClusterState:
        """Reads these topics with all their partitions again."""
        with self._lock:
            known = self.state
            deleting = self._marked(self._names(znodes.DELETE_TOPICS_PATH))
            wanted = set(names)
            grouped = {}
            for name in wanted:
                path = znodes.topic_path(name)
                if self._tree.exists(path) is None:
                    continue  # the watch on /brokers/topics fires when it is created
                self._tree.exists(path, self._topic_changed)
                nodes = self._tree.subtree(path)
                if nodes:
                    grouped[name] = nodes
            return self._publish(self._with_topics(known, grouped, deleting, replacing=wanted))

    def refresh_partitions(self, places: Iterable[tuple[str, int]]) -> ClusterState:
        """Reads the states of these partitions again: after a write of this node, or after a note
        of another one. `places`: topic and partition."""
        with self._lock:
            places = list(dict.fromkeys(places))
            unknown = {place[0] for place in places if self.state.partition(*place) is None}
            if unknown:
                self.refresh_topics(unknown)
            nodes = self._tree.get_all([znodes.partition_state_path(*row) for row in places])
            updates = []
            for (name, index), node in zip(places, nodes, strict=True):
                topic = self.state.topics.get(name)
                if topic is None or node is None:
                    continue
                state = self._readable(node.path, PartitionState.decode, node.data)
                if state is not None:
                    stat = node.stat
                    updates.append(
                        PartitionUpdate(
                            name, topic.topic_id, index, state, stat.version, stat.mzxid
                        )
                    )
            return self.apply_updates(updates, is_leader_and_isr=False)

    def apply_updates(
        self, updates: Iterable[PartitionUpdate], is_leader_and_isr: bool
    ) -> ClusterState:
        """Applies states from a request of the controller, or of a write of this node, if they are
        newer than the known ones, by the version of their nodes. `is_leader_and_isr`: the request
        is LeaderAndIsr, with which the controller asks this node, in its current registration, to
        lead or follow. Reads from the tree unknown topics and partitions, and those to which the
        controller names other replicas: a leader of the new epoch must not take a follower of a
        former assignment into the ISR."""
        updates = list(updates)
        with self._lock:
            unknown = {
                row.topic
                for row in updates
                if (known := self._known(row)) is None
                or (is_leader_and_isr and row.replicas not in ((), known.replicas))
            }
            if unknown:
                self.refresh_topics(unknown)
            changed: dict[str, dict[int, Partition]] = {}
            for row in updates:
                partition = self._known(row)
                if (
                    partition is not None
                    and (now := _newer(partition, row, is_leader_and_isr)) is not None
                ):
                    changed.setdefault(row.topic, {})[row.index] = now
            if not changed:
                return self._publish(self.state)  # the last one may not have been applied
            topics = dict(self.state.topics)
            for name, rows in changed.items():
                partitions = MappingProxyType({**topics[name].partitions, **rows})
                topics[name] = replace(topics[name], partitions=partitions)
            return self._publish(_with_topics_of(self.state, topics))

    def _known(self, update: PartitionUpdate) -> Partition | None:
        topic = self.state.topics.get(update.topic)
        if topic is None or update.topic_id not in (None, topic.topic_id):
            return None
        return topic.partitions.get(update.index)

    def refresh_brokers(self) -> ClusterState:
        """Reads the brokers again, and watches them."""
        with self._lock:
            brokers = MappingProxyType(self._read_brokers())
            return self._publish(replace(self.state, brokers=brokers))

    def refresh_config(self, entities: Iterable[str]) -> ClusterState:
        """Reads these configurations again. `entities`: paths below /config, as in the notes of
        changes."""
        with self._lock:
            configs = dict(self.state.configs)
            for entity in entities:
                path = znodes.config_path(*entity.split("/", 1))
                config = self._value(path, znodes.decode_config)
                configs.pop(entity, None)
                if config:
                    configs[entity] = config
            return self._publish(replace(self.state, configs=MappingProxyType(configs)))

    def refresh_controller(self) -> ClusterState:
        """Reads the controller and its epoch again."""
        with self._lock:
            return self._publish(self._with_controller(self.state))

    def _publish(self, state: ClusterState) -> ClusterState:
        self.state = state
        if self._listener is not None:
            self._listener(state)
        return state

    def _with_topics(
        self,
        state: ClusterState,
        grouped: dict[str, list[Node]],
        deleting: frozenset[str],
        replacing: set[str] | None,
    ) -> ClusterState:
        """Returns `state` with the topics of `grouped`, and without those of `replacing` that are
        not in `grouped`."""
        topics, unreadable = dict(state.topics), dict(state.unreadable)
        without_id = dict(state.without_id)
        states = _States()
        for name in replacing if replacing is not None else list(topics):
            for table in (topics, unreadable, without_id):
                table.pop(name, None)
        for name, nodes in grouped.items():
            try:
                topic = topic_of(nodes, name in deleting, states)
            except ZnodeDataError as error:
                if isinstance(error, ZnodeTooNew) and not self._is_loaded:
                    raise ZnodeTooNew(f"{nodes[0].path}: {error}. {USE_LATER}") from error
                log.error("ignoring %s: %s", nodes[0].path, error)
                unreadable[name] = str(error)
                continue
            topic = _with_known_id(topic, self.state.topics.get(name))
            (topics if topic.topic_id is not None else without_id)[name] = topic
        return replace(
            _with_topics_of(state, topics),
            unreadable=MappingProxyType(unreadable),
            without_id=MappingProxyType(without_id),
        )

    def _with_controller(self, state: ClusterState) -> ClusterState:
        for path in (znodes.CONTROLLER_PATH, znodes.CONTROLLER_EPOCH_PATH):
            self._tree.exists(path, self._controller_changed)
        found = self._value(znodes.CONTROLLER_PATH, znodes.ControllerRegistration.decode)
        epoch = self._value(znodes.CONTROLLER_EPOCH_PATH, znodes.decode_controller_epoch)
        return replace(
            state,
            controller_id=None if found is None else found.broker_id,
            controller_epoch=epoch or 0,
        )

    def _read_brokers(self) -> dict[int, Broker]:
        brokers = {}
        for name in self._watch_children(znodes.BROKER_IDS_PATH, self._brokers_changed):
            path = f"{znodes.BROKER_IDS_PATH}/{name}"
            self._tree.exists(path, self._brokers_changed)
            try:
                broker_id = znodes.partition_number(name)  # a broker id has the same form
                data, stat = self._tree.get(path)
                registration = BrokerRegistration.decode(data)
            except NoNode:
                continue
            except ZnodeDataError as error:
                log.error("ignoring %s: %s", path, error)
                continue
            brokers[broker_id] = Broker(broker_id, registration, stat.czxid)
        return brokers

    def _marked(self, names: list[str]) -> frozenset[str]:
        return frozenset(names) if self._may_delete() else frozenset()

    def _names(self, path: str) -> list[str]:
        try:
            return self._tree.children(path)
        except NoNode:
            return []

    def _watch_children(self, path: str, watch: Callable[[WatchEvent], None]) -> list[str]:
        """Returns the children of a node, and watches them; if the node is absent, its creation
        fires the watch."""
        try:
            return self._tree.children(path, watch)
        except NoNode:
            self._tree.exists(path, watch)
            return []

    def _value(self, path: str, decode: Callable[[bytes], T]) -> T | None:
        try:
            data, _stat = self._tree.get(path)
        except NoNode:
            return None
        return self._readable(path, decode, data)

    def _readable(self, path: str, decode: Callable[[bytes], T], data: bytes) -> T | None:
        try:
            return decode(data)
        except ZnodeDataError as error:
            log.error("ignoring %s: %s", path, error)
            return None

    def _topics_changed(self, _event: WatchEvent) -> None:
        now = set(self._watch_children(znodes.TOPICS_PATH, self._topics_changed))
        state = self.state
        known = state.topics.keys() | state.unreadable.keys() | state.without_id.keys()
        changed = now ^ known
        if changed:  # no note announces the configuration of a new topic
            self.refresh_config(f"topics/{name}" for name in changed)
        self.refresh_topics(changed)

    def _topic_changed(self, event: WatchEvent) -> None:
        self.refresh_topics([name_of(event.path)])

    def _deletions(self, _event: WatchEvent) -> None:
        asked = self._marked(self._watch_children(znodes.DELETE_TOPICS_PATH, self._deletions))
        marked = {topic.name for topic in self.state.topics.values() if topic.deleting}
        self.refresh_topics(asked ^ marked)

    def _brokers_changed(self, _event: WatchEvent) -> None:
        self.refresh_brokers()

    def _controller_changed(self, _event: WatchEvent) -> None:
        self.refresh_controller()

    def _isr_changed(self, _event: WatchEvent) -> None:
        with self._lock:
            notes = self._watch_children(znodes.ISR_CHANGES_PATH, self._isr_changed)
            new = [name for name in notes if name > self._isr_notes_seen]
            partitions: list[tuple[str, int]] = []
            for name in new:
                path = f"{znodes.ISR_CHANGES_PATH}/{name}"
                partitions += self._value(path, znodes.decode_partitions) or ()
            self.refresh_partitions(partitions)
            self._isr_notes_seen = max(new, default=self._isr_notes_seen)

    def _configs_changed(self, _event: WatchEvent) -> None:
        with self._lock:
            notes = self._watch_children(znodes.CONFIG_CHANGES_PATH, self._configs_changed)
            new = sorted(name for name in notes if name > self._notes_seen)
            entities = []
            for name in new:
                change = self._value(
                    f"{znodes.CONFIG_CHANGES_PATH}/{name}", znodes.ConfigChange.decode
                )
                if change is not None:
                    entities.append(change.entity)
            self.refresh_config(dict.fromkeys(entities))
            self._notes_seen = max(new, default=self._notes_seen)

    def _session_changed(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            return
        try:
            self.load()  # a lost session has no watches
        except StoreUnavailable as error:
            log.warning(
                "cannot read the cluster state; the broker uses the one that it read last: %s",
                error,
            )
