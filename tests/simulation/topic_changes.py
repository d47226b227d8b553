"""The administrator of a simulated broker: topics, their partitions and settings, dynamic settings.

Each change is one that the handler of a request makes. The power may be cut in the middle of it;
then it may have happened or not. Checked when the broker has started again, and at the end: every
topic, number of partitions and setting is as the last acknowledged change says, or as the one that
was cut off; the broker serves all partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from simulation.log_rows import Violation

from barnabas.config.incremental import DELETE, SET
from barnabas.controller.config_changes import Change
from barnabas.controller.topics import NewTopic

if TYPE_CHECKING:
    from simulation.judge import Log
    from simulation.one_node import OneNodeWorld
    from simulation.single_node import SingleNode

    from barnabas.metadata.cluster_state import ClusterState

PARTITIONS_MAX = 3
SETTING, BROKER_SETTING = "max.message.bytes", "message.max.bytes"
BROKER = "<default>"


class Described(NamedTuple):
    """A topic. `topic_id` is None until its creation is acknowledged."""

    topic_id: str | None
    partition_count: int
    settings: Mapping[str, str]


class TopicChanges:
    """The administrator of a world with one broker. `names`: the topics that come and go."""

    def __init__(self, world: OneNodeWorld, names: tuple[str, ...]) -> None:
        self._world, self._names = world, names
        self._topics: dict[str, Described] = {}
        self._settings: dict[str, str] = {}  # of all brokers
        self._cut_off: Callable[[], object] | None = None  # makes a change that may have happened
        self._number = 0

    def allowed(self, _log: Log) -> set[tuple[int, ...]]:
        """Returns the lists of replicas that a partition may have."""
        return {(self._world.node.node_id,)}

    def act(self) -> None:
        """Makes one change."""
        world, node = self._world, self._world.node
        if node.is_busy or self._cut_off is not None:
            return
        self._number += 1
        kind = world.choice(("topic", "topic", "settings", "settings", "grow", "broker"))
        name = world.choice(self._names)
        if kind == "broker":
            return self._set_of_brokers(node)
        known = self._topics.get(name)
        if known is None:
            return self.create(name, 1 + world.below(2), {SETTING: self._bytes()})
        if kind == "topic":
            self._do(f"delete {name}", lambda: node.deletion.delete([name]),
                     lambda: self._topics.pop(name))  # fmt: skip
            if name not in self._topics:
                world.judge.check_files()
        elif kind == "settings":
            self._set_of_topic(node, name, known)
        elif known.partition_count < PARTITIONS_MAX:
            count = known.partition_count + 1
            after = known._replace(partition_count=count)
            self._do(f"grow {name} to {count}", lambda: node.growth.grow(name, count),
                     lambda: self._topics.update({name: after}))  # fmt: skip

    def _bytes(self) -> str:
        return str(1_000_000 + self._number)

    def create(self, name: str, partition_count: int, settings: Mapping[str, str]) -> None:
        topic = NewTopic(name, partition_count, 1, configs=settings)
        self._do(
            f"create {name}",
            lambda: self._world.node.topics.create(topic),
            lambda: self._topics.update({name: Described(None, partition_count, settings)}),
        )
        self._learn_id(name)

    def _learn_id(self, name: str) -> None:
        found = self._world.node.reader.state.topics.get(name)
        if found is not None and self._cut_off is None:
            self._topics[name] = self._topics[name]._replace(topic_id=found.topic_id)

    def _set_of_topic(self, node: SingleNode, name: str, known: Described) -> None:
        is_gone, value = self._world.happens(0.3), self._bytes()
        change = Change(SETTING, DELETE if is_gone else SET, None if is_gone else value)
        rest = {key: text for key, text in known.settings.items() if key != SETTING}
        after = known._replace(settings=rest if is_gone else rest | {SETTING: value})
        self._do(f"alter {name}", lambda: node.configs.change_topic(name, [change]),
                 lambda: self._topics.update({name: after}))  # fmt: skip

    def _set_of_brokers(self, node: SingleNode) -> None:
        value = self._bytes()
        change = Change(BROKER_SETTING, SET, value)
        self._do("alter brokers", lambda: node.configs.change_broker(None, [change]),
                 lambda: self._settings.update({BROKER_SETTING: value}))  # fmt: skip

    def _do(self, what: str, call: Callable[[], object], note: Callable[[], object]) -> None:
        """Makes a change, and notes it when it is acknowledged."""
        self._world.note("changes of metadata", what)
        self._cut_off = note
        answers = []
        self._world.attempt(self._world.node, lambda: answers.append(call()))
        self._cut_off = None
        if answers:
            note()

    def check(self, state: ClusterState) -> None:
        """Checks what the broker has read from its store. Raises Violation."""
        first = self._difference(state)
        if first is not None and self._cut_off is not None:
            self._cut_off()
            first = self._difference(state)
        self._cut_off = None
        if first is not None:
            raise Violation(first)
        for name in self._topics:
            self._topics[name] = self._topics[name]._replace(topic_id=state.topics[name].topic_id)
            for index in state.topics[name].partitions:
                if self._world.may_be_offline((name, index)):
                    continue
                if not self._world.node.replicas.is_served(name, index):
                    raise Violation(f"{name}-{index} is not served")

    def _difference(self, state: ClusterState) -> str | None:
        there = {name for name in state.topics if not name.startswith("__")}
        if there != self._topics.keys():
            return f"the topics are {sorted(there)}, and not {sorted(self._topics)}"
        for name, known in self._topics.items():
            found = state.topics[name]
            now = Described(
                found.topic_id, len(found.partitions), dict(state.config("topics", name))
            )
            wanted = known if known.topic_id else known._replace(topic_id=found.topic_id)
            if now != wanted or found.deleting:
                return f"topic {name} is {now}, and not {wanted}"
        settings = state.config("brokers", BROKER)
        if settings != self._settings:
            return f"the settings of all brokers are {settings}, and not {self._settings}"
        return None
