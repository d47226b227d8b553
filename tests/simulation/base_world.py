"""What all worlds of the simulation share: chance, a clock, the actors of brokers, clients.

A world runs in one thread. It runs one step of one actor after the other (node.py); every choice
comes from one random number generator, so a seed repeats exactly. world.py has a cluster,
one_node.py a single broker on a simulated disk.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, TypeVar

from simulation.clients import Producers
from simulation.committers import Committers
from simulation.judge import Judge, Log, Place
from simulation.log_rows import Violation
from simulation.node import NO_CONNECTION, Actor, SimNode
from simulation.parking import Awaited, Killed
from simulation.readers import Reader
from simulation.sharers import Sharers
from simulation.transactions import Transactions

from barnabas.errors import KafkaError
from barnabas.metadata.tree import MetadataError
from barnabas.metadata.znodes import PartitionState

T = TypeVar("T")

TOPIC = "records"
RECREATED = "recreated"  # a topic that comes and goes
BEGIN_NS = 10**12
BEGIN_MS = 1_795_000_000_000
SETTLE_NS = 60 * 10**9


class _Surprise(logging.Handler):
    """Fails when the shipped code logs an exception that it did not expect."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            raise Violation(record.getMessage()) from record.exc_info[1]

    def handleError(self, record: logging.LogRecord) -> None:
        raise


@contextmanager
def no_surprise() -> Iterator[None]:
    handler, log = _Surprise(), logging.getLogger("barnabas")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class Known(NamedTuple):
    """A partition as the tree has it."""

    log: Log
    replicas: tuple[int, ...]
    origin: tuple[int, ...]  # the replicas without those that a reassignment adds
    is_moving: bool
    state: PartitionState | None
    state_zxid: int


