#!/usr/bin/env python3
"""Apache Kafka itself, started from the jars that ./fetch brought, for benchmarks and tests.

    with Rival("4.3.1", data_dir) as kafka:          # KRaft, or mode="zookeeper" up to 3.9
        ... kafka.port, kafka.pid

    rival.py VERSION DIR [kraft|zookeeper] [NAME=VALUE ...]    runs until Ctrl-C
    rival.py tool VERSION VERB ARGUMENT...                     one of Kafka's own commands

One broker on loopback, with the settings file that Kafka ships but for addresses, folders and what
`settings` says, and with the JVM flags of Kafka's own start scripts. Nothing outside the standard
library is needed.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 40
JVM_FLAGS = (
    "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 "
    "-XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true"
).split()
BROKER_HEAP = ("-Xmx1G", "-Xms1G")
TOOL_HEAP = ("-Xmx256M",)
QUICK = "-XX:TieredStopAtLevel=1"  # of a JVM that lives for seconds: it starts with less CPU
CLUSTER_ID = "YmFybmFiYXMtcml2YWwtMQ"
# The values of config/server.properties in Kafka's own distribution.
SHIPPED = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
TOOLS_PACKAGE = "org.apache.kafka.tools."
TOOLS = {
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": TOOLS_PACKAGE + "consumer.ConsoleConsumer",
    "console-producer": TOOLS_PACKAGE + "ConsoleProducer",
    "delegation-tokens": TOOLS_PACKAGE + "DelegationTokenCommand",
    "delete-records": TOOLS_PACKAGE + "DeleteRecordsCommand",
    "dump-log": TOOLS_PACKAGE + "DumpLogSegments",
    "get-offsets": TOOLS_PACKAGE + "GetOffsetShell",
    "log-dirs": TOOLS_PACKAGE + "LogDirsCommand",
    "producer-perf-test": TOOLS_PACKAGE + "ProducerPerformance",
    "consumer-perf-test": TOOLS_PACKAGE + "ConsumerPerformance",
    "e2e-latency": TOOLS_PACKAGE + "EndToEndLatency",
    "topics": TOOLS_PACKAGE + "TopicCommand",
    "acls": TOOLS_PACKAGE + "AclCommand",
    "all-groups": TOOLS_PACKAGE + "GroupsCommand",  # kafka-groups.sh; "groups" is of consumers
    "api-versions": TOOLS_PACKAGE + "BrokerApiVersionsCommand",
    "cluster": TOOLS_PACKAGE + "ClusterTool",
    "features": TOOLS_PACKAGE + "FeatureCommand",
    "groups": TOOLS_PACKAGE + "consumer.group.ConsumerGroupCommand",
    "leader-election": TOOLS_PACKAGE + "LeaderElectionCommand",
    "reassign": TOOLS_PACKAGE + "reassign.ReassignPartitionsCommand",
    "replica-verification": TOOLS_PACKAGE + "ReplicaVerificationTool",  # up to 3.9
    "share-groups": TOOLS_PACKAGE + "consumer.group.ShareGroupCommand",
    "streams-groups": TOOLS_PACKAGE + "streams.StreamsGroupCommand",
    "transactions": TOOLS_PACKAGE + "TransactionsCommand",
    "zookeeper-shell": "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",  # up to 3.9
}
# Until 3.x these stood in the broker's own jar.
OLD_TOOLS = {
    "topics": "kafka.admin.TopicCommand",
    "get-offsets": "kafka.tools.GetOffsetShell",
    "log-dirs": "kafka.admin.LogDirsCommand",
    "delete-records": "kafka.admin.DeleteRecordsCommand",
    "console-producer": "kafka.tools.ConsoleProducer",
    "console-consumer": "kafka.tools.ConsoleConsumer",
    "dump-log": "kafka.tools.DumpLogSegments",
    "groups": "kafka.admin.ConsumerGroupCommand",
}


class RivalError(RuntimeError):
    """Kafka could not be started."""


def home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("BARNABAS_KAFKA_HOME") or Path(cache) / "barnabas" / "kafka")


def libs(version: str) -> Path:
    return home() / version / "libs"


def missing(version: str) -> str | None:
    """Why this version cannot run here, or None when it can."""
    if shutil.which("java") is None:
        return "java is not installed"
    if not (home() / version / "complete").exists():
        return f"no jars of Kafka {version}: run bench/kafka/fetch {version}"
    return None


def java(version: str, log_file: Path | str, heap: tuple[str, ...] = TOOL_HEAP) -> list[str]:
    """The start of a command line with the jars of a version; a class and arguments follow."""
    if version.startswith("4."):
        logging = [f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"]
    else:
        logging = [f"-Dlog4j.configuration=file:{HERE / 'log4j.properties'}"]
    flags = [*JVM_FLAGS, *logging, f"-Drival.log={log_file}"]
    return ["java", *heap, *flags, "-cp", f"{libs(version)}/*"]


def tool(
    version: str, verb: str, log_file: Path | str = os.devnull, heap: tuple[str, ...] = TOOL_HEAP
) -> list[str]:
    """The start of a command line for one of Kafka's own commands. Raises RivalError."""
    names = TOOLS | OLD_TOOLS if version.startswith(("1.", "2.")) else TOOLS
    if verb not in names:
        raise RivalError(f"no command {verb}; there are: {' '.join(sorted(TOOLS))}")
    return [*java(version, log_file, mapped(version, heap)), names[verb]]


