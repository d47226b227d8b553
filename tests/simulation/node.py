"""One broker of a simulation: the shipped code, composed without threads and sockets.

The loop of a thread becomes an `Actor` here: a world (base_world.py) runs one step of one actor at
a time. broker.py has the broker of a cluster, single_node.py the one with an embedded store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from simulation import committers, sharers, transactions
from simulation.parking import Awaited, Worker, park

from barnabas.api import k22_init_producer_id, k78_share_fetch, k79_share_acknowledge
from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext, TransactionContext
from barnabas.api.later import Later
from barnabas.cext.fetch.fetch import ParkedFetch
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition import group_commit
from barnabas.cext.partition.partitions import PartitionHandle
from barnabas.cext.produce.produce import ParkedProduce
from barnabas.client.connection import Connection
from barnabas.controller.entity_configs import EntityConfigs
from barnabas.controller.features import Features
from barnabas.coordinator import journal, rounds, timers
from barnabas.coordinator.coordinators import Coordinators, Dependencies
from barnabas.coordinator.journal import CoordinatorLog
from barnabas.coordinator.rounds import Rounds
from barnabas.coordinator.share import closed_connections
from barnabas.coordinator.timers import Timers
from barnabas.coordinator.transactions.producer_ids import ProducerIds
from barnabas.errors import KafkaError
from barnabas.metadata.tree import MetadataError, MetadataTree
from barnabas.server import job_threads
from barnabas.server.job_threads import JobThreads
from barnabas.wire import Struct, request
from barnabas.wire.headers import decode_request_header, encode_response

if TYPE_CHECKING:
    pass

PRODUCE, FETCH = 0, 1
NO_CONNECTION = SimpleNamespace(connection_id=0)
OF_SHARE_GROUPS = (78, 79, 83, 84, 85)
HANDLED: dict[int, Any] = {
    row.KEY: row for row in (k22_init_producer_id, k78_share_fetch, k79_share_acknowledge)
}
SETTINGS = {
    "num.recovery.threads.per.data.dir": "1",
    "metrics.port": "-1",
    "offsets.topic.num.partitions": str(committers.PARTITIONS),
    "transaction.state.log.num.partitions": str(transactions.PARTITIONS),
    "share.coordinator.state.topic.num.partitions": str(sharers.PARTITIONS),
    "group.share.min.record.lock.duration.ms": "2000",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.delivery.count.limit": "10",
}
Replacement = tuple[Any, str, Any]  # in a module, of this name, by this


class StillThread:
    """Takes the place of NamedThread, but runs nothing: the world runs the steps of its object."""

    def __init__(self, target: Callable[[], object], name: str, daemon: bool = True) -> None:
        self.owner: Any = target.__self__  # type: ignore[attr-defined]
        self.name = name

    def start(self) -> None:
        pass

    def is_alive(self) -> bool:
        return False

    def join(self, timeout_s: float | None = None) -> None:
        pass


@dataclass(slots=True)
class Actor:
    """The work of one thread. `due` is the time at which it runs by itself (monotonic ns), `wakes`
    returns whether it has work now; `step` runs it and returns the seconds until it runs again.
    `may_park`: the thread may wait in the middle of a step; `worker` is set while it does."""

    name: str
    step: Callable[[], float | None]
    wakes: Callable[[], bool] = lambda: False
    due_ns: int | None = None
    may_park: bool = False
    worker: Worker | None = None

    def is_ready(self, now_ns: int) -> bool:
        worker, due_ns = self.worker, self.due_ns
        if worker is not None:
            return worker.is_ready() or worker.until_ns <= now_ns
        return self.wakes() if due_ns is None or due_ns > now_ns else True

    def run(self) -> float | None:
        """Runs a step, or the rest of one, until it ends or parks."""
        if not self.may_park:
            return self.step()
        worker, self.worker = self.worker or Worker(self.step), None
        again_s = worker.go_on()
        self.worker = None if worker.dead else worker
        return again_s if worker.dead else None


class WaitingPartition:
    """A partition whose `commit` parks the calling worker."""

    def __init__(self, broker: SimNode, handle: PartitionHandle) -> None:
        self._broker, self._handle = broker, handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def commit(self, timeout_ms: int, leader_epoch: int = -1, offset: int = -1) -> bool:
        handle, broker = self._handle, self._broker
        if handle.log is None:
            return False
        epoch = handle.leader_epoch if leader_epoch < 0 else leader_epoch
        end = handle.log.end_offset if offset < 0 else offset

        def is_decided() -> bool:
            is_led = handle.alive and handle.leader_id == broker.node_id and not handle.offline
            # A commit that does not succeed waits, even with a timeout of 0.
            return not is_led or (handle.high_watermark >= end and handle.commit(0, epoch, end))

        handle.commit(0, epoch, end)  # with log.durability=fsync it asks for a flush
        if not is_decided():
            park(is_decided, broker.world.now_ns + timeout_ms * 1_000_000)
        return handle.commit(0, epoch, end)


class WaitingReplicas:
    """The replica manager as coordinators use it: commits of its partitions park."""

    def __init__(self, broker: SimNode) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker.replicas, name)

    def partition(self, topic: str, index: int) -> WaitingPartition:
        return WaitingPartition(self._broker, self._broker.replicas.partition(topic, index))


THREADS: list[Replacement] = [
    (journal, "start_when_allowed", StillThread),
    (rounds, "start_when_allowed", StillThread),
    (group_commit, "NamedThread", StillThread),
    (timers, "start_when_allowed", StillThread),
    (job_threads, "NamedThread", StillThread),
    (closed_connections, "start_when_allowed", StillThread),
]


@contextmanager
def replaced(replacements: Iterable[Replacement]) -> Iterator[None]:
    """Replaces names of the shipped modules, as a context manager."""
    rows = list(replacements)
    before = [(module, name, getattr(module, name)) for module, name, _ in rows]
    for module, name, value in rows:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


class SimNode:
    """A broker that its world can start, kill, and start again. `life` counts its starts.
    `handled`: the modules that handle requests, by API key."""

    handled: ClassVar = HANDLED

    def __init__(self, world: Any, node_id: int, folder: Path) -> None:
        self.world, self.node_id, self.folder = world, node_id, folder
        self.folders = [folder]  # the log directories
        self.life = 0
        self.is_running = False
        self.is_paused = False
        self.is_busy = False  # one of its actors is in the middle of a step
        self.is_dying = False  # it is killed in the middle of a step, and takes no other any more
        self.is_slow = False  # its disk does not complete a flush
        self.actors: list[Actor] = []
        self.system: SystemCalls
        self.wall_offset_ms = 0
        self._undo = ExitStack()

    def start(self) -> None:
        """Starts the broker as the stages of `barnabas start` do. Raises MetadataError when its
        store cannot be reached."""
        self.life += 1
        self._undo = undo = ExitStack()
        self.system = system = SystemCalls()
        system.stop_clocks(self.world.wall_ms + self.wall_offset_ms, self.world.now_ns)
        try:
            self._open(undo)
        except BaseException:
            undo.close()
            raise
        self.is_running = True

    def _open(self, undo: ExitStack) -> None:
        raise NotImplementedError

    def _coordinate(
        self,
        tree: MetadataTree,
        connect: Callable[[int], Connection] | None,
        was_clean: bool,
        assign: Any = None,
    ) -> None:
        """Starts the coordinators as stages/serving.py does. `connect`: to another broker; None:
        there is none. `was_clean`: the last stop. `assign` of the plugins; None: groups have no
        members."""
        reader, waiting = self.reader, WaitingReplicas(self)
        self.features = features = Features(tree, self.node_id)
        features.apply(reader.state)
        self.replicas.on_applied.append(features.apply)
        clock = SimpleNamespace(monotonic_ns=self.system.monotonic_ns, on_move=[])
        producer_ids = ProducerIds(tree, self.node_id)
        self.timers = Timers(clock)
        given = Dependencies(
            node_id=self.node_id,
            config=self.config,
            dynamic=self.dynamic,
            system=self.system,
            timers=self.timers,
            table=self.table,
            reader=reader,
            replicas=waiting,  # type: ignore[arg-type]
            topics=self.topics,
            features=features,
            entities=EntityConfigs(tree, reader, self.dynamic),
            producer_ids=producer_ids,
            assign=assign,
            native=self.native,
            next_closed=lambda: None,
            connect=connect,
            was_clean=was_clean,
        )
        self.coordinators = made = Coordinators(given)
        self.groups, self.group_log = made.groups, made.group_log
        if self.world.sharers is not None:
            self.share = made.share()
        self.share_context = ShareContext(lambda: reader.state, made.share)
        self.transaction_context = TransactionContext(
            lambda: reader.state, waiting, made.groups, producer_ids, made.transactions,
            made.transaction_administration, made.markers, self.system.wall_ms,
        )  # type: ignore[arg-type]  # fmt: skip
        made.follow()

    def _coordinator_actors(self) -> list[Actor]:
        made = self.coordinators
        logs = (made.group_log, made.transaction_log, made.share_log)
        jobs = [made._completions]
        if made._verifications is not None:
            jobs.append(made._verifications._threads)
        return [
            *(
                Actor("loader", row._load_all, partial(_has_to_load, row), may_park=True)
                for row in logs
            ),
            *(self._rounds_actor(row._rounds) for row in (*logs, made.markers)),
            *(Actor("jobs", partial(_run_job, row), partial(_has_jobs, row)) for row in jobs),
            Actor("timers", self._run_timer, self._is_timer_due),
        ]

    def _rounds_actor(self, rounds: Rounds) -> Actor:
        def step() -> float | None:
            rounds.run_here()
            return rounds._next_s

        return Actor("round", step, lambda: rounds._asked, may_park=True)

    def _is_timer_due(self) -> bool:
        now_ms = self.timers.now_ms()
        return any(row.call is not None and row.at_ms <= now_ms for row in self.timers._heap)

    def _run_timer(self) -> None:
        call = self.timers._next_due()
        assert call is not None
        call()

    def committed(self, group: str) -> int | None:
        """Returns the committed offset of a group, 0 without one; None when this broker does not
        coordinate it, or has not loaded it yet."""
        try:
            ((_topic, rows),) = self.groups.fetch(group, [(self.world.TOPICS[0], [0])], False)
        except KafkaError:
            return None
        return 0 if rows[0][1] is None else rows[0][1].offset

    def kill(self) -> None:
        """Kills the broker as kill -9 does: written bytes stay, and the server ends the session
        later."""
        assert self.is_running
        self.is_running = self.is_paused = self.is_dying = False
        for actor in self.all_actors():
            if actor.worker is not None:
                actor.worker.kill()
        self.world.lost(self)
        self.actors = []
        self._undo.close()

    def all_actors(self) -> list[Actor]:
        return self.actors

    def _close_logs(self) -> None:
        for row in self.logs.logs():
            row.handle.close(clean=False)

    def ready_actors(self, now_ns: int) -> list[Actor]:
        return [row for row in self.all_actors() if row.is_ready(now_ns)]

    def _periodic(self, task: Callable[[], object], period_ms: int) -> float:
        with suppress(MetadataError):  # as server/background.py: it runs again after its period
            task()
        return period_ms / 1000

    def _is_disk_due(self) -> bool:
        return not self.is_slow and self.flushes[0].counters()["depth"] > 0

    def _flush(self) -> None:
        """Flushes one log, as a flush thread does."""
        self.flushes[0].flush_next()

    def context_of(self, key: int) -> Any:
        """Returns what the handler of an API key may use."""
        return self.share_context if key in OF_SHARE_GROUPS else self.transaction_context

    def takes_now(self, key: int) -> bool:
        """Returns whether the broker can handle a request now. Handlers in Python wait while
        another thread of this broker is in the middle of a step; native handlers never wait for
        that."""
        return key in (PRODUCE, FETCH) or not self.is_busy

    def handle(
        self, frame: bytes, connection: Any = NO_CONNECTION
    ) -> bytes | ParkedProduce | Awaited | None:
        """Returns the answer to a frame without its size, or the request when it waits for
        followers. `connection`: that of a client which says when it closes."""
        key = int.from_bytes(frame[:2], "big")
        self.world.touched.add(self)
        if key == PRODUCE:
            answer = self.produces.handle_frame(frame)
        elif key == FETCH:
            answer = self.fetches.handle_frame(frame)
            if isinstance(answer, ParkedFetch):
                answer = answer.resume(expired=True)
        else:
            return self._handled(frame, connection)
        return answer[4:] if isinstance(answer, bytes) else answer

    def _handled(self, frame: bytes, connection: Any) -> bytes | Awaited:
        header, at = decode_request_header(frame)
        key, version = header.requestApiKey, header.requestApiVersion
        module, asked = self.handled[key], request(key).decode(frame, version, at)
        call = Call(self.context_of(key), key, version, connection)

        def encoded(answer: Struct | KafkaError) -> bytes:
            if isinstance(answer, KafkaError):
                answer = module.refuse(asked, answer.code, call)
            return encode_response(key, version, header.correlationId, answer, framed=False)

        self.is_busy = True
        try:
            answer = module.handle(asked, call)
        except KafkaError as error:
            answer = error
        finally:
            self.is_busy = False
        return Awaited(answer, encoded) if isinstance(answer, Later) else encoded(answer)


def _has_to_load(log: CoordinatorLog) -> bool:
    return log._loader is not None


def _has_jobs(jobs: JobThreads) -> bool:
    return bool(jobs._queue.counters()["depth"])  # type: ignore[attr-defined]


def _run_job(jobs: JobThreads) -> None:
    jobs._carried_out()
