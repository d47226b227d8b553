"""`barnabas start --cluster COUNT`: several brokers and ZooKeeper, for development.

Each broker is its own process, `barnabas start` with the given settings. Below the log directory
are `broker-1`, `broker-2`, ... and `zookeeper`; beside each broker's directory is its log
`broker-1.log`, which each start overwrites. Ports follow those of the given listeners. When
zookeeper.connect is set, the brokers use that ZooKeeper and the command starts none. The logs are
text, because the command reads them.

The command reports a broker that ends, and the others continue. The stop ends one broker after
another, so that each one hands over its leadership, and ZooKeeper last. A second signal kills them.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue

from barnabas.cext.memory.threads import NamedThread
from barnabas.cli.zookeeper_process import (
    CannotStartZooKeeper,
    ZooKeeperProcess,
    end_with_parent,
)
from barnabas.config import BrokerConfig
from barnabas.config.listeners import Listener, parse_listeners

METRICS_PORT = 9404  # of the first broker
READY = "ready: "
STOP_TIMEOUT_S = 60
REPLICATION_MAX, MIN_ISR_MAX = 3, 2
OWN = ("node.id", "broker.id", "broker.id.generation.enable")
LISTENERS = ("listeners", "advertised.listeners")


class CannotStartCluster(Exception):
    """The text says why and what to do, in one line."""


Say = Callable[[str], object]  # prints a line
Event = tuple[str, object]  # "ready" or "ended" and a broker, or "signal" and its number


class _Broker:
    """One `barnabas start`. Its thread writes the process's output to its log, and puts events."""

    def __init__(
        self, number: int, words: list[str], log: Path, events: SimpleQueue[Event]
    ) -> None:
        self.number, self.log = number, log
        self.listening: list[str] = []
        self.last_line = ""
        self._events = events
        self.process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", "start", *words],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )

    def follow(self) -> None:
        """Begins to read the output. Call it when all processes run: no thread may exist when a
        process is forked."""
        NamedThread(target=self._read, name=f"output-{self.number}", daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with open(self.log, "wb", buffering=0) as log:
            for line in self.process.stderr:
                log.write(line)
                self.last_line = line.decode(errors="replace").strip()
                if self.last_line.startswith(READY):
                    self.listening.append(self.last_line.removeprefix(READY).split()[0])
                    self._events.put(("ready", self))
        self.process.wait()
        self._events.put(("ended", self))

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL when the process does not end in time."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


class DevelopmentCluster:
    """The brokers 1 to the number that --cluster gives."""

    def __init__(self, config: BrokerConfig, arguments: argparse.Namespace) -> None:
        """Raises CannotStartCluster for settings that several brokers cannot share."""
        self._config, self._count = config, int(arguments.cluster)
        self._given = ["--config", arguments.config] if arguments.config else []
        self._given += [word for text in arguments.settings for word in ("--set", text)]
        self._given += ["--quiet"] if arguments.quiet else []
        for name in OWN:
            if config.is_set(name):
                raise CannotStartCluster(f"{name} is set, and --cluster numbers the brokers itself")
        self._folders = [Path(row).absolute() for row in config.log_dirs]
        if not (config.is_set("log.dirs") or config.is_set("log.dir")):
            self._folders = [Path(f"{config.log_dirs[0]}-cluster")]
        if any((row / "meta.properties").exists() for row in self._folders):
            raise CannotStartCluster(
                f"{self._folders[0]} has the data of one broker. Name another directory with"
                " --set log.dirs=DIR"
            )
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._zookeeper: ZooKeeperProcess | None = None
        self._brokers: list[_Broker] = []

    def run(self, say: Say) -> int:
        """Starts the cluster and waits for a signal. Returns the exit status. Raises
        CannotStartCluster, OSError."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda caught, _: self._events.put(("signal", caught)))
        try:
            if not self._start(say):
                return 0
            return self._watch(say)
        finally:
            self._stop(say)

    def _start(self, say: Say) -> bool:
        """Returns False when a signal came before all brokers were ready."""
        for folder in self._folders:
            folder.mkdir(parents=True, exist_ok=True)
        connect = str(self._config.get("zookeeper.connect") or "")
        if not connect:
            self._zookeeper = ZooKeeperProcess(self._folders[0] / "zookeeper")
            try:
                self._zookeeper.start()
            except CannotStartZooKeeper as error:
                raise CannotStartCluster(
                    f"--cluster needs ZooKeeper, and {error}, or name a server with"
                    " --set zookeeper.connect=HOST:PORT"
                ) from None
            connect = self._zookeeper.address
            say(f"zookeeper: {connect}, data: {self._folders[0] / 'zookeeper'}")
        for number in range(1, self._count + 1):
            words = list(self._given)
            for name, value in self._settings(number, connect).items():
                words += ["--set", f"{name}={value}"]
            log = self._folders[0] / f"broker-{number}.log"
            self._brokers.append(_Broker(number, words, log, self._events))
        for broker in self._brokers:
            broker.follow()
        waiting = list(self._brokers)
        while waiting:
            kind, what = self._events.get()
            if kind == "signal":
                return False
            assert isinstance(what, _Broker)
            if kind == "ended":
                why = what.last_line.removeprefix("barnabas: ").rstrip(".")
                raise CannotStartCluster(
                    f"broker {what.number} does not start: {why}. Its log is {what.log}"
                )
            if what in waiting:
                waiting.remove(what)
        for broker in self._brokers:
            data = ", ".join(str(row / f"broker-{broker.number}") for row in self._folders)
            say(f"broker {broker.number}: {', '.join(broker.listening)}, data: {data}")
        servers = ",".join(broker.listening[0].partition("://")[2] for broker in self._brokers)
        say(f"bootstrap servers: {servers}")
        return True

    def _settings(self, number: int, connect: str) -> Mapping[str, str]:
        """Returns the settings of one broker; given settings override those of replication."""
        config, is_set = self._config, self._config.is_set
        factor = min(REPLICATION_MAX, self._count)
        minimum = min(MIN_ISR_MAX, self._count)
        defaults = {
            "default.replication.factor": factor,
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": minimum,
            "share.coordinator.state.topic.replication.factor": factor,
            "share.coordinator.state.topic.min.isr": minimum,
            "zookeeper.session.timeout.ms": 6000,
        }
        found = {name: str(value) for name, value in defaults.items() if not is_set(name)}
        found["node.id"] = str(number)
        found["metadata.store"] = "zookeeper"
        found["logging.format"] = "text"
        found["zookeeper.connect"] = connect
        found["log.dirs"] = ",".join(str(row / f"broker-{number}") for row in self._folders)
        for name in LISTENERS:
            if name == "listeners" or is_set(name):
                text = ",".join(config.names(name))
                found[name] = ",".join(map(str, shifted(parse_listeners(text, name), number - 1)))
        port = config.integer("metrics.port") if is_set("metrics.port") else METRICS_PORT
        found["metrics.port"] = str(port + number - 1 if port > 0 else port)
        console_port = config.integer("console.port")
        found["console.port"] = str(console_port + number - 1 if console_port > 0 else console_port)
        return found

    def _watch(self, say: Say) -> int:
        """Waits for a signal, or until no broker runs."""
        running = len(self._brokers)
        while running:
            kind, what = self._events.get()
            if kind == "signal":
                return 0
            if kind == "ended":
                assert isinstance(what, _Broker)
                running -= 1
                say(
                    f"broker {what.number} has ended (status {what.process.returncode}). Its log"
                    f" is {what.log}"
                )
        say("no broker runs any more")
        return 1

    def _stop(self, say: Say) -> None:
        def kill(_number: int, _frame: object) -> None:
            for broker in self._brokers:
                broker.process.kill()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, kill)
        say("stopping")
        for broker in self._brokers:
            broker.stop()
        if self._zookeeper is not None:
            self._zookeeper.stop()
        say("stopped")


def shifted(listeners: list[Listener], times: int) -> list[Listener]:
    """Returns the listeners of a later broker: their ports lie above all ports of the former ones.
    Port 0 stays."""
    ports = [row.port for row in listeners if row.port]
    step = max(ports) - min(ports) + 1 if ports else 0
    return [
        Listener(row.name, row.host, row.port + times * step if row.port else 0)
        for row in listeners
    ]
