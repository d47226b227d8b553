"""The brokers of one cluster, each in its own process, with a real ZooKeeper."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cluster.network import Network
from waiting import pause

from barnabas.cext.record.records import parse_header

READY_S = 60
ENDS_S = 30
BATCH_HEADER_BYTES = 61
LENGTH_AT, LENGTH_BEFORE = 8, 12  # of a batch: where its length is, and what the length leaves out


class BrokerProcess:
    """One broker: a process of `barnabas start`."""

    def __init__(
        self,
        folder: Path,
        node_id: int,
        connect: str,
        settings: dict[str, str],
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ):
        """`prefix`: the words before the command; `environment`: further variables of its
        environment."""
        self.node_id = node_id
        self.python = sys.executable  # the interpreter of the next start
        self._prefix, self._environment = tuple(prefix), environment
        self.data = folder / f"data-{node_id}"
        self._given = {
            "log.dirs": str(self.data),
            "metadata.store": "zookeeper",
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "2000",
            "zookeeper.connection.timeout.ms": "20000",
            "node.id": str(node_id),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "metrics.port": "-1",
            "num.network.threads": "1",
            "num.io.threads": "4",
            "log.durability": "os",
            "replica.lag.time.max.ms": "3000",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            **settings,
        }
        self.lines: list[str] = []
        self.address = ""  # of the first listener
        self._listener = self._given["listeners"].partition("://")[0]
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> BrokerProcess:
        """Starts the broker; from the second start on with the port that it had. Raises
        AssertionError with what it said if it ends."""
        command = [*self._prefix, self.python, "-m", "barnabas", "start"]
        for name, value in self._given.items():
            command += ["--set", f"{name}={value}"]
        environment = os.environ | (self._environment or {})
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=environment
        )
        ready, began = threading.Event(), len(self.lines)
        self._reader = threading.Thread(target=self._read, args=(ready,), daemon=True)
        self._reader.start()
        said = ready.wait(READY_S) and any("ready:" in line for line in self.lines[began:])
        assert said and self.address, "\n".join(self.lines[began:])
        self._given["listeners"] = f"{self._listener}://{self.address}"
        return self

    def _read(self, ready: threading.Event) -> None:
        assert self._process is not None and self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip())
            if "ready:" in line and f"{self._listener}://" in line:
                self.address = line.split(f"{self._listener}://")[1].split()[0].rstrip(",;.")
                ready.set()
        ready.set()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def pause(self) -> None:
        """Pauses the process (SIGSTOP); returns when it has stopped."""
        assert self._process is not None
        pause(self._process.pid)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kills the process (SIGKILL)."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        if self.is_running:
            self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Returns the exit status; then `lines` has all that it said."""
        assert self._process is not None and self._reader is not None
        status = self._process.wait(ENDS_S)
        self._reader.join(ENDS_S)
        return status

    def batches(self, topic: str, partition: int) -> Iterator[tuple[int, int, bytes]]:
        """Returns the batches of one partition, as `batches_in`. The broker must be stopped."""
        return batches_in(self.data / f"{topic}-{partition}")


def batches_in(folder: Path) -> Iterator[tuple[int, int, bytes]]:
    """Returns the batches in the files of a replica: base offset, leader epoch, bytes."""
    for path in sorted(folder.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at + BATCH_HEADER_BYTES <= len(data):
            length = int.from_bytes(data[at + LENGTH_AT : at + LENGTH_BEFORE], "big")
            batch = data[at : at + LENGTH_BEFORE + length]
            if len(batch) < LENGTH_BEFORE + length or length == 0:
                break
            header = parse_header(batch)
            yield header.base_offset, header.leader_epoch, batch
            at += len(batch)


class Cluster:
    """Brokers 1 to `count`, all running; they end with the test."""

    def __init__(
        self,
        folder: Path,
        connect: str,
        count: int = 3,
        with_racks: bool = False,
        network: Network | None = None,
        environments: Mapping[int, Mapping[str, str]] | None = None,
        python: str = sys.executable,
        **settings: str,
    ):
        """`with_racks`: broker 1 is in rack-1, and so on; `network`: broker 1 is on its host "1",
        and so on; `environments`: further variables of the environment, by broker; `python`: the
        interpreter, whose barnabas runs."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        listener = given.get("listeners", "PLAINTEXT:").partition(":")[0]
        self.brokers = {}
        for node_id in range(1, count + 1):
            own, prefix = dict(given), ()
            if with_racks:
                own["broker.rack"] = f"rack-{node_id}"
            if network is not None:
                own["listeners"] = f"{listener}://{network.address(str(node_id))}:9092"
                own["allow.unauthenticated.remote"] = "true"
                prefix = network.prefix(str(node_id))
            environment = (environments or {}).get(node_id)
            self.brokers[node_id] = BrokerProcess(
                folder, node_id, connect, own, prefix, environment
            )
        for broker in self.brokers.values():
            broker.python = python
            broker.start()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_exc: object) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                broker.resume()
                broker.kill()
