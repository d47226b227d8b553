"""One broker of a simulated cluster: the shipped code, composed without threads and sockets.

Metadata, controller, replicas, fetchers, ISR changes, log, the group coordinator and native
handlers are those that `barnabas start` runs (broker/stages and coordinator/coordinators.py compose
them). The loop of a thread there becomes an `Actor` here: the world runs one step of one actor at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from simulation import committers, sharers, transactions
from simulation.log_rows import Violation
from simulation.parking import Awaited, Worker, park
from simulation.zookeeper_model import Fault, Session

from barnabas.api import (
    k04_leader_and_isr,
    k05_stop_replica,
    k06_update_metadata,
    k22_init_producer_id,
    k24_add_partitions_to_txn,
    k27_write_txn_markers,
    k78_share_fetch,
    k79_share_acknowledge,
    k83_initialize_share_group_state,
    k84_read_share_group_state,
    k85_write_share_group_state,
)
from barnabas.api.call import Call
from barnabas.api.contexts import ReplicaContext, ShareContext, TransactionContext
from barnabas.api.later import Later
from barnabas.api.table import api_table
from barnabas.cext.fetch.fetch import FetchHandler, ParkedFetch
from barnabas.cext.fetch.sessions import FetchSessions
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition import group_commit
from barnabas.cext.partition.partitions import PartitionHandle, PartitionTable
from barnabas.cext.produce.produce import ParkedProduce, ProduceHandler
from barnabas.client.connection import Connection
from barnabas.client.failures import CannotConnect, ConnectionLost
from barnabas.config import BrokerConfig, DynamicConfig, TopicConfig
from barnabas.config.listeners import Listener
from barnabas.controller import channel_manager
from barnabas.controller import controller as controller_thread
from barnabas.controller.channel_manager import ControllerChannelManager
from barnabas.controller.controller import Controller
from barnabas.controller.controller_role import ClusterRole
from barnabas.controller.elections import Elections
from barnabas.controller.entity_configs import EntityConfigs
from barnabas.controller.features import Features, registered_features
from barnabas.controller.reassignments import Reassignments
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.controller.topics import TopicController
from barnabas.coordinator import journal, remote_markers, rounds, timers
from barnabas.coordinator.coordinators import Coordinators, Dependencies, coordinator_handlers
from barnabas.coordinator.journal import CoordinatorLog
from barnabas.coordinator.rounds import Rounds
from barnabas.coordinator.share import closed_connections
from barnabas.coordinator.timers import Timers
from barnabas.coordinator.transactions.producer_ids import ProducerIds
from barnabas.errors import KafkaError
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.tree import MetadataError, StoreUnavailable
from barnabas.server import broker_queues, job_threads, replica_fetchers
from barnabas.server.broker_queues import BrokerQueue, BrokerQueues
from barnabas.server.isr import IsrChanges
from barnabas.server.job_threads import JobThreads
from barnabas.server.membership import Membership
from barnabas.server.registration import claim_cluster
from barnabas.server.replica_fetchers import Brokers, FetchSettings, Listeners, ReplicaFetchers
from barnabas.server.replica_manager import ReplicaManager, deleted_logs, wanted_logs
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.log_dirs import LogDir, keep_usable, open_directories
from barnabas.storage.log_manager import LogManager
from barnabas.wire import Struct, request
from barnabas.wire.headers import (
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_request_header,
    encode_response,
)

if TYPE_CHECKING:
    from simulation.world import World

PRODUCE, FETCH = 0, 1
FROM_CONTROLLER, OF_SHARE_GROUPS = (4, 5, 6), (78, 79, 83, 84, 85)
NO_CONNECTION = SimpleNamespace(connection_id=0)
VERSIONS = {row.key: (row.version_min, row.version_max) for row in api_table(True).values()}
HANDLED = {
    row.KEY: row
    for row in (
        k04_leader_and_isr, k05_stop_replica, k06_update_metadata, k22_init_producer_id,
        k24_add_partitions_to_txn, k27_write_txn_markers, k78_share_fetch, k79_share_acknowledge,
        k83_initialize_share_group_state, k84_read_share_group_state, k85_write_share_group_state,
    )
}  # fmt: skip
SHRINK_MS, GROW_MS, CHECKPOINT_MS, TIMEOUTS_MS = 1500, 200, 5000, 1000
SETTINGS = {
    "metadata.store": "zookeeper",
    "zookeeper.connect": "model",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "0",  # the world decides when a follower asks again
    "replica.fetch.backoff.ms": "100",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.enable": "false",
    "metrics.port": "-1",
    "offsets.topic.num.partitions": str(committers.PARTITIONS),
    "transaction.state.log.num.partitions": str(transactions.PARTITIONS),
    "share.coordinator.state.topic.num.partitions": str(sharers.PARTITIONS),
    "group.share.min.record.lock.duration.ms": "2000",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.delivery.count.limit": "10",
}


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

    def __init__(self, broker: SimBroker, handle: PartitionHandle) -> None:
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

    def __init__(self, broker: SimBroker) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker.replicas, name)

    def partition(self, topic: str, index: int) -> WaitingPartition:
        return WaitingPartition(self._broker, self._broker.replicas.partition(topic, index))


class SimConnection(Connection):
    """A connection whose frames the world delivers. `port` is the id of the broker."""

    world: World
    source: SimBroker

    def __init__(self, host: str, port: int, **_options: Any) -> None:
        self.host, self.port = host, port
        self.client_id, self._correlation_id = "simulation", 0
        self.is_open, self._login = True, None
        self._login_due_s = float("inf")
        self.versions = VERSIONS
        self.source = self.world.running
        if not self.world.reaches(self.source, port):
            raise CannotConnect(f"cannot connect to broker {port}")
        self._life = self.world.brokers[port].life

    def _carry(self, frame: bytes) -> bytes:
        if not self.is_open or self.world.brokers[self.port].life != self._life:
            self.close()
            raise ConnectionLost(f"the connection to broker {self.port} is closed")
        answer = self.world.carry(self.source, self.port, frame)
        if answer is None:
            self.close()
            raise ConnectionLost(f"no answer of broker {self.port}")
        return answer

    def _exchange(self, key: int, version: int, body: Any) -> bytes:
        self._correlation_id += 1
        return self._carry(
            encode_request(key, version, self._correlation_id, self.client_id, body, framed=False)
        )

    def exchange(self, key: int, version: int, body: bytes, into: bytearray) -> memoryview:
        self._correlation_id += 1
        head = encode_request_header(key, version, self._correlation_id, self.client_id)
        answer = memoryview(self._carry(head + body))
        _, offset = decode_response_header(answer, key, version)
        return answer[offset:]

    def close(self) -> None:
        self.is_open = False

    def interrupt(self) -> None:
        self.is_open = False


@contextmanager
def without_threads() -> Iterator[None]:
    """Replaces threads and connections of the shipped modules, as a context manager."""
    replaced = [
        (channel_manager, "NamedThread", StillThread),
        (controller_thread, "NamedThread", StillThread),
        (replica_fetchers, "NamedThread", StillThread),
        (journal, "start_when_allowed", StillThread),
        (rounds, "start_when_allowed", StillThread),
        (group_commit, "NamedThread", StillThread),
        (timers, "start_when_allowed", StillThread),
        (job_threads, "NamedThread", StillThread),
        (broker_queues, "NamedThread", StillThread),
        (closed_connections, "start_when_allowed", StillThread),
        (remote_markers, "AGAIN_S", 0),
        (replica_fetchers, "Connection", SimConnection),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    for module, name, value in replaced:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


class SimBroker:
    """A broker that the world can start, kill, and start again. `life` counts its starts."""

    def __init__(self, world: World, node_id: int, folder: Path) -> None:
        self.world, self.node_id, self.folder = world, node_id, folder
        self.life = 0
        self.is_running = False
        self.is_paused = False
        self.is_busy = False  # one of its actors is in the middle of a step
        self.is_dying = False  # it is killed in the middle of a step, and takes no other any more
        self.is_slow = False  # its disk does not complete a flush
        self.actors: list[Actor] = []
        self.session: Session
        self.former: list[int] = []
        self.system: SystemCalls
        self.wall_offset_ms = 0
        self._undo = ExitStack()
        self._threads: tuple[Any, ...] = ()  # fetchers and channels
        self._of_threads: dict[Any, Actor] = {}
        self._all_actors: list[Actor] = []

    # -- start and end

    def start(self) -> None:
        """Starts the broker as the stages of `barnabas start` do. Raises MetadataError when
        ZooKeeper cannot be reached."""
        self.life += 1
        self._undo = ExitStack()
        world, undo = self.world, self._undo
        self.system = system = SystemCalls()
        system.stop_clocks(world.wall_ms + self.wall_offset_ms, world.now_ns)
        self.session = session = Session(
            world.server, self.former, partial(world.before_operation, self)
        )
        self.former.append(session.session_id)
        try:
            self._open(session, undo)
        except BaseException:
            undo.close()
            raise
        self.is_running = True

    def _open(self, tree: Session, undo: ExitStack) -> None:
        node_id, system = self.node_id, self.system
        listeners = [Listener("PLAINTEXT", "node", node_id)]
        self.config = config = BrokerConfig(
            {
                **SETTINGS,
                "node.id": str(node_id),
                "log.dirs": str(self.folder),
                "log.durability": self.world.durability,
            }
        )
        opened, _failed = open_directories([str(self.folder)], False)
        for row in opened:
            undo.callback(row.close, False)
        cluster_id = claim_cluster(tree, [], self.world.random_bytes)
        self.dynamic = dynamic = DynamicConfig(config, node_id)
        usable, _ = keep_usable(opened, lambda row: row.claim(node_id, cluster_id), False)
        membership = Membership(
            tree, node_id, config, registered_features(), lambda: listeners, system.wall_ms
        )
        self.reader = reader = ClusterStateReader(tree)
        epochs = Epochs()
        self.table = table = PartitionTable(
            system, epochs, node_id=node_id, durability=self.world.durability
        )
        usable, _ = keep_usable(usable, LogDir.begin, False)
        self.logs = logs = LogManager(usable, dynamic, system, epochs)
        self.replicas = replicas = ReplicaManager(node_id, table, logs, dynamic)
        self.checkpoints = checkpoints = CheckpointWriter(logs, replicas.high_watermark)
        replicas.before_new = checkpoints.forget_former
        undo.callback(self._close_logs)
        undo.callback(table.close)
        self.flushes = [table.add_directory(str(row.path), flush_threads=1) for row in usable]
        logs.load(wanted_logs(reader.state, node_id, dynamic), deleted_logs(reader.state))
        self.native = coordinator_handlers(config, table)
        self.produces = ProduceHandler(table, self.native.steps)
        self.produces.verifies = True
        self.fetches = FetchHandler(table, FetchSessions(100, seed=1), fetch_bytes_max=1 << 24)
        undo.callback(self.fetches.stop)
        membership.begin()
        reader.refresh_brokers()
        reader.refresh_controller()
        role = ClusterRole(tree, reader, membership, node_id)
        elections = Elections(
            tree, reader, lambda name: TopicConfig(reader.state.config("topics", name), dynamic)
        )
        check = role.fence()
        if check is not None:
            elections.run(check)
        self.fetchers = replicas.fetchers = ReplicaFetchers(
            node_id,
            table,
            Brokers(self._address, epoch=self._own_epoch),
            FetchSettings.of(dynamic),
            Listeners(truncated=self._truncated),
            system.monotonic_ns,
        )
        replicas.begin(reader)
        self.deletion = deletion = TopicDeletion(tree, reader, role, checkpoints.write_all)
        deletion.finish()
        self.reassignments = reassignments = Reassignments(tree, reader)
        self.topics = TopicController(
            tree, reader, role, dynamic, self.world.below, self.world.random_bytes,
            lambda *_: None, lambda *_: None,
        )  # fmt: skip
        self._coordinate(tree)
        self.channels = ControllerChannelManager(
            node_id, lambda broker_id: self._connect(broker_id)
        )
        self.controller = Controller(
            tree, reader, membership, role, deletion, elections, reassignments,
            self.channels, node_id, replicas.offline_replicas, lambda: True, lambda _topic: None,
            self.world.random_bytes, system.monotonic_ns,
        )  # fmt: skip
        self.elections, self.role = elections, role
        replicas.on_applied.append(self.controller.apply)
        self.controller.start()
        is_in_memory = config.log_durability == "os"
        self.isr = IsrChanges(
            table, tree, reader, node_id, self._isr_size_min if is_in_memory else None
        )
        self.context = ReplicaContext(
            node_id, lambda: reader.state, reader.apply_updates, reader.refresh_topics, replicas
        )
        periodic = [
            ("isr-shrink", self.isr.shrink, SHRINK_MS),
            ("isr-grow", self.isr.grow, GROW_MS),
            ("checkpoints", checkpoints.write_high_watermarks, CHECKPOINT_MS),
            ("timeouts", self.coordinators.transactions.abort_timed_out, TIMEOUTS_MS),
        ]
        self.actors = [
            Actor("watches", self._deliver, lambda: tree.waits),
            Actor("controller", self._control, lambda: self.controller.is_awake),
            *self._coordinator_actors(),
            Actor("isr-flush", self.isr.flush_small, lambda: self.isr._seen is not reader.state)
            if is_in_memory
            else Actor("disk", self._flush, self._is_disk_due),
            *(
                Actor(name, partial(self._periodic, task, period_ms), due_ns=self.world.now_ns)
                for name, task, period_ms in periodic
            ),
        ]
        self._threads, self._of_threads, self._all_actors = (), {}, self.actors

    def _coordinate(self, tree: Session) -> None:
        """Starts the coordinators as stages/serving.py does."""
        reader, waiting = self.reader, WaitingReplicas(self)
        features = Features(tree, self.node_id)
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
            assign=None,  # type: ignore[arg-type]  # groups have no members
            native=self.native,
            next_closed=lambda: None,
            connect=self._connect,
        )
        self.coordinators = made = Coordinators(given)
        self.groups, self.group_log = made.groups, made.group_log
        assert made._remote is not None and made._verifications is not None
        self._queues: tuple[BrokerQueues[Any], ...] = (
            made._remote._queues, made._verifications._queues
        )  # fmt: skip
        if self.world.sharers is not None:
            self.share = made.share()
            assert self.share._remote is not None
            self._queues += (self.share._remote._queues,)
        self.share_context = ShareContext(lambda: reader.state, made.share)
        self.transaction_context = TransactionContext(
            lambda: reader.state, waiting, made.groups, producer_ids, made.transactions,
            made.transaction_administration, made.markers, self.system.wall_ms,
        )  # type: ignore[arg-type]  # fmt: skip
        made.follow()

    def _coordinator_actors(self) -> list[Actor]:
        made = self.coordinators
        assert made._verifications is not None
        logs = (made.group_log, made.transaction_log, made.share_log)
        jobs = (made._completions, made._verifications._threads)
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

    def _send_rows(self, queue: BrokerQueue) -> None:
        rows = queue._taken()
        assert rows is not None
        queue._send(queue, queue.connection, rows)

    def committed(self, group: str) -> int | None:
        """Returns the committed offset of a group, 0 without one; None when this broker does not
        coordinate it, or has not loaded it yet."""
        try:
            ((_topic, rows),) = self.groups.fetch(group, [(self.world.TOPICS[0], [0])], False)
        except KafkaError:
            return None
        return 0 if rows[0][1] is None else rows[0][1].offset

    def _close_logs(self) -> None:
        for row in self.logs.logs():
            row.handle.close(clean=False)

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
        self.session.disconnect()
        self._undo.close()

    # -- what other code of the broker asks

    def _address(self, broker_id: int) -> tuple[str, int] | None:
        found = self.reader.state.brokers.get(broker_id)
        return None if found is None else ("node", broker_id)

    def _own_epoch(self) -> int:
        found = self.reader.state.brokers.get(self.node_id)
        return -1 if found is None else found.epoch

    def _truncated(self, topic: str, index: int) -> None:
        self.checkpoints.write_all()
        self.world.truncated(self, (topic, index))

    def _connect(self, broker_id: int) -> Connection:
        if self._address(broker_id) is None:
            raise CannotConnect(f"broker {broker_id} is not registered")
        return SimConnection("node", broker_id)

    # -- actors

    def all_actors(self) -> list[Actor]:
        """Returns all actors, including those of threads that come and go: fetchers and
        channels."""
        threads = (
            *self.fetchers._fetchers.values(),
            *self.channels._channels.values(),
            *(row for queues in self._queues for row in queues._queues.values()),
        )
        if threads != self._threads:
            self._threads = threads
            self._of_threads = {
                row: self._of_threads.get(row) or self._actor_of(row) for row in threads
            }
            self._all_actors = [*self.actors, *self._of_threads.values()]
        return self._all_actors

    def _actor_of(self, thread: Any) -> Actor:
        if isinstance(thread, channel_manager._Channel):
            return Actor("channel", partial(self._send, thread), lambda: thread.is_awake)
        if isinstance(thread, BrokerQueue):
            step = partial(self._send_rows, thread)
            return Actor("queue", step, lambda: bool(thread._waiting), may_park=True)
        now_ns = self.world.now_ns
        return Actor("fetcher", partial(self._fetch, thread), lambda: thread.is_awake, now_ns)

    def ready_actors(self, now_ns: int) -> list[Actor]:
        return [row for row in self.all_actors() if row.is_ready(now_ns)]

    def _deliver(self) -> None:
        try:
            self.session.deliver()
        except StoreUnavailable:
            pass  # as metadata/watches.py: a listener reads all again
        except Violation:
            raise
        except Exception as error:  # which metadata/watches.py logs with its traceback
            raise Violation(f"a watch of broker {self.node_id} failed: {error}") from error

    def _control(self) -> float | None:
        return None if self.controller.step() else controller_thread.AGAIN_S

    def _periodic(self, task: Callable[[], object], period_ms: int) -> float:
        with suppress(MetadataError):  # as server/background.py: it runs again after its period
            task()
        return period_ms / 1000

    def _is_disk_due(self) -> bool:
        return not self.is_slow and self.flushes[0].counters()["depth"] > 0

    def _flush(self) -> None:
        """Flushes one log, as a flush thread does."""
        self.flushes[0].flush_next()

    def _isr_size_min(self, topic: str) -> int:
        return self.replicas.topic_config(topic).integer("min.insync.replicas")

    def _fetch(self, fetcher: Any) -> float:
        fetcher._changed.clear()
        return max(fetcher.step(), 0.001)

    def _send(self, channel: Any) -> float | None:
        return None if channel.step() else channel_manager.AGAIN_S

    # -- requests

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
        module, asked = HANDLED[key], request(key).decode(frame, version, at)
        context: Any = self.transaction_context
        if key in FROM_CONTROLLER:
            context = self.context
        elif key in OF_SHARE_GROUPS:
            context = self.share_context
        call = Call(context, key, version, connection)

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


def fault_of(numbers: Callable[[], float], probability: float) -> Fault:
    """Returns a fault for one operation on ZooKeeper with the given probability, else
    Fault.NONE."""
    if numbers() >= probability:
        return Fault.NONE
    return (Fault.UNREACHABLE, Fault.LOST_REQUEST, Fault.LOST_ANSWER)[int(numbers() * 3)]
