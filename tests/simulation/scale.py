"""Measures a controller alone, with many simulated brokers and partitions.

    cd tests && python -m simulation.scale [BROKERS:PARTITIONS ...] [--gib N] [--minutes N]
    cd tests && python -m simulation.scale --draw ../docs/evidence/cluster.md PLOT.svg

The code of the controller is the shipped one: reader of the tree, elections, channels and their
requests. ZooKeeper is the model, in memory, and all runs in one thread. The other brokers are
simulated and share one immutable state: they decode each request and answer it with the shipped
handler, but have no logs. A request that differs from an earlier one in the broker epoch only is
answered as that one. Their time is not counted. Each size runs in a process of its own, which
may have --gib of memory and run for --minutes. Seconds are of CPU. --draw draws the lines of a
table that was printed before (needs matplotlib). A line has these columns:

    read        a broker reads the tree, at its start
    controller  the controller dies; another broker takes its place, reads the tree, and writes new
                leaders for the partitions of the dead broker
    all         it sends the state of all partitions to all brokers, which it does not know to have
                it: the seconds, and the MB sent
    failover    one more broker dies: new leaders are in the tree
    requests    all brokers have got the new leaders: the seconds, and the MB sent
    apply       one broker applies those requests to its state
    GiB         the largest memory of the process
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from simulation.broker import HANDLED, SETTINGS, VERSIONS, without_threads
from simulation.zookeeper_model import Server, Session

from barnabas.api.call import Call
from barnabas.api.contexts import ReplicaContext
from barnabas.client.connection import Connection
from barnabas.config import BrokerConfig, DynamicConfig, TopicConfig
from barnabas.config.listeners import Listener
from barnabas.controller.channel_manager import ControllerChannelManager
from barnabas.controller.controller import Controller
from barnabas.controller.controller_role import ClusterRole
from barnabas.controller.elections import Elections
from barnabas.controller.features import registered_features
from barnabas.controller.reassignments import Reassignments
from barnabas.controller.state_difference import EPOCH_BYTES, broker_epoch_at
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader, PartitionUpdate
from barnabas.metadata.node_table import Entry, NodeTable
from barnabas.metadata.tree import Stat
from barnabas.metadata.znodes import PartitionState, TopicAssignment
from barnabas.server.membership import Membership
from barnabas.server.registration import claim_cluster
from barnabas.wire import request
from barnabas.wire.headers import decode_request_header, encode_request, encode_response
from barnabas.wire.uuids import uuid_text

SIZES = ("10:10000", "30:30000", "100:100000", "300:300000", "1000:1000000")
REPLICAS, PARTITIONS_OF_TOPIC = 3, 100
NOW_MS = 1_795_000_000_000


class Result(NamedTuple):
    """The seconds of each part; see the file's docstring."""

    read_s: float
    controller_s: float
    all_s: float
    all_mb: float
    failover_s: float
    requests_s: float
    requests_mb: float
    apply_s: float
    gib: float


