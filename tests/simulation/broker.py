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
from typing import TYPE_CHECKING, Any

from simulation import committers
from simulation.zookeeper_model import Fault, Session

from barnabas.api import k04_leader_and_isr, k05_stop_replica, k06_update_metadata
from barnabas.api.call import Call
from barnabas.api.contexts import ReplicaContext
from barnabas.api.table import api_table
from barnabas.cext.fetch.fetch import FetchHandler, ParkedFetch
from barnabas.cext.fetch.sessions import FetchSessions
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition import group_commit
from barnabas.cext.partition.partitions import PartitionTable
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
from barnabas.controller.features import registered_features
from barnabas.controller.internal_topics import internal_topic
from barnabas.controller.reassignments import Reassignments
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.controller.topics import TopicController
from barnabas.coordinator import journal, rounds
from barnabas.coordinator.coordinators import coordinator_handlers
from barnabas.coordinator.groups.coordinator import GroupCoordinator, GroupSettings
from barnabas.coordinator.journal import CoordinatorLog
from barnabas.errors import KafkaError
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.tree import MetadataError, StoreUnavailable
from barnabas.server import replica_fetchers
from barnabas.server.isr import IsrChanges
from barnabas.server.membership import Membership
from barnabas.server.registration import claim_cluster
from barnabas.server.replica_fetchers import Brokers, FetchSettings, Listeners, ReplicaFetchers
from barnabas.server.replica_manager import ReplicaManager, deleted_logs, wanted_logs
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.log_dirs import LogDir, keep_usable, open_directories
from barnabas.storage.log_manager import LogManager
from barnabas.wire import request
from barnabas.wire.headers import (
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_request_header,
    encode_response,
)
from barnabas.wire.internal import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from simulation.world import World

