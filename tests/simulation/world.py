"""Runs a cluster in one thread: brokers, ZooKeeper, network and clock, driven by a seed.

Producers (simulation/clients.py), consumers that commit offsets (simulation/committers.py) and an
administrator (simulation/administrator.py) use it.

The world runs one step of one actor after the other (simulation/broker.py). While an actor waits
for ZooKeeper or for another broker, actors of other brokers may run: in this way steps interleave
like threads of several machines. Time passes when no actor has work, and a little at each step.
Every choice comes from one random number generator, so a seed repeats exactly.

Faults: brokers killed, with or without their unflushed bytes, and paused; with log.durability=fsync
the power of all brokers cut at once, and flushes that do not end; connections between two brokers
or to ZooKeeper cut in one or both directions, and leaders cut from everything but producers;
sessions that expire; requests and answers that are lost, and requests that arrive late, after their
sender has given up; jumps of the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from simulation.administrator import Administrator, name_of_topic
from simulation.base_world import RECREATED, TOPIC, BaseWorld, Known, no_surprise
from simulation.broker import (
    SimBroker,
    SimConnection,
    fault_of,
    without_threads,
)
from simulation.judge import Place
from simulation.log_rows import BATCH_HEADER_BYTES, Violation
from simulation.parking import Awaited, Killed, park
from simulation.zookeeper_model import Fault, Server

from barnabas.metadata import znodes
from barnabas.metadata.tree import EventType, MetadataError, SessionState, WatchEvent
from barnabas.metadata.znodes import PartitionState, TopicAssignment, uuid_bytes

T = TypeVar("T")

PARTITIONS, REPLICAS = 2, 3
SESSION_MS = 6000
DEPTH_MAX = 3  # of steps that run while another waits
# How far all wall clocks are ahead at the end: an open transaction may have begun by a clock that
# was an hour ahead, and ends by its timeout.
SETTLED_MS = 2 * 3_600_000
ROUNDS_MAX = 500
ANSWER_NS = 30 * 10**9  # how long a broker waits for the answer of another
ISOLATED_SENDS = 3  # batches to a leader that has just been isolated


@dataclass(frozen=True, slots=True)
class Rates:
    """The probability of each event at a step."""

    produce: float = 0.25
    commit: float = 0.1
    transact: float = 0.2
    share: float = 0.1
    read: float = 0.05
    administer: float = 0.01
    fault: float = 0.02
    kill: float = 0.0005  # of a broker in the middle of a step, where it waits for another
    after_truncation: float = 0.5  # that the leader is killed when a member of the ISR truncates
    tree_fault: float = 0.003  # of each operation on ZooKeeper
    lose: float = 0.005  # of each request: it is lost, or late, or its answer is lost
    interleave: float = 0.3  # that others run while an actor waits


class World(BaseWorld):
    """A simulated cluster. `run` does `steps` steps with faults, ends the faults, and waits until
    the replicas are equal. Raises Violation."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        brokers: int = 3,
        rates: Rates | None = None,
        durability: str = "os",
        has_share_group: bool = False,
    ) -> None:
        super().__init__(seed, durability, has_share_group)
        self.rates = rates or Rates()
        self.server = Server(lambda: self.wall_ms, [self._committed])
        self.brokers = {
            node_id: SimBroker(self, node_id, folder / str(node_id))
            for node_id in range(1, brokers + 1)
        }
        self.administrator = Administrator(self, RECREATED)
        self.running: SimBroker = self.brokers[1]
        self._depth = 0
        self._cuts: set[tuple[int, int]] = set()  # from, to; 0 is ZooKeeper
        self._late: list[tuple[int, int, bytes]] = []  # to broker, in its life, frame
        self._expiries: dict[int, int] = {}  # session id: when the server ends it
        self._torn: SimBroker | None = None  # has lost records that were not flushed
        self._epochs: dict[str, int] = {}  # leader epoch by the path of a partition's state
        self._partitions: dict[Place, Known] = {}
        self._partitions_of = -1  # the commit after which they were read
        self._has_faults = False

    # -- the run

    def run(self, steps: int) -> None:
        with self.opened():
            self._has_faults = True
            for _ in range(steps):
                self.step()
            self._has_faults = False
            self.settle()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Starts the brokers and creates the topics, and kills all brokers at the end."""
        SimConnection.world = self
        with without_threads(), no_surprise():
            try:
                self._begin()
                yield
            finally:
                for broker in self.brokers.values():
                    if broker.is_running:
                        broker.kill()

    def _begin(self) -> None:
        for broker in self.brokers.values():
            self.start(broker)
        everyone = tuple(self.brokers)
        self.until(
            lambda: all(row.reader.state.brokers.keys() == set(everyone)
                        for row in self.brokers.values()),
            "the brokers do not know each other",
        )  # fmt: skip
        controller = self._controller()
        assert controller is not None
        assignments = {
            index: [everyone[(index + row) % len(everyone)] for row in range(REPLICAS)]
            for index in range(PARTITIONS)
        }
        settings = {"min.insync.replicas": "2"}
        self.administrator.create(controller, TOPIC, assignments, **settings)
        self.attempt(controller, controller.group_log.ensure)
        self.attempt(controller, controller.coordinators.transaction_log.ensure)
        if self.sharers is not None:
            self.attempt(controller, controller.coordinators.share_log.ensure)
        self.until(lambda: self.is_whole, "the topic is not served")
        if self.sharers is not None:
            self.sharers.begin(controller)

    def settle(self) -> None:
        """Ends all faults, and waits until every replica is in sync and has all records."""
        self._cuts.clear()
        self._late.clear()
        for broker in self.brokers.values():
            broker.is_paused = broker.is_slow = False
            self._move_clock(broker, SETTLED_MS - broker.wall_offset_ms)
        self.until(lambda: self.is_whole, "the replicas do not become equal")
        if self.sharers is not None:
            left = self.sharers
            self.until(lambda: left.has_all and self.is_whole, "records are not shared")
        self.judge.look(self.brokers.values())
        self.reader.read_all()
        self.judge.check_end()

    @property
    def is_whole(self) -> bool:
        """Returns whether all work is done: each replica is in sync, and each broker knows all
        topics and hosts only what it must."""
        marks = self.server.table.children(znodes.DELETE_TOPICS_PATH)
        if marks or not self.producers.is_idle or not self.transactions.is_idle:
            return False
        partitions = self.partitions()
        names = {name for name, _index in partitions}
        return all(
            row.is_running and row.reader.state.topics.keys() == names
            for row in self.brokers.values()
        ) and all(self._is_in_sync(place, row) for place, row in partitions.items())

    def _is_in_sync(self, place: Place, row: Known) -> bool:
        if row.is_moving or row.state is None or row.state.leader not in row.state.isr:
            return False
        ends = set()
        for broker in self.brokers.values():
            handle = broker.table.partition(*place)
            known = broker.reader.state.partition(*place)
            if known is None or known.state != row.state or known.replicas != row.replicas:
                return False
            if broker.node_id not in row.replicas:
                if handle is not None:
                    return False
            elif handle is None or handle.log is None or handle.topic_id != row.log[0]:
                return False
            else:
                ends |= {
                    handle.log.end_offset, handle.high_watermark, handle.last_stable_offset
                }  # fmt: skip
        coordinators = self.brokers[row.state.leader].coordinators
        for journal in (
            coordinators.group_log, coordinators.transaction_log, coordinators.share_log
        ):  # fmt: skip
            if place[0] == journal.topic and not journal.led_partitions().get(place[1]):
                return False
        return set(row.state.isr) == set(row.replicas) and len(ends) == 1

    def _controller(self) -> SimBroker | None:
        for broker in self.brokers.values():
            if broker.is_running and broker.role.fence() is not None:
                return broker
        return None

    # -- steps

    def step(self, produces: bool = True) -> None:
        self._pass_time(self._random.choice((0, 0, 0, 1, 5, 20)) * 1_000_000)
        if self._has_faults and self.happens(self.rates.fault):
            self._fault()
        elif self._has_faults and self.happens(self.rates.administer):
            self.administrator.act()
        elif self.happens(self.rates.produce):
            self.producers.send(may_begin=produces)
        elif produces and self.happens(self.rates.commit):
            self.committers.send()
        elif self.happens(self.rates.transact):
            self.transactions.send(may_begin=produces)
        elif self.sharers is not None and self.happens(self.rates.share):
            self.sharers.send(may_die=produces)
        elif self.happens(self.rates.read):
            self.reader.act()
        elif self._late and self.happens(0.1):
            self._deliver_late()
        elif not self._run_one():
            self._pass_time_to_next()
        self.producers.poll()
        self.committers.poll()
        self.transactions.poll()
        if self.sharers is not None:
            self.sharers.poll()
        self.judge.look(self.touched)
        self.touched.clear()

    def run_all(self, condition: Callable[[], bool], but: str, why: str) -> None:
        """Runs all actors except those with the name `but` until a condition holds, without chance
        and without clients."""
        for _ in range(ROUNDS_MAX):
            if condition():
                return
            self._pass_time(1_000_000)
            for broker, actor in self._ready():
                if actor.name != but:
                    self._run_actor(broker, actor)
        raise Violation(f"{why}: {self._described()}")

    def run_named(self, broker: SimBroker, name: str) -> None:
        """Runs one step of each actor of a broker that has this name."""
        for actor in broker.all_actors():
            if actor.name == name:
                self._run_actor(broker, actor)

    def _interleave(self) -> None:
        """Runs other actors while one actor waits."""
        if self._depth < DEPTH_MAX and self._has_faults and self.happens(self.rates.interleave):
            self._depth += 1
            try:
                for _ in range(self._random.randint(1, 4)):
                    self._run_one()
            finally:
                self._depth -= 1

    # -- time

    def time_passed(self) -> None:
        self._end_sessions()

    def due_ns(self) -> list[int]:
        return [*super().due_ns(), *self._expiries.values()]

    # -- ZooKeeper

    def before_operation(self, broker: SimBroker) -> Fault:
        """Called before each operation of a broker on ZooKeeper."""
        if not self._has_faults:
            return Fault.NONE
        self._interleave()
        self._kill_in_a_step(broker)
        if (broker.node_id, 0) in self._cuts:
            return Fault.UNREACHABLE
        fault = fault_of(self._random.random, self.rates.tree_fault)
        if fault is not Fault.NONE:
            self.note(fault.value, f"to ZooKeeper from {broker.node_id}")
        return fault

    def _end_sessions(self) -> None:
        """Sessions without a connection expire after their timeout; brokers connect again."""
        for broker in self.brokers.values():
            session = getattr(broker, "session", None)
            if session is None:
                continue
            is_away = not broker.is_running or broker.is_paused or (
                broker.node_id, 0) in self._cuts  # fmt: skip
            for session_id in broker.former:
                is_own = broker.is_running and session_id == session.session_id
                if is_own and not is_away:
                    self._expiries.pop(session_id, None)
                elif self.server.knows(session_id):
                    due = self._expiries.setdefault(
                        session_id, self.now_ns + SESSION_MS * 1_000_000
                    )
                    if due <= self.now_ns:
                        self._expiries.pop(session_id)
                        self.note("expired", f"session of {broker.node_id}")
                        self.server.expire(session_id)
            if is_away:
                continue
            if session.state is SessionState.CONNECTED and not self.server.knows(
                session.session_id
            ):
                session.disconnect()
            if session.state is not SessionState.CONNECTED:
                session.reconnect()
                if session.session_id not in broker.former:
                    broker.former.append(session.session_id)

    def _committed(self, events: list[WatchEvent]) -> None:
        """Notes the changes of a commit."""
        at = {(event.type, event.path) for event in events}
        for event in events:
            entry = self.server.table.find(event.path)
            name = name_of_topic(event.path)
            if event.path.endswith("/state") and entry is not None:
                state = PartitionState.decode(entry.data)
                if event.type is EventType.CHANGED:
                    self._note_state(event.path, state)
                self._epochs[event.path] = state.leader_epoch
            elif event.type is EventType.CREATED and name is not None and entry is not None:
                self.note("topics created", name)
                self.administrator.created(name, entry.data)
            elif event.type is EventType.DELETED and name is not None:
                self.note("topics deleted", name)
                mark = znodes.delete_topic_path(name)
                if (EventType.DELETED, mark) not in at or (EventType.CREATED, mark) in at:
                    self.judge.report(f"topic {name} was deleted without a mark")

    def _note_state(self, path: str, state: PartitionState) -> None:
        is_new = self._epochs.get(path) != state.leader_epoch
        data = self.server.table.entry(znodes.CONTROLLER_EPOCH_PATH).data
        if is_new and state.controller_epoch != znodes.decode_controller_epoch(data):
            self.judge.report(
                f"a controller with epoch {state.controller_epoch} has written {path}"
            )
        self.note(
            "elections" if is_new else "ISR changes",
            f"{path} {state.leader} epoch {state.leader_epoch} isr {state.isr}",
        )

    def partitions(self) -> dict[Place, Known]:
        """Returns the partitions of all topics, as the tree has them now."""
        if self._partitions_of != self.server.zxid:
            self._partitions_of = self.server.zxid
            names = self.server.table.children(znodes.TOPICS_PATH)
            self._partitions = dict(
                row for name in sorted(names) for row in self._partitions_in(name)
            )
            self.logs = frozenset(row.log for row in self._partitions.values())
        return self._partitions

    def _partitions_in(self, name: str) -> Iterator[tuple[Place, Known]]:
        assignment = TopicAssignment.decode(self.server.table.entry(znodes.topic_path(name)).data)
        assert assignment.topic_id is not None
        for index, replicas in assignment.partitions.items():
            adding = assignment.adding_replicas.get(index, ())
            entry = self.server.table.find(znodes.partition_state_path(name, index))
            yield (
                (name, index),
                Known(
                    (uuid_bytes(assignment.topic_id), index),
                    replicas,
                    tuple(row for row in replicas if row not in adding),
                    bool(adding) or index in assignment.removing_replicas,
                    None if entry is None else PartitionState.decode(entry.data),
                    -1 if entry is None else entry.stat.mzxid,
                ),
            )

    # -- the network

    def reaches(self, source: SimBroker, node_id: int) -> bool:
        target = self.brokers.get(node_id)
        return (
            target is not None
            and target.is_running
            and not target.is_paused
            and (source.node_id, node_id) not in self._cuts
            and (node_id, source.node_id) not in self._cuts
        )

    def carry(self, source: SimBroker, node_id: int, frame: bytes) -> bytes | None:
        """Delivers a request from one broker to another. Returns the answer, or None when none
        arrives."""
        self._interleave()
        self._kill_in_a_step(source)
        target, key = self.brokers[node_id], int.from_bytes(frame[:2], "big")
        is_cut = (source.node_id, node_id) in self._cuts or not target.is_running
        if is_cut or self.loses(key, target, frame):
            return None
        if target.is_paused or not target.takes_now(key):
            self._late.append((node_id, target.life, frame))
            return None
        answer = self.handled(target, frame)
        if isinstance(answer, Awaited):
            answer = self._awaited(target, answer)
        self._interleave()
        if (node_id, source.node_id) in self._cuts or self.loses_answer(key, target):
            return None
        return answer

    def _awaited(self, target: SimBroker, waiting: Awaited) -> bytes | None:
        """Parks until another broker has an answer; None when none comes."""
        life = target.life
        park(
            lambda: waiting.answer is not None or target.life != life or not target.is_running,
            self.now_ns + ANSWER_NS,
        )
        return waiting.answer if target.life == life and target.is_running else None

    def loses(self, key: int, target: SimBroker, frame: bytes | None) -> bool:
        """Returns whether a request is lost; its `frame`, if given, may arrive later."""
        if not self._has_faults or not self.happens(self.rates.lose):
            return False
        self.note("lost request", f"{key} to {target.node_id}")
        if frame is not None and self.happens(0.5) and target.is_running:
            self._late.append((target.node_id, target.life, frame))
        return True

    def loses_answer(self, key: int, target: SimBroker) -> bool:
        """Returns whether the answer to a request is lost."""
        if not self._has_faults or not self.happens(self.rates.lose):
            return False
        self.note("lost answer", f"{key} from {target.node_id}")
        return True

    def _deliver_late(self) -> None:
        """Delivers a request whose sender has given up."""
        at = self._random.randrange(len(self._late))
        node_id, life, frame = self._late[at]
        target, key = self.brokers[node_id], int.from_bytes(frame[:2], "big")
        if not target.is_running or target.life != life:
            del self._late[at]
        elif not target.is_paused and target.takes_now(key):
            del self._late[at]
            self.note("late request", f"{key} to {node_id}")
            self.handled(target, frame)

    # -- faults

    def _fault(self) -> None:
        if not self._is_whole_again():
            assert self._torn is not None
            return self.start(self._torn)
        kind = self._random.choice(
            ("kill", "power", "pause", "resume", "resume", "cut", "isolate", "isolate", "heal",
             "heal", "heal", "expire", "start", "start", "start", "clock", "slow", "elect")
        )  # fmt: skip
        return getattr(self, f"_fault_{kind}")(self._random.choice(list(self.brokers.values())))

    def _kill_in_a_step(self, broker: SimBroker) -> None:
        if broker.is_dying:
            raise Killed
        may_die = self._has_faults and self._torn is None and self._up() > 1
        if may_die and self.happens(self.rates.kill):
            self.note("killed", f"{broker.node_id} in the middle of a step")
            broker.is_dying = True
            raise Killed

    def truncated(self, broker: SimBroker, place: Place) -> None:
        """Called when a follower has truncated its log, and has not fetched again. May kill the
        leader of a member of the ISR then: if it has cut off too much, it is elected without."""
        self.note("truncations", f"{place} of {broker.node_id}")
        row = self.partitions().get(place)
        may_die = self._has_faults and self._torn is None and self._up() > 1
        if not may_die or row is None or row.state is None:
            return
        leader = self.brokers.get(row.state.leader)
        if leader is None or broker.node_id not in row.state.isr or leader is broker:
            return
        self.counts["truncations in the ISR"] += 1
        if self.happens(self.rates.after_truncation):
            self._fault_kill(leader)

    def _up(self) -> int:
        return len(self.alive())

    def _fault_kill(self, broker: SimBroker) -> None:
        if broker.is_running and not broker.is_busy and self._up() > 1:
            self.note("killed", str(broker.node_id))
            broker.kill()

    def _fault_power(self, broker: SimBroker) -> None:
        """Cuts the power of one broker or, with log.durability=fsync, perhaps of all at once.

        With `os` all others run and are reachable, and no other fault happens until the broker has
        its records again: a second fault may lose records."""
        everyone = list(self.brokers.values())
        if self.durability == "os":
            if self._cuts or not all(self._is_steady(row) for row in everyone):
                return
            self._torn = broker
            return self._cut_power([broker])
        self._cut_power(everyone if self.happens(0.5) else [broker])
        while not self.alive():
            self._cuts.clear()
            for row in everyone:
                row.is_paused = False
                self.start(row)

    def _cut_power(self, brokers: list[SimBroker]) -> None:
        """Kills brokers, of which a random part of the unflushed bytes is lost."""
        assert not any(row.is_busy for row in brokers)
        for broker in brokers:
            if not broker.is_running:
                continue
            handles = {place: broker.table.partition(*place) for place in self.partitions()}
            floors = {
                place: handle.log.flushed_offset
                for place, handle in handles.items()
                if handle is not None and handle.log is not None
            }
            self.note("power cut", str(broker.node_id))
            broker.kill()
            for place, floor in floors.items():
                self._tear(broker.folder / f"{place[0]}-{place[1]}", floor)

    def _is_steady(self, broker: SimBroker) -> bool:
        """Returns whether a broker runs, and is in the ISR of all its partitions, whose states were
        written since it has registered."""
        if not broker.is_running or broker.is_paused:
            return False
        registered = self.server.table.find(znodes.broker_path(broker.node_id))
        if registered is None or not self.server.knows(registered.stat.ephemeral_owner):
            return False
        for row in self.partitions().values():
            if row.state is None or row.state_zxid < registered.stat.czxid:
                return False
            if broker.node_id in row.replicas and broker.node_id not in row.state.isr:
                return False
        return True

    def _is_whole_again(self) -> bool:
        if self._torn is not None and self._is_steady(self._torn):
            self._torn = None
        return self._torn is None

    def _tear(self, folder: Path, floor: int) -> None:
        """Cuts the newest segment at a random byte above the flushed end."""
        files = sorted(folder.glob("*.log"))
        if not files:
            return
        data, at = files[-1].read_bytes(), 0
        while at + BATCH_HEADER_BYTES <= len(data):
            if int.from_bytes(data[at : at + 8], "big") >= floor:
                break
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if at < len(data):
            with open(files[-1], "r+b") as file:
                file.truncate(self._random.randint(at, len(data)))

    def _fault_pause(self, broker: SimBroker) -> None:
        if broker.is_running and not broker.is_busy and not broker.is_paused and self._up() > 1:
            self.note("paused", str(broker.node_id))
            broker.is_paused = True

    def _fault_resume(self, broker: SimBroker) -> None:
        if broker.is_paused:
            self.note("resumed", str(broker.node_id))
            broker.is_paused = False

    def _fault_cut(self, broker: SimBroker) -> None:
        other = self._random.choice([0, *self.brokers])
        if other == broker.node_id:
            return
        both = self.happens(0.5)
        self.note("cut", f"{broker.node_id} - {other}, {'both' if both else 'one way'}")
        self._cuts.add((broker.node_id, other))
        if other == 0:
            broker.session.disconnect()
        elif both:
            self._cuts.add((other, broker.node_id))

    def _fault_isolate(self, _broker: SimBroker) -> None:
        """Cuts the leader of a partition from all others and from ZooKeeper, but not from the
        producers, and perhaps ends its session at once."""
        row = self._random.choice(list(self.partitions().values()))
        leader = None if row.state is None else self.brokers.get(row.state.leader)
        if leader is None or leader not in self.alive() or self._up() == 1:
            return
        self.note("isolated", str(leader.node_id))
        for other in (0, *self.brokers):
            self._cuts |= {(leader.node_id, other), (other, leader.node_id)}
        leader.session.disconnect()
        for _ in range(ISOLATED_SENDS if row.log not in self.judge.internal else 0):
            self.producers.send_to(leader, row.log, may_begin=True)
        if self.happens(0.5):
            self._fault_expire(leader)

    def _fault_slow(self, broker: SimBroker) -> None:
        if self.durability == "fsync" and not broker.is_slow:
            self.note("slow disk", str(broker.node_id))
            broker.is_slow = True

    def _fault_heal(self, _broker: SimBroker) -> None:
        for broker in self.brokers.values():
            broker.is_slow = False
        if self._cuts:
            self.note("healed")
            self._cuts.clear()

    def _fault_expire(self, broker: SimBroker) -> None:
        """Lets the server end the session of a running broker."""
        if broker.is_running and self.server.knows(broker.session.session_id):
            self.note("expired", f"session of {broker.node_id}")
            self._expiries.pop(broker.session.session_id, None)
            self.server.expire(broker.session.session_id)

    def _fault_clock(self, broker: SimBroker) -> None:
        if broker.is_running:
            jump_ms = self._random.choice((-3_600_000, 3_600_000, -1000, 1000))
            self.note("clock", f"of {broker.node_id} by {jump_ms} ms")
            self._move_clock(broker, jump_ms)

    def _move_clock(self, broker: SimBroker, jump_ms: int) -> None:
        broker.wall_offset_ms += jump_ms
        if broker.is_running:
            broker.system.move_wall_clock(jump_ms)

    def _fault_start(self, broker: SimBroker) -> None:
        self.start(broker)

    def _fault_elect(self, broker: SimBroker) -> None:
        """Elects the preferred replicas again, if this broker is the controller."""
        if broker.is_running and not broker.is_paused and not broker.is_busy:
            self.attempt(broker, lambda: self._elect(broker))

    def _elect(self, broker: SimBroker) -> None:
        check = broker.role.fence()
        if check is not None:
            self.note("preferred election")
            broker.elections.prefer(check, self.partitions())

    def start(self, broker: SimBroker) -> None:
        if broker.is_running or (broker.node_id, 0) in self._cuts:
            return
        with self._as(broker):
            try:
                broker.start()
            except MetadataError as error:
                self.note("start failed", f"{broker.node_id}: {error}")
                return
            except Killed:  # while it starts: what it had opened is closed
                broker.is_dying = False
                return
        self.note("started", str(broker.node_id))
