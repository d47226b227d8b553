#!/usr/bin/env python3
"""Compares three brokers with three of Apache Kafka in ZooKeeper mode, on the same ZooKeeper.

    python bench/cluster.py [--quick] [--rows bulk,rate,...] [--repeats N] [--kafka VERSION]
                            [--out DIR] [--data DIR] [--list] [--draw cluster.json]

The turns, the table and the plot are those of bench/broker.py; README.md says how it compares. Both
clusters run all the time, each in its own chroot. CPU and memory are sums over the three brokers,
without ZooKeeper. Every topic has three replicas and min.insync.replicas=2.
"""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kazoo.client import KazooClient
from report import clock
from rows import BULK, GB, Bar, Figures, Measure, Row
from sides import (
    Ours,
    Side,
    SideError,
    Theirs,
    ZooKeeper,
    cpu_s,
    drop_from_cache,
    resident_mb,
)

from barnabas.cext.record.records import encode_batch
from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.failures import ClientError
from barnabas.errors import KafkaError
from barnabas.wire import Struct, request
from broker import Bench, compared

KAFKA = "3.9.2"
NODES = (1, 2, 3)
SESSION_MS = 6000
PATIENCE_S = 180.0
POLL_S = 0.002
RATE: dict[str, object] = {"connections": 10, "partitions": 10, "rate": 2000, "acks": -1}
ALL: dict[str, object] = {**BULK, "acks": -1}
LOADED = {"bulk": 1, "rate": 10}  # topics of the rows of LOADS, and their partitions
LOADS, FAULTS = "loads", "faults"
AFTER_STOP_S = 3.0  # how long the client is watched after the broker has ended


@dataclass
class Size:
    """The size of a run. `quick` shows that everything works; its results are of a cold JVM."""

    seconds: float
    bulk_bytes: int
    warm_bytes: int
    warm_requests: int
    partitions: int  # while the controller fails over
    led: int  # partitions of the broker that is shut down
    repeats: int


FULL = Size(4, GB, GB, 50_000, 2000, 1000, 5)
QUICK = Size(1, GB // 20, GB // 10, 5_000, 100, 50, 1)


class Trio:
    """Three brokers of a kind with the interface of one. `port` is the port of the first."""

    def __init__(self, brokers: dict[int, Side], chroot: str, zookeeper: ZooKeeper) -> None:
        self.brokers = brokers
        self.name = brokers[NODES[0]].name
        self.data_dir = brokers[NODES[0]].data_dir.parent
        self._tree = KazooClient(zookeeper.address + chroot)

    @property
    def port(self) -> int:
        return self.brokers[NODES[0]].port

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self.brokers.values()]

    def start(self) -> None:
        self._tree.start(30)
        for broker in self.brokers.values():
            broker.start()

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()
        self._tree.stop()
        self._tree.close()

    def check_alive(self) -> None:
        for broker in self.brokers.values():
            broker.check_alive()

    def client(self, *but: int) -> Cluster:
        """Returns a client whose bootstrap servers are all brokers except these."""
        found = [f"127.0.0.1:{b.port}" for node, b in self.brokers.items() if node not in but]
        return Cluster(",".join(found), timeout_s=PATIENCE_S)

    def create(self, topic: str, partitions: int, is_spread: bool = False) -> None:
        """Creates a topic in which the first broker is the preferred leader of all partitions, or,
        with `is_spread`, each broker is the preferred leader of a third of them."""
        message = request(19)
        first = range(partitions) if is_spread else [0] * partitions
        rows = [
            message.struct("topics.assignments")(
                partitionIndex=index,
                brokerIds=[NODES[(at + more) % len(NODES)] for more in range(3)],
            )
            for index, at in enumerate(first)
        ]
        config = message.struct("topics.configs")(name="min.insync.replicas", value="2")
        row = message.struct("topics")(
            name=topic, numPartitions=-1, replicationFactor=-1, assignments=rows, configs=[config]
        )
        with self.client() as client:
            answer = client.controller().call(19, message.cls(topics=[row], timeoutMs=120_000))
            code, text = answer.topics[0].errorCode, answer.topics[0].errorMessage
            if code:
                raise SideError(f"topic {topic} was refused with error {code}: {text}")
        self.wait_until_whole(topic)

    def wait_until_whole(self, topic: str) -> None:
        """Waits until every broker answers that all replicas of the topic are in sync."""
        for node in NODES:
            with self.client(*(other for other in NODES if other != node)) as client:
                wait_for(lambda: _is_whole(client, topic), f"{topic}: not all replicas in sync")

    def elect_preferred(self, topic: str) -> None:
        """Makes the first replica of each partition its leader again."""
        message = request(43)
        with self.client() as client:
            client.controller().call(43, message.cls(topicPartitions=None, timeoutMs=60_000))
            wait_for(
                lambda: all(
                    row.leaderId == row.replicaNodes[0] for row in _partitions(client, topic)
                ),
                f"{topic}: the first replicas do not lead",
            )

    def controller(self) -> int:
        with self.client() as client:
            client.refresh([])
            return client.controller_id

    @contextlib.contextmanager
    def removal(self, node: int) -> Iterator[list[float]]:
        """Yields a list that gets the time at which the broker's ephemeral node is removed."""
        times: list[float] = []
        path = f"/brokers/ids/{node}"
        if self._tree.exists(path, watch=lambda _event: times.append(time.monotonic())) is None:
            raise SideError(f"broker {node} is not registered")
        yield times