class Receiver(Connection):
    """A connection of the controller to a simulated broker."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self._cluster = cluster
        self.host, self.port, self.client_id = "node", broker_id, "scale"
        self.is_open, self._login, self._login_due_s = True, None, float("inf")
        self.versions = VERSIONS

    def _exchange(self, key: int, version: int, body: Any) -> bytes:
        frame = encode_request(key, version, 1, self.client_id, body, framed=False)
        return self._cluster.answer(frame, is_shared=isinstance(body, bytes))

    def close(self) -> None:
        self.is_open = False

    def interrupt(self) -> None:
        self.is_open = False


class Cluster:
    """Broker 1, which becomes controller, and simulated brokers with the other ids."""

    def __init__(self, brokers: int, partitions: int) -> None:
        self.server = Server(lambda: NOW_MS)
        self.sessions = {id_: Session(self.server) for id_ in range(1, brokers + 1)}
        self._memberships = {
            id_: Membership(
                tree, id_, BrokerConfig({**SETTINGS, "node.id": str(id_)}), registered_features(),
                partial(lambda port: [Listener("PLAINTEXT", "node", port)], id_), lambda: NOW_MS,
            )
            for id_, tree in self.sessions.items()
        }  # fmt: skip
        self.away_s, self.sent_bytes = 0.0, 0
        self.state = ClusterState()  # of all simulated brokers
        self.received: list[PartitionUpdate] = []  # by one of them, while `receives` is set
        self.receives = False
        self._answers: dict[bytes, bytes] = {}  # by the request without its broker epoch
        claim_cluster(self.sessions[1], [], bytes)
        for id_ in reversed(self.sessions):  # the last one becomes controller
            self._memberships[id_].begin()
        self._add_topics(brokers, partitions)

    def _add_topics(self, brokers: int, partitions: int) -> None:
        """Puts the nodes of topics into the tree, as after their creation."""
        zxid = self.server.zxid = self.server.zxid + 1
        stat, table = Stat(0, NOW_MS, NOW_MS, 0, zxid, zxid), self.server.table
        for number in range(partitions // PARTITIONS_OF_TOPIC):
            name = f"topic-{number:05d}"
            rows = {
                index: tuple(
                    (number * PARTITIONS_OF_TOPIC + index + row) % brokers + 1
                    for row in range(REPLICAS)
                )
                for index in range(PARTITIONS_OF_TOPIC)
            }
            assignment = TopicAssignment(rows, uuid_text((number + 1).to_bytes(16, "big")))
            _put(table, znodes.topic_path(name), assignment.encode(), stat)
            _put(table, znodes.topic_path(name) + "/partitions", b"", stat)
            for index, replicas in rows.items():
                path = znodes.partition_state_path(name, index)
                _put(table, path.removesuffix("/state"), b"", stat)
                _put(table, path, PartitionState(replicas[0], 0, replicas, 1).encode(), stat)

    def start(self) -> float:
        """Starts the controller's parts of broker 1; returns how long it reads the tree."""
        tree, dynamic = self.sessions[1], DynamicConfig(BrokerConfig(SETTINGS), 1)
        began = time.process_time()
        self.reader = reader = ClusterStateReader(tree)
        read_s = time.process_time() - began
        membership = self._memberships[1]
        role = ClusterRole(tree, reader, membership, 1)
        self.channels = ControllerChannelManager(1, partial(Receiver, self))
        self.controller = Controller(
            tree, reader, membership, role, TopicDeletion(tree, reader, role, lambda: None),
            Elections(tree, reader, lambda name: TopicConfig(reader.state.config("topics", name),
                                                             dynamic)),
            Reassignments(tree, reader), self.channels, 1, frozenset, lambda: True,
            lambda _topic: None, lambda size: bytes(size), lambda: 0,
        )  # fmt: skip
        reader.on_change(self.controller.apply)
        return read_s

    def fail(self, broker_id: int) -> float:
        """Ends the session of a broker. Returns the seconds until its partitions have leaders."""
        self.server.expire(self.sessions[broker_id].session_id)
        tree, began = self.sessions[1], time.process_time()
        while tree.waits or self.controller.is_awake:
            if tree.waits:
                tree.deliver()
            elif not self.controller.step():
                raise RuntimeError("the controller cannot do its work")
        self.state = self.reader.state
        assert all(
            row.state is not None and row.state.leader != broker_id
            for topic in self.state.topics.values()
            for row in topic.partitions.values()
        )
        return time.process_time() - began

    def send(self, until_s: float) -> tuple[float, float]:
        """Sends what is new to all brokers. Returns the seconds, without those of the other
        brokers, and the MB."""
        self.away_s, self.sent_bytes, began = 0.0, 0, time.process_time()
        self._answers.clear()
        channels = list(self.channels._channels.values())
        for count, channel in enumerate(channels):
            self.receives = count == 0
            if not channel.step():
                raise RuntimeError("a request was not answered")
            if time.monotonic() > until_s:
                raise TimeoutError(f"after {count + 1} of {len(channels)} brokers")
        return time.process_time() - began - self.away_s, self.sent_bytes / 1e6

    def answer(self, frame: bytes, is_shared: bool) -> bytes:
        """Returns the answer of a simulated broker. `is_shared`: others get the same request, with
        another broker epoch."""
        began = time.process_time()
        self.sent_bytes += len(frame)
        header, at = decode_request_header(frame)
        if is_shared:
            epoch_at = at + broker_epoch_at(header.requestApiVersion)
            known = frame[:epoch_at] + frame[epoch_at + EPOCH_BYTES :]
            answer = self._answers.get(known)
            if answer is None:
                answer = self._answers[known] = self._handled(frame, header, at)
        else:
            answer = self._handled(frame, header, at)
        self.away_s += time.process_time() - began
        return answer

    def _handled(self, frame: bytes, header: Any, at: int) -> bytes:
        key, version = header.requestApiKey, header.requestApiVersion
        context = ReplicaContext(
            0, lambda: self.state, self._applied, lambda _names: self.state,
            SimpleNamespace(is_offline=lambda _topic, _index: False),  # type: ignore[arg-type]
        )  # fmt: skip
        call = Call(context, key, version, None)  # type: ignore[arg-type]
        answer = HANDLED[key].handle(request(key).decode(frame, version, at), call)
        return encode_response(key, version, header.correlationId, answer, framed=False)

    def _applied(self, updates: list[PartitionUpdate], _is_leader_and_isr: bool) -> ClusterState:
        if self.receives:
            self.received += updates
        return self.state