PRODUCE, FETCH = 0, 1
VERSIONS = {row.key: (row.version_min, row.version_max) for row in api_table(True).values()}
HANDLED = {row.KEY: row for row in (k04_leader_and_isr, k05_stop_replica, k06_update_metadata)}
SHRINK_MS, GROW_MS, CHECKPOINT_MS = 1500, 200, 5000
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
    returns whether it has work now; `step` runs it and returns the seconds until it runs again."""

    name: str
    step: Callable[[], float | None]
    wakes: Callable[[], bool] = lambda: False
    due_ns: int | None = None


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
        (journal, "NamedThread", StillThread),
        (rounds, "NamedThread", StillThread),
        (group_commit, "NamedThread", StillThread),
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
        undo.callback(self._close_logs)
        undo.callback(table.close)
        self.flushes = [table.add_directory(str(row.path), flush_threads=1) for row in usable]
        logs.load(wanted_logs(reader.state, node_id, dynamic), deleted_logs(reader.state))
        self.produces = ProduceHandler(table)
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
        self._coordinate()
        self.deletion = deletion = TopicDeletion(tree, reader, role, checkpoints.write_all)
        deletion.finish()
        self.reassignments = reassignments = Reassignments(tree, reader)
        self.topics = TopicController(
            tree, reader, role, dynamic, self.world.below, self.world.random_bytes,
            lambda *_: None, lambda *_: None,
        )  # fmt: skip
        self.channels = ControllerChannelManager(
            node_id, lambda broker_id: self._connect(broker_id)
        )
        self.controller = Controller(
            tree, reader, membership, role, deletion, elections, reassignments,
            self.channels, node_id, replicas.offline_replicas, lambda: True, lambda _topic: None,
            self.world.random_bytes, system.wall_ms,
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
        ]
        self.actors = [
            Actor("watches", self._deliver, lambda: tree.waits),
            Actor("controller", self._control, lambda: self.controller.is_awake),
            Actor("loader", self._load, lambda: self.group_log._loader is not None),
            Actor("isr-flush", self.isr.flush_small, lambda: self.isr._seen is not reader.state)
            if is_in_memory
            else Actor("disk", self._flush, self._is_disk_due),
            *(
                Actor(name, partial(self._periodic, task, period_ms), due_ns=self.world.now_ns)
                for name, task, period_ms in periodic
            ),
        ]
        self._threads, self._of_threads, self._all_actors = (), {}, self.actors

    def _coordinate(self) -> None:
        """Starts the coordinator of groups, as coordinator/coordinators.py does."""
        native, reader = coordinator_handlers(self.config, self.table), self.reader
        asked = internal_topic(CONSUMER_OFFSETS, self.dynamic, True)
        assert asked is not None
        self.commits = native.commits
        self.group_log = CoordinatorLog(
            CONSUMER_OFFSETS,
            node_id=self.node_id,
            replicas=self.replicas,
            create=lambda: self.topics.create(asked, is_own=True),
            wall_ms=self.system.wall_ms,
            commit_timeout_ms=lambda: self.dynamic.integer("offsets.commit.timeout.ms"),
            states=native.group_partitions,
        )
        self.groups = GroupCoordinator(
            journal=self.group_log,
            timers=None,  # type: ignore[arg-type]  # groups without members have none
            wall_ms=self.system.wall_ms,
            new_id=lambda: self.world.random_bytes(16).hex(),
            settings=GroupSettings.of(self.config.integer),
            table=native.groups,
            native=native.commits,
        )
        self.group_log.attach(self.groups)
        self.replicas.on_applied.append(self.group_log.apply)
        self.group_log.apply(reader.state)

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
        threads = (*self.fetchers._fetchers.values(), *self.channels._channels.values())
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
        now_ns = self.world.now_ns
        return Actor("fetcher", partial(self._fetch, thread), lambda: thread.is_awake, now_ns)

    def ready_actors(self, now_ns: int) -> list[Actor]:
        return [
            row
            for row in self.all_actors()
            if (row.due_ns is not None and row.due_ns <= now_ns) or row.wakes()
        ]

    def _deliver(self) -> None:
        with suppress(StoreUnavailable):  # as metadata/watches.py: a listener reads all again
            self.session.deliver()

    def _control(self) -> float | None:
        return None if self.controller.step() else controller_thread.AGAIN_S

    def _load(self) -> None:
        """Loads the partitions of __consumer_offsets that this broker leads since."""
        self.group_log._load_all()

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

    def handle(self, frame: bytes) -> bytes | ParkedProduce | None:
        """Returns the answer to a frame without its size, or the request when it waits for
        followers."""
        key = int.from_bytes(frame[:2], "big")
        self.world.touched.add(self)
        if key == PRODUCE:
            answer = self.produces.handle_frame(frame)
        elif key == FETCH:
            answer = self.fetches.handle_frame(frame)
            if isinstance(answer, ParkedFetch):
                answer = answer.resume(expired=True)
        else:
            return self._handled(frame)
        return answer[4:] if isinstance(answer, bytes) else answer

    def _handled(self, frame: bytes) -> bytes:
        header, at = decode_request_header(frame)
        key, version = header.requestApiKey, header.requestApiVersion
        module, asked = HANDLED[key], request(key).decode(frame, version, at)
        call = Call(self.context, key, version, None)  # type: ignore[arg-type]
        self.is_busy = True
        try:
            answer = module.handle(asked, call)
        except KafkaError as error:
            answer = module.refuse(asked, error.code, call)
        finally:
            self.is_busy = False
        return encode_response(key, version, header.correlationId, answer, framed=False)


def fault_of(numbers: Callable[[], float], probability: float) -> Fault:
    """Returns a fault for one operation on ZooKeeper with the given probability, else
    Fault.NONE."""
    if numbers() >= probability:
        return Fault.NONE
    return (Fault.UNREACHABLE, Fault.LOST_REQUEST, Fault.LOST_ANSWER)[int(numbers() * 3)]
