"""The administrator of a simulated cluster: creates and deletes a topic, and moves partitions.

Each call runs on a broker as the handler of the request does there. It may fail with or without
effect; `allowed` returns the replicas that a partition may have at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.controller.topics import NewTopic
from barnabas.metadata import znodes
from barnabas.metadata.znodes import TopicAssignment, uuid_bytes

if TYPE_CHECKING:
    from simulation.broker import SimBroker
    from simulation.judge import Log
    from simulation.world import World

Replicas = tuple[int, ...]


class Administrator:
    """The administrator of a world. `topic` is created and deleted, again and again."""

    def __init__(self, world: World, topic: str) -> None:
        self._world, self._topic = world, topic
        self._allowed: dict[Log, set[Replicas]] = {}

    def act(self) -> None:
        """Does one thing, on a broker that runs."""
        world = self._world
        broker = world.choice(world.alive())
        if broker.is_busy:
            return
        kind = world.choice(("topic", "topic", "move", "move", "move", "cancel"))
        if kind == "topic" and broker.reader.state.topic(self._topic) is None:
            self.create(broker, self._topic, self._some_replicas())
        elif kind == "topic":
            self._delete(broker)
        else:
            controller = world.brokers.get(broker.reader.state.controller_id or 0)
            if controller in world.alive() and not controller.is_busy:
                self._move(controller, is_cancel=kind == "cancel")

    def allowed(self, log: Log) -> set[Replicas]:
        """Returns the lists of replicas that a partition may have when nothing moves."""
        return self._allowed[log]

    def created(self, name: str, data: bytes) -> None:
        """Notes the assignment of a topic that a commit has created."""
        assignment = TopicAssignment.decode(data)
        assert assignment.topic_id is not None
        for index, replicas in assignment.partitions.items():
            self._allowed[uuid_bytes(assignment.topic_id), index] = {replicas}

    # -- what it does

    def create(
        self, broker: SimBroker, name: str, assignments: Mapping[int, Sequence[int]], **configs: str
    ) -> None:
        """Creates a topic on a broker, which need not be the controller."""
        self._world.note("create topic", f"{name} {assignments} by {broker.node_id}")
        topic = NewTopic(name, assignments=assignments, configs=configs)
        self._world.attempt(broker, lambda: broker.topics.create(topic))

    def _some_replicas(self) -> dict[int, Replicas]:
        return {index: self._target() for index in range(1 + self._world.below(2))}

    def _target(self) -> Replicas:
        """Returns some brokers, two or three, in some order."""
        everyone = list(self._world.brokers)
        rest = [everyone.pop(self._world.below(len(everyone))) for _ in range(3)]
        return tuple(rest[: 2 + self._world.below(2)])

    def _delete(self, broker: SimBroker) -> None:
        self._world.note("delete topic", f"{self._topic} by {broker.node_id}")
        self._world.attempt(broker, lambda: broker.deletion.delete([self._topic]))

    def _move(self, controller: SimBroker, is_cancel: bool) -> None:
        world = self._world
        places = [
            place for place, row in world.partitions().items() if row.is_moving or not is_cancel
        ]
        if not places:
            return
        place = world.choice(places)
        row = world.partitions()[place]
        target = row.origin if is_cancel else self._target()
        world.note("cancel a move" if is_cancel else "move", f"{place} to {target}")

        def move() -> bool:
            check = controller.role.fence()
            if check is None:
                return False
            wanted = {place: None if is_cancel else target}
            return controller.reassignments.begin(check, wanted)[place] is None

        before = self._allowed[row.log]
        self._allowed[row.log] = before | {target}  # the call may fail after it was carried out
        done = world.attempt(controller, move)
        if done:
            self._allowed[row.log] = {target}
        elif done is False:
            self._allowed[row.log] = before


def name_of_topic(path: str) -> str | None:
    """Returns the topic whose own znode has this path, or None."""
    name = path.removeprefix(znodes.TOPICS_PATH + "/")
    return None if name == path or "/" in name else znodes.topic_name(name)