def _put(table: NodeTable, path: str, data: bytes, stat: Stat) -> None:
    table.put(path, Entry(data, stat, 0))


def measured(brokers: int, partitions: int, until_s: float) -> Result:
    """Measures one size. Raises TimeoutError and MemoryError."""
    with without_threads():
        cluster = Cluster(brokers, partitions)
        read_s = cluster.start()
        controller_s = cluster.fail(brokers)
        all_s, all_mb = cluster.send(until_s)
        cluster.received.clear()
        before = cluster.state
        failover_s = cluster.fail(brokers - 1)
        requests_s, requests_mb = cluster.send(until_s)
        apply_s = _time_of_apply(before, cluster.received)
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    return Result(read_s, controller_s, all_s, all_mb, failover_s, requests_s, requests_mb,
                  apply_s, gib)  # fmt: skip


def _time_of_apply(state: ClusterState, updates: list[PartitionUpdate]) -> float:
    tree = Session(Server(lambda: NOW_MS))
    tree.ensure_paths([znodes.TOPICS_PATH, znodes.CONFIG_PATH])
    reader = ClusterStateReader(tree)
    reader.state = state
    began = time.process_time()
    reader.apply_updates(updates, is_leader_and_isr=False)
    return time.process_time() - began


def in_child(size: str, gib: float, minutes: float) -> str:
    """Measures one size in a process of its own. Returns its line of the table."""
    brokers, partitions = size.split(":")
    command = [sys.executable, "-m", "simulation.scale", size, "--here", "--minutes", str(minutes)]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (int(gib * (1 << 30)),) * 2)

    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return f"| {int(brokers):,} | {int(partitions):,} | {why} |"
    row = Result(*json.loads(done.stdout))
    return (
        f"| {int(brokers):,} | {int(partitions):,} | {row.read_s:.2f} | {row.controller_s:.2f}"
        f" | {row.all_s:.1f} / {row.all_mb:,.0f} | {row.failover_s:.2f}"
        f" | {row.requests_s:.2f} / {row.requests_mb:,.1f} | {row.apply_s:.3f} | {row.gib:.2f} |"
    )


LINE = re.compile(r"^\|( [\d,]+ \|){2} [\d.]+ \|.*\|$", re.MULTILINE)
CURVES = {
    "read: a broker reads the tree": 2,
    "controller: another one is elected": 3,
    "all: it sends all brokers everything": 4,
    "failover: new leaders are in the tree": 5,
    "requests: all brokers know them": 6,
}


def draw(table: Path, plot: Path) -> None:
    """Draws the seconds of each part by the number of brokers, from the lines of a table."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    lines = [
        [cell.strip().partition(" /")[0].replace(",", "") for cell in found[0].split("|")[1:-1]]
        for found in LINE.finditer(table.read_text())
    ]
    drawn = Figure(figsize=(6, 3.4))
    axes = drawn.subplots()
    for label, column in CURVES.items():
        axes.plot(
            [int(line[0]) for line in lines],
            [float(line[column]) for line in lines],
            marker="o",
            label=label,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("brokers, each with 1,000 partitions of 3 replicas")
    axes.set_ylabel("s of CPU")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    drawn.tight_layout()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "barnabas"}):  # text, equal bytes
        drawn.savefig(plot, metadata={"Date": None})
    plot.write_text(re.sub(r" *\n(?=[MLCQHVz\"])", " ", plot.read_text()))


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sizes", nargs="*", default=SIZES, metavar="BROKERS:PARTITIONS")
    parser.add_argument("--gib", type=float, default=8, metavar="N")
    parser.add_argument("--minutes", type=float, default=30, metavar="N")
    parser.add_argument("--here", action="store_true", help="one size in this process, as JSON")
    parser.add_argument("--draw", nargs=2, type=Path, metavar=("TABLE", "PLOT"))
    given = parser.parse_args(words)
    if given.draw:
        draw(*given.draw)
        return 0
    if given.here:
        brokers, partitions = map(int, given.sizes[0].split(":"))
        until_s = time.monotonic() + given.minutes * 60
        print(json.dumps(measured(brokers, partitions, until_s)))
        return 0
    print("| brokers | partitions | read s | controller s | all s / MB | failover s"
          " | requests s / MB | apply s | GiB |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for size in given.sizes:
        print(in_child(size, given.gib, given.minutes), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