def _partitions(client: Cluster, topic: str) -> list[Struct]:
    """Returns the partitions of the topic in a Metadata answer; an empty list without an answer."""
    try:
        rows = client.refresh([topic])
    except (ClientError, KafkaError):
        return []
    return list(rows[0].partitions)


def _is_whole(client: Cluster, topic: str) -> bool:
    found = _partitions(client, topic)
    return bool(found) and all(
        row.leaderId > 0 and len(row.isrNodes) == len(NODES) for row in found
    )


def _is_preferred(client: Cluster, topic: str) -> bool:
    found = _partitions(client, topic)
    return bool(found) and all(row.leaderId == row.replicaNodes[0] for row in found)


def wait_for(condition: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SideError(f"{why} after {PATIENCE_S:.0f} s")
        time.sleep(POLL_S)


class Writer(threading.Thread):
    """Writes one record after another with acks=all to partition 0 of a topic, and keeps the time
    of each acknowledgement.

    After a refusal it asks the next broker at once, so that finding a leader adds no pause on
    either side.
    """

    def __init__(self, trio: Trio, topic: str) -> None:
        super().__init__(daemon=True)
        self.times: list[float] = []
        self._places = [broker.port for broker in trio.brokers.values()]
        self._stop_asked = threading.Event()
        message = request(0)
        row = message.struct("topicData")(
            name=topic,
            partitionData=[
                message.struct("topicData.partitionData")(
                    index=0, records=encode_batch([b"value" * 20])
                )
            ],
        )
        self._body = message.cls(acks=-1, timeoutMs=1000, topicData=[row])
        self.start()

    def run(self) -> None:
        connection, turn = None, 0
        while not self._stop_asked.is_set():
            try:
                if connection is None:
                    port = self._places[turn % len(self._places)]
                    connection = Connection("127.0.0.1", port, answer_timeout_s=2)
                answer = connection.call(0, self._body)
                if answer.responses[0].partitionResponses[0].errorCode == 0:
                    self.times.append(time.monotonic())
                    time.sleep(POLL_S)
                    continue
            except ClientError:
                pass
            if connection is not None:
                connection.close()
            connection, turn = None, turn + 1
            time.sleep(POLL_S)

    def first_after(self, when: float) -> float:
        """Waits for the first acknowledgement after a time."""
        wait_for(lambda: bool(self.times) and self.times[-1] > when, "nothing is acknowledged")
        return next(one for one in self.times if one > when)

    def longest_gap_s(self, begin: float) -> float:
        """Returns the longest time without an acknowledgement since `begin`."""
        times = [begin, *(one for one in self.times if one > begin), time.monotonic()]
        return max(later - earlier for earlier, later in zip(times, times[1:], strict=False))

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


class ClusterBench(Bench):
    """The turns of bench/broker.py with three brokers for each side."""

    size: Size

    def cpu_s(self, side: Trio) -> float:  # type: ignore[override]
        return sum(cpu_s(pid) for pid in side.pids)

    def trio(self, zookeeper: ZooKeeper, name: str) -> Trio:
        chroot, folder = f"/{name}", self.data / name
        tree = KazooClient(zookeeper.address)
        tree.start(30)
        tree.ensure_path(chroot)
        tree.stop()
        tree.close()
        brokers: dict[int, Side] = {}
        for node in NODES:
            settings = {
                "zookeeper.connect": zookeeper.address + chroot,
                "zookeeper.session.timeout.ms": str(SESSION_MS),
                "auto.leader.rebalance.enable": "false",
                "auto.create.topics.enable": "false",
            }
            if name == Ours.name:
                ours = Ours(folder / str(node), "os")
                settings |= {
                    "metadata.store": "zookeeper", "node.id": str(node), "metrics.port": "-1",
                }  # fmt: skip
                ours.settings = settings
                brokers[node] = ours
            else:
                settings |= {"broker.id": str(node)}
                brokers[node] = Theirs(self.version, folder / str(node), "zookeeper", settings)
        return Trio(brokers, chroot, zookeeper)

    def prepare(self, side: Trio, durability: str) -> None:  # type: ignore[override]
        size = self.size
        for topic, partitions in LOADED.items():
            side.create(topic, partitions)
        self.load(side.port, "bulk", "produce", {**ALL, "requests": size.warm_bytes >> 16})
        words = {**RATE, "requests": size.warm_requests}
        words.pop("rate")
        self.load(side.port, "rate", "produce", words)
        self.forget_pages(side)

    def prepare_faults(self, side: Trio) -> None:
        """Creates many partitions after the rows of LOADS: each fetch of Kafka's followers reads
        every partition of its session. With 3,000 idle ones its bulk load reached 2.6 MB/s."""
        for topic in ("failover", "gap"):
            side.create(topic, 1)
        side.create("led", self.size.led)
        side.create("wide", self.size.partitions, is_spread=True)

    def rows_of(self, group: str) -> list[Row]:
        return [row for row in self.rows if row.group == group]

    @staticmethod
    def forget_pages(side: Trio) -> None:
        for broker in side.brokers.values():
            drop_from_cache(broker.data_dir, "bulk")

    def run(self) -> None:
        self.build()
        zookeeper = ZooKeeper(self.version, self.data / "zookeeper")
        zookeeper.start()
        sides = [self.trio(zookeeper, name) for name in (Ours.name, Theirs.name)]
        try:
            for side in sides:
                side.start()
                self.prepare(side, "os")
            print(f"{clock()} both are warm", flush=True)
            self.compare(self.rows_of(LOADS), *sides)  # type: ignore[arg-type]
            if faults := self.rows_of(FAULTS):
                for side in sides:
                    self.prepare_faults(side)
                self.compare(faults, *sides)  # type: ignore[arg-type]
        finally:
            for side in sides:
                side.stop()
            zookeeper.stop()
        self.save()


# ---- rows ----
def loaded(topic: str, words: Callable[[Size], dict[str, object]]) -> Measure:
    def measure(bench: ClusterBench, side: Trio) -> Figures:
        side.elect_preferred(topic)
        answer = bench.counted(side, topic, "produce", words(bench.size))  # type: ignore[arg-type]
        bench.forget_pages(side)
        return answer

    return measure  # type: ignore[return-value]


def memory(_bench: ClusterBench, side: Trio) -> Figures:
    return {"loaded_mb": sum(resident_mb(pid) for pid in side.pids)}


def _kill(side: Trio, node: int) -> None:
    broker = side.brokers[node]
    broker.kill()
    if isinstance(broker, Theirs):
        broker.stop()  # this kills the rest; the next start is a new process


def _back(side: Trio, node: int, *topics: str) -> None:
    side.brokers[node].start()
    for topic in topics:
        side.wait_until_whole(topic)


def failover(_bench: ClusterBench, side: Trio) -> Figures:
    """Kills the leader. Measures from the removal of its ephemeral node to the first
    acknowledgement."""
    with side.client() as client:
        leader = _partitions(client, "failover")[0].leaderId
    writer = Writer(side, "failover")
    try:
        writer.first_after(time.monotonic())
        with side.removal(leader) as removed:
            _kill(side, leader)
            wait_for(lambda: bool(removed), "the ephemeral node stays")
            took = writer.first_after(removed[0]) - removed[0]
    finally:
        writer.stop()
    _back(side, leader, "failover", "wide", "led", "bulk", "rate")
    return {"failover_s": took}


def controller(_bench: ClusterBench, side: Trio) -> Figures:
    """Kills the controller. Measures from the removal of its ephemeral node until both other
    brokers answer that every partition has a live leader."""
    dead = side.controller()
    side.elect_preferred("wide")
    left = [node for node in NODES if node != dead]
    with contextlib.ExitStack() as stack, side.removal(dead) as removed:
        clients = [
            stack.enter_context(side.client(*(other for other in NODES if other != node)))
            for node in left
        ]
        _kill(side, dead)
        wait_for(lambda: bool(removed), "the ephemeral node stays")
        for client in clients:

            def is_led(client: Cluster = client) -> bool:
                leaders = {row.leaderId for row in _partitions(client, "wide")}
                return bool(leaders) and leaders <= set(left)

            wait_for(is_led, "partitions without a living leader")
        took = time.monotonic() - removed[0]
    wait_for(lambda: side.controller() in left, "no controller")
    _back(side, dead, "failover", "wide", "led", "bulk", "rate")
    return {"failover_s": took}


def shutdown(_bench: ClusterBench, side: Trio) -> Figures:
    """Sends SIGTERM to the broker that leads all partitions of `led`. Measures the longest time in
    which a client of one of its partitions gets no acknowledgement."""
    for topic in ("gap", "led"):
        side.elect_preferred(topic)
    first = side.brokers[NODES[0]]
    writer = Writer(side, "gap")
    try:
        writer.first_after(time.monotonic())
        began = time.monotonic()
        first.stop()
        took = time.monotonic() - began
        time.sleep(AFTER_STOP_S)
        gap = writer.longest_gap_s(began)
    finally:
        writer.stop()
    _back(side, NODES[0], "gap", "wide", "led", "bulk", "rate")
    return {"gap_s": gap, "stop_s": took}


def all_rows() -> list[Row]:
    def own(key: str, name: str, measure: Callable[[ClusterBench, Trio], Figures],
            figures: tuple[str, ...], bar: Bar, rounds: int | None = 3) -> Row:  # fmt: skip
        return Row(key, name, FAULTS, measure, figures, (bar,), rounds=rounds)  # type: ignore[arg-type]

    return [
        Row("bulk", "64 KiB batches, acks=all, 3 replicas", LOADS,
            loaded("bulk", lambda size: {**ALL, "requests": size.bulk_bytes >> 16}),
            ("mb_per_s", "cpu_s_per_gb"), (Bar("cpu_s_per_gb", most=1 / 3),)),
        Row("rate", "2,000/s of one record, acks=all, 3 replicas", LOADS,
            loaded("rate", lambda size: {**RATE, "seconds": size.seconds}),
            ("p50_us", "p99_us", "cpu_us_per_request"), (Bar("p99_us", most=1 / 2),)),
        Row("memory", "three brokers after that", LOADS, memory,  # type: ignore[arg-type]
            ("loaded_mb",), (Bar("loaded_mb", most=1 / 8),), rounds=3),
        own("failover", "kill -9 of a leader", failover, ("failover_s",),
            Bar("failover_s", most=1 / 2)),
        own("controller", "kill -9 of the controller, 2,000 partitions", controller,
            ("failover_s",), Bar("failover_s", most=1 / 2)),
        own("shutdown", "shutdown of a broker that leads 1,000 partitions", shutdown,
            ("gap_s", "stop_s"), Bar("gap_s", most=1 / 2)),
    ]  # fmt: skip


def main(words: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    description = __doc__.partition("\n")[0]
    return compared(words, description, "cluster", all_rows(), (FULL, QUICK), ClusterBench, KAFKA)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