def archive(version: str) -> Path:
    """The archive of Kafka's classes for this Java (tests/compat/kafka_classes.py makes it)."""
    java_home = Path(os.path.realpath(shutil.which("java") or "java")).parent.parent
    return home() / version / f"classes-{java_home.name}.jsa"


def mapped(version: str, heap: tuple[str, ...]) -> tuple[str, ...]:
    """`heap`, and for a quick JVM the options by which it maps Kafka's classes from the archive, if
    there is one. A JVM that cannot use it starts without it and, by -Xlog:disable, in silence."""
    if QUICK not in heap or not archive(version).exists():
        return heap
    return (*heap, f"-XX:SharedArchiveFile={archive(version)}", "-Xlog:disable")


def free_ports(count: int) -> list[int]:
    """Returns free ports of 127.0.0.1; Kafka needs their numbers before it starts. They lie below
    32768: Linux gives those above to connections, and Kafka takes seconds to listen."""
    found: set[int] = set()
    while len(found) < count:
        port = random.SystemRandom().randrange(10_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.add(port)
    return list(found)


class Rival:
    """One Kafka broker in its own processes."""

    heap = BROKER_HEAP

    def __init__(
        self,
        version: str,
        data_dir: Path | str,
        mode: str = "kraft",
        settings: dict[str, str] | None = None,
        port: int | None = None,
        features: dict[str, int] | None = None,
        heap: tuple[str, ...] = BROKER_HEAP,
    ) -> None:
        """In mode zookeeper with zookeeper.connect among the settings it uses that server, and
        starts none."""
        if mode not in ("kraft", "zookeeper"):
            raise RivalError(f"mode {mode} is neither kraft nor zookeeper")
        reason = missing(version)
        if reason:
            raise RivalError(reason)
        self.version, self.mode = version, mode
        self.data_dir = Path(data_dir).absolute()
        self.log_dir = self.data_dir / "data"  # where the partitions' folders are
        free = free_ports(2)
        self.port, self.side_port = port or free[0], free[1]
        self.settings = dict(settings or {})
        self.heap = heap
        self.features = dict(features or {})  # of a new cluster, where not the release's own
        self._broker: subprocess.Popen[bytes] | None = None
        self._zookeeper: ZooKeeper | None = None
        self._log_before = 0  # bytes of the log that earlier starts wrote

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._broker is None:
            raise RivalError("the broker is not running")
        return self._broker.pid

    def __enter__(self) -> "Rival":
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the broker and waits until it takes connections. Raises RivalError."""
        self.prepare()
        try:
            if self.mode == "zookeeper" and "zookeeper.connect" not in self.settings:
                self._zookeeper = ZooKeeper(self.version, self.data_dir, self.side_port)
                self._zookeeper.start()
            said = self._log("server")
            self._log_before = said.stat().st_size if said.exists() else 0
            output = self.data_dir / "broker.out"
            self._broker = spawn(self._command(), output)
            wait_for_port(self._broker, self.port, output)
            self._wait_for_log(self._broker, "started (kafka.server.")
        except BaseException:
            self.stop()
            raise

    def prepare(self) -> None:
        """Writes the settings file; formats the directory of a new broker. Raises RivalError."""
        (self.data_dir / "logs").mkdir(parents=True, exist_ok=True)
        file = self.data_dir / "server.properties"
        lines = [f"{name}={value}" for name, value in self._all_settings().items()]
        file.write_text("\n".join(lines) + "\n")
        if self.mode == "kraft" and not (self.log_dir / "meta.properties").exists():
            self._format(file)

    def stop(self) -> None:
        """Ends what this object started, politely at first."""
        if self._broker is not None:
            end(self._broker)
        if self._zookeeper is not None:
            self._zookeeper.stop()
        self._broker = self._zookeeper = None

    def kill(self) -> None:
        """kill -9, as a power cut of the process."""
        os.kill(self.pid, signal.SIGKILL)
        if self._broker is not None:
            self._broker.wait()
        self._broker = None

    def _command(self) -> list[str]:
        heap = mapped(self.version, self.heap)
        command = [*java(self.version, self._log("server"), heap), "kafka.Kafka"]
        return [*command, str(self.data_dir / "server.properties")]

    def _all_settings(self) -> dict[str, str]:
        found = {**SHIPPED, "log.dirs": str(self.log_dir)}
        listener = f"PLAINTEXT://{self.address}"
        side = f"127.0.0.1:{self.side_port}"
        if self.mode == "kraft":
            found |= {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@{side}",
                "listeners": f"{listener},CONTROLLER://{side}",
                "advertised.listeners": listener,
                "inter.broker.listener.name": "PLAINTEXT",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "group.initial.rebalance.delay.ms": "0",
            }
        else:
            found |= {
                "broker.id": "1",
                "listeners": listener,
                "zookeeper.connect": side,
                "zookeeper.connection.timeout.ms": "18000",
                "group.initial.rebalance.delay.ms": "0",
            }
        return found | self.settings

    def _format(self, file: Path) -> None:
        heap = mapped(self.version, self.heap)
        command = [*java(self.version, self._log("format"), heap), "kafka.tools.StorageTool"]
        command += ["format", "-t", CLUSTER_ID, "-c", str(file)]
        for name, level in self.features.items():
            command += ["--feature", f"{name}={level}"]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            raise RivalError((done.stdout + done.stderr).decode(errors="replace"))

    def _log(self, name: str) -> Path:
        return self.data_dir / "logs" / f"{name}.log"

    def _wait_for_log(self, process: "subprocess.Popen[bytes]", line: str) -> None:
        """Kafka opens its port a little before it knows itself as a broker."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            said = self._log("server").read_bytes()[self._log_before :]
            if line in said.decode(errors="replace"):
                return
            time.sleep(0.05)
        raise RivalError(f"the log does not say {line!r} after {START_TIMEOUT_S} s")


class ZooKeeper:
    """One server of the ZooKeeper that a release of Kafka has among its jars, on loopback."""

    heap = ("-Xmx512M", "-Dzookeeper.jmx.log4j.disable=true")  # reload4j has no JMX

    def __init__(self, version: str, data_dir: Path, port: int | None = None) -> None:
        """Settings, data and output go to `data_dir`."""
        self.port = port or free_ports(1)[0]
        self._version, self._data_dir = version, data_dir
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts the server and waits until it takes connections. Raises RivalError."""
        (self._data_dir / "logs").mkdir(parents=True, exist_ok=True)
        file = self._data_dir / "zookeeper.properties"
        file.write_text(
            f"dataDir={self._data_dir / 'zookeeper'}\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        log = self._data_dir / "logs" / "zookeeper.log"
        output = self._data_dir / "zookeeper.out"
        self._process = spawn([*java(self._version, log, self.heap), main, str(file)], output)
        wait_for_port(self._process, self.port, output)

    def stop(self) -> None:
        if self._process is not None:
            end(self._process)
        self._process = None


def spawn(command: list[str], output: Path) -> "subprocess.Popen[bytes]":
    """A process with a session of its own, which writes to a file."""
    with open(output, "wb") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


def wait_for_port(process: "subprocess.Popen[bytes]", port: int, output: Path) -> None:
    """Until the process listens. Raises RivalError with the end of its output."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = output.read_text(errors="replace")[-4000:]
            raise RivalError(f"ended with status {process.returncode}: {said}")
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.05)
    raise RivalError(f"nothing listens on port {port} after {START_TIMEOUT_S} s")


def end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, and SIGKILL when that does not help in time."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main(arguments: list[str]) -> int:
    if len(arguments) >= 3 and arguments[0] == "tool":
        command = tool(arguments[1], arguments[2], heap=("-Xmx512M",))
        os.execvp(command[0], [*command, *arguments[3:]])
    if len(arguments) < 2:
        print(__doc__)
        return 2
    version, data_dir, *rest = arguments
    mode = rest.pop(0) if rest and "=" not in rest[0] else "kraft"
    with Rival(version, data_dir, mode, dict(item.split("=", 1) for item in rest)) as kafka:
        print(f"Kafka {version} ({mode}) at {kafka.address}, pid {kafka.pid}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