class BaseWorld:
    """A world of brokers and clients."""

    TOPICS: ClassVar = (TOPIC, RECREATED)  # to which producers send
    may_have_gaps: ClassVar = False  # a log's end may lack offsets that were not acknowledged
    administrator: Any
    logs: frozenset[Log]  # of the partitions

    def __init__(self, seed: int, durability: str, has_share_group: bool) -> None:
        self.seed, self.durability = seed, durability
        self._random = random.Random(seed)
        self.now_ns, self.wall_ms = BEGIN_NS, BEGIN_MS
        self.counts: Counter[str] = Counter()
        self.brokers: Mapping[int, Any] = {}
        self.judge = Judge(self)
        self.producers, self.committers = Producers(self), Committers(self, TOPIC)
        self.transactions, self.reader = Transactions(self, TOPIC), Reader(self, TOPIC)
        self.sharers = Sharers(self, TOPIC) if has_share_group else None
        self.running: Any = None  # the broker whose actor runs
        self.touched: set[Any] = set()  # brokers that have done something in this step
        self.logs = frozenset()
        self.trace: list[str] = []

    # -- what each kind of world has

    def partitions(self) -> dict[Place, Known]:
        """Returns the partitions of all topics, as the tree has them now."""
        raise NotImplementedError

    def loses(self, key: int, target: Any, frame: bytes | None) -> bool:
        """Returns whether a request is lost; its `frame`, if given, may arrive later."""
        raise NotImplementedError

    def loses_answer(self, key: int, target: Any) -> bool:
        """Returns whether the answer to a request is lost."""
        raise NotImplementedError

    def step(self, produces: bool = True) -> None:
        """Runs one step. `produces`: clients begin new work."""
        raise NotImplementedError

    def start(self, broker: Any) -> None:
        """Starts a broker that does not run."""
        raise NotImplementedError

    def end_of(self, _topic: str, _partition: int) -> int:
        """Returns where a log of a coordinator ends; 0 where a fault takes nothing of it."""
        return 0

    def may_be_offline(self, _place: Place) -> bool:
        """Returns whether the disk of a partition may have failed."""
        return False

    # -- chance

    def random_bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)

    def choice(self, rows: Sequence[T]) -> T:
        return self._random.choice(rows)

    def happens(self, probability: float) -> bool:
        return self._random.random() < probability

    def note(self, kind: str, text: str = "") -> None:
        self.counts[kind] += 1
        self.trace.append(f"{(self.now_ns - BEGIN_NS) / 1e9:9.3f} {kind} {text}")

    # -- time

    def _pass_time(self, ns: int) -> None:
        ns -= ns % 1_000_000 if ns >= 1_000_000 else ns
        if ns <= 0:
            return
        self.now_ns += ns
        self.wall_ms += ns // 1_000_000
        for broker in self.brokers.values():
            if broker.is_running:
                broker.system.move_monotonic(ns // 1_000_000)
                broker.system.move_wall_clock(ns // 1_000_000)
        self.time_passed()

    def _pass_time_to_next(self) -> None:
        later = [one for one in self.due_ns() if one > self.now_ns]
        step_ns = min(later) - self.now_ns if later else 100_000_000
        self._pass_time(min(max(step_ns, 1_000_000) + 999_999, 500_000_000))

    def due_ns(self) -> list[int]:
        """Returns when something is due by itself."""
        return [
            actor.due_ns
            for broker in self.brokers.values()
            if broker.is_running and not broker.is_paused
            for actor in broker.all_actors()
            if actor.due_ns is not None
        ]

    def time_passed(self) -> None:
        """Called when time has passed."""

    # -- steps

    def _ready(self) -> list[tuple[SimNode, Actor]]:
        return [
            (broker, actor)
            for broker in self.brokers.values()
            if broker.is_running and not broker.is_paused and not broker.is_busy
            for actor in broker.ready_actors(self.now_ns)
        ]

    def _run_one(self) -> bool:
        ready = self._ready()
        if not ready:
            return False
        self._run_actor(*self._random.choice(ready))
        return True

    def _run_actor(self, broker: SimNode, actor: Actor) -> None:
        with self._as(broker):
            life = broker.life
            broker.is_busy, actor.due_ns = True, None
            try:
                again_s = actor.run()
            except Killed:
                again_s = None
                broker.kill()
            finally:
                broker.is_busy = False
            if broker.life == life and again_s is not None:
                actor.due_ns = self.now_ns + int(again_s * 1e9)
            self.counts["steps"] += 1

    def attempt(self, broker: SimNode, call: Callable[[], T]) -> T | None:
        """Runs a request of an administrator on a broker, and returns its result; None when it has
        failed, or the broker was killed."""
        with self._as(broker):
            broker.is_busy = True
            try:
                return call()
            except (MetadataError, KafkaError) as error:
                self.note("refused", f"a request to {broker.node_id}: {error}")
            except Killed:
                broker.kill()
            finally:
                broker.is_busy = False
        return None

    @contextmanager
    def _as(self, broker: SimNode) -> Any:
        before, self.running = self.running, broker
        self.touched.add(broker)
        try:
            yield
        finally:
            self.running = before

    def leads(self, broker: SimNode, log: Log) -> bool:
        """Returns whether a broker leads a partition, in the epoch that the tree has now."""
        for place, row in self.partitions().items():
            if row.log == log:
                handle = broker.table.partition(*place)
                return (
                    handle is not None
                    and row.state is not None
                    and handle.leader_id == broker.node_id == row.state.leader
                    and handle.leader_epoch == row.state.leader_epoch
                )
        return False

    def handled(
        self, target: SimNode, frame: bytes, connection: Any = NO_CONNECTION
    ) -> bytes | Awaited | None:
        """Returns the answer of a broker, or None when it is killed or cannot answer."""
        with self._as(target):
            try:
                answer = target.handle(frame, connection)
                return answer if isinstance(answer, (bytes, Awaited)) else None
            except Killed:
                target.kill()
            except MetadataError as error:
                self.note("refused", f"a request to {target.node_id}: {error}")
        return None

    def alive(self) -> list[SimNode]:
        """Returns the brokers that run; at least one does."""
        return [row for row in self.brokers.values() if row.is_running and not row.is_paused]

    def lost(self, broker: SimNode) -> None:
        """Drops the requests that wait at a broker which is killed, before its logs are closed."""
        self.producers.lost(broker)
        self.committers.lost(broker)
        self.transactions.lost(broker)
        if self.sharers is not None:
            self.sharers.lost(broker)

    def _described(self) -> str:
        rows = []
        for broker in self.brokers.values():
            for place in self.partitions():
                found = broker.reader.state.partition(*place) if broker.is_running else None
                handle = broker.table.partition(*place) if broker.is_running else None
                if found is None or handle is None or handle.log is None:
                    rows.append(f"{broker.node_id}: {place} unknown")
                    continue
                rows.append(
                    f"{broker.node_id}: {place} {found.state} hw {handle.high_watermark} end"
                    f" {handle.log.end_offset} leader {handle.leader_id}"
                )
        return "; ".join(rows)

    def until(self, condition: Callable[[], bool], why: str) -> None:
        """Runs steps, and lets time pass, until a condition holds."""
        end_ns = self.now_ns + SETTLE_NS
        while not condition():
            if self.now_ns > end_ns:
                more = "" if self.sharers is None else self.sharers.described()
                raise Violation(f"{why}: {self._described()} {more}")
            for broker in self.brokers.values():
                if not broker.is_running:
                    self.start(broker)
            self.step(produces=False)
