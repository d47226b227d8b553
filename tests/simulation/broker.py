"""One broker of a simulated cluster: the shipped code, composed without threads and sockets.

Metadata, controller, replicas, fetchers, ISR changes, log, the group coordinator and native
handlers are those that `barnabas start` runs (broker/stages and coordinator/coordinators.py compose
them). The loop of a thread there becomes an `Actor` here: the world runs one step of one actor at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from simulation import node
from simulation.log_rows import Violation
from simulation.node import Actor, SimNode, StillThread, replaced
from simulation.zookeeper_model import Fault, Session

from barnabas.api import (
    k04_leader_and_isr,
    k05_stop_replica,
    k06_update_metadata,
    k24_add_partitions_to_txn,
    k27_write_txn_markers,
    k83_initialize_share_group_state,
    k84_read_share_group_state,
    k85_write_share_group_state,
)
from barnabas.api.contexts import ReplicaContext
from barnabas.api.table import api_table
from barnabas.cext.fetch.fetch import FetchHandler
from barnabas.cext.fetch.sessions import FetchSessions
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.produce.produce import ProduceHandler
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
from barnabas.controller.reassignments import Reassignments
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.controller.topics import TopicController
from barnabas.coordinator import remote_markers
from barnabas.coordinator.coordinators import coordinator_handlers
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.tree import StoreUnavailable
from barnabas.server import broker_queues, replica_fetchers
from barnabas.server.broker_queues import BrokerQueue, BrokerQueues
from barnabas.server.isr import IsrChanges
from barnabas.server.membership import Membership
from barnabas.server.registration import claim_cluster
from barnabas.server.replica_fetchers import Brokers, FetchSettings, Listeners, ReplicaFetchers
from barnabas.server.replica_manager import ReplicaManager, deleted_logs, wanted_logs
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.log_dirs import LogDir, keep_usable, open_directories
from barnabas.storage.log_manager import LogManager
from barnabas.wire.headers import (
    decode_response_header,
    encode_request,
    encode_request_header,
)

if TYPE_CHECKING:
    from simulation.world import World

FROM_CONTROLLER = (4, 5, 6)
VERSIONS = {row.key: (row.version_min, row.version_max) for row in api_table(True).values()}
HANDLED = node.HANDLED | {
    row.KEY: row
    for row in (
        k04_leader_and_isr, k05_stop_replica, k06_update_metadata, k24_add_partitions_to_txn,
        k27_write_txn_markers, k83_initialize_share_group_state, k84_read_share_group_state,
        k85_write_share_group_state,
    )
}  # fmt: skip
SHRINK_MS, GROW_MS, CHECKPOINT_MS, TIMEOUTS_MS = 1500, 200, 5000, 1000
SETTINGS = node.SETTINGS | {
    "metadata.store": "zookeeper",
    "zookeeper.connect": "model",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "0",  # the world decides when a follower asks again
    "replica.fetch.backoff.ms": "100",
    "log.cleaner.enable": "false",
}


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
    here = [
        (channel_manager, "NamedThread", StillThread),
        (controller_thread, "NamedThread", StillThread),
        (replica_fetchers, "NamedThread", StillThread),
        (broker_queues, "NamedThread", StillThread),
        (remote_markers, "AGAIN_S", 0),
        (replica_fetchers, "Connection", SimConnection),
    ]
    with replaced([*node.THREADS, *here]):
        yield


class SimBroker(SimNode):
    """A broker of a cluster. Its start raises MetadataError when ZooKeeper cannot be reached."""

    world: World
    handled: ClassVar = HANDLED

    def __init__(self, world: World, node_id: int, folder: Path) -> None:
        super().__init__(world, node_id, folder)
        self.session: Session
        self.former: list[int] = []
        self._threads: tuple[Any, ...] = ()  # fetchers and channels
        self._of_threads: dict[Any, Actor] = {}
        self._all_actors: list[Actor] = []

    # -- start and end

    def _open(self, undo: ExitStack) -> None:
        node_id, system = self.node_id, self.system
        self.session = tree = Session(
            self.world.server, self.former, partial(self.world.before_operation, self)
        )
        self.former.append(tree.session_id)
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
        self._coordinate(tree, self._connect, all(row.was_clean for row in opened))
        made = self.coordinators
        assert made._remote is not None and made._verifications is not None
        self._queues: tuple[BrokerQueues[Any], ...] = (
            made._remote._queues, made._verifications._queues
        )  # fmt: skip
        if self.world.sharers is not None:
            assert self.share._remote is not None
            self._queues += (self.share._remote._queues,)
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

    def _send_rows(self, queue: BrokerQueue) -> None:
        rows = queue._taken()
        assert rows is not None
        queue._send(queue, queue.connection, rows)

    def kill(self) -> None:
        """Kills the broker; the server ends its session later."""
        session = self.session
        super().kill()
        session.disconnect()

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

    def _isr_size_min(self, topic: str) -> int:
        return self.replicas.topic_config(topic).integer("min.insync.replicas")

    def _fetch(self, fetcher: Any) -> float:
        fetcher._changed.clear()
        return max(fetcher.step(), 0.001)

    def _send(self, channel: Any) -> float | None:
        return None if channel.step() else channel_manager.AGAIN_S

    def context_of(self, key: int) -> Any:
        return self.context if key in FROM_CONTROLLER else super().context_of(key)


def fault_of(numbers: Callable[[], float], probability: float) -> Fault:
    """Returns a fault for one operation on ZooKeeper with the given probability, else
    Fault.NONE."""
    if numbers() >= probability:
        return Fault.NONE
    return (Fault.UNREACHABLE, Fault.LOST_REQUEST, Fault.LOST_ANSWER)[int(numbers() * 3)]
