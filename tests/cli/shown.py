"""Runs what a page of the documentation or the help of a command shows, as it stands there.

A `barnabas` that names no broker uses the one of the test, which also stands in for the address
127.0.0.1:9092 of the pages. `barnabas start` runs beside the commands after it, and they use its
broker. tests/cli/not_run.tsv lists what does not run, and why."""

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from durability.broker_process import free_port

from barnabas import Broker
from barnabas.client import Cluster, Producer
from barnabas.client.groups import commit_offsets

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "127.0.0.1:9092"
TIMEOUT_S = 250
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^(?:.*\\\n)*.+", re.M)  # with the lines that a backslash joins
START = re.compile(r"(?:\w+=\S+ )*barnabas (?:start|dev)\b")
SAY_WHAT_FAILED = "set -e\ntrap 'echo \"failed: $BASH_COMMAND\" >&2' ERR\n"
PROGRAM = """\
#!{python}
import os, sys
from barnabas.cli import connecting, main
connecting.BOOTSTRAP = os.environ["BROKER_OF_THE_TEST"]
sys.exit(main())
"""


class Block(NamedTuple):
    kind: str  # sh, python, properties, toml, yaml; "" for a line of a log
    text: str


@dataclass
class Needs:
    """What a page or a help needs to run. `{name}` in the values of `replaced` is an address, port
    or folder of the test."""

    settings: Mapping[str, str] = field(default_factory=dict)  # of its broker
    before: str = ""  # shell commands: the topics, groups and files that it uses
    replaced: Mapping[str, str] = field(default_factory=dict)  # what stands there, and here instead
    shown: tuple[str, ...] = ()  # texts of the page that its commands must print
    python: str = ""  # what the Python of the page takes for granted
    stdin: str = "key:value\n"  # of `barnabas produce` without a file


def blocks(text: str) -> list[Block]:
    return [Block(kind, inner) for kind, inner in FENCE.findall(text)]


def commands(block: Block) -> list[str]:
    """The commands of a shell block; any other block as a whole."""
    return COMMAND.findall(block.text) if block.kind == "sh" else [block.text]


class NotRun(NamedTuple):
    """A line of not_run.tsv."""

    place: str
    beginning: str
    why: str

    def is_about(self, place: str, text: str) -> bool:
        return self.place == place and re.match(self.beginning, text) is not None


NOT_RUN = [
    NotRun(*line.split("\t"))
    for line in Path(__file__).with_name("not_run.tsv").read_text().splitlines()
    if not line.startswith("#")
]


def runs(place: str, text: str) -> bool:
    """Whether a test runs a command or a block of a page, or of the help of a command."""
    return not any(row.is_about(place, text) for row in NOT_RUN)


class Shell:
    """Runs commands in a folder. `replaced`: what stands in a command, and what runs instead."""

    def __init__(
        self, folder: Path, address: str, replaced: Iterable[tuple[str, str]] = (), **environ: str
    ) -> None:
        self.folder, self._address = folder, address
        self._replaced = dict(replaced)
        self._broker: subprocess.Popen[str] | None = None
        self._numbers = itertools.count(1)
        self.printed = ""  # on both outputs, by all commands
        programs = folder / ".programs"
        programs.mkdir(parents=True)
        (programs / "barnabas").write_text(PROGRAM.format(python=sys.executable))
        (programs / "barnabas").chmod(0o700)
        path = os.pathsep.join(
            [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        )
        self._environ = os.environ | {"PATH": path} | environ

    def __enter__(self) -> "Shell":
        return self

    def __exit__(self, *_raised: object) -> None:
        self._stop()

    def here(self, text: str) -> str:
        """The text with the names of the test in place of those of the page."""
        for old, new in {ADDRESS: self._address, **self._replaced}.items():
            text = text.replace(old, new)
        return text

    def run(self, text: str, stdin: str = "") -> str:
        """Returns the standard output. A command that fails ends the script, and the test."""
        out, script = "", ""
        for command in COMMAND.findall(text):
            if START.match(command):
                out += self._run(script, stdin)
                script = ""
                self._start(self.here(command))
            else:
                script += command + "\n"
        return out + self._run(script, stdin)

    def _run(self, script: str, stdin: str) -> str:
        if not script:
            return ""
        done = subprocess.run(
            ["bash", "-c", SAY_WHAT_FAILED + self.here(script)],
            cwd=self.folder,
            env=self._environ | {"BROKER_OF_THE_TEST": self._address},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        self.printed += done.stdout + done.stderr
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
        return done.stdout

    def _start(self, command: str) -> None:
        """Starts the broker and waits until it is ready. A listener, directory and port that the
        command does not set are those of the test."""
        self._stop()
        data = self.folder / f"started-{next(self._numbers)}"
        ours = {
            "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0",
            "KAFKA_LOG_DIRS": str(data),
            "KAFKA_METRICS_PORT": "-1",
        }
        self._broker = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environ | ours | {"BROKER_OF_THE_TEST": self._address},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._broker.stderr is not None
        lines = []
        for line in self._broker.stderr:
            lines.append(line)
            if ready := re.match(r"ready: \w+://(\S+)", line):
                break
        self.printed += "".join(lines)
        assert lines and ready, lines
        self._address = ready[1]

    def _stop(self) -> None:
        if self._broker is not None:
            os.killpg(self._broker.pid, signal.SIGTERM)
            self.printed += self._broker.communicate(timeout=30)[1]
            self._broker = None


@contextmanager
def stage(needs: Needs, folder: Path) -> Iterator[Shell]:
    """A shell in a new folder, with the broker and all else that a page or a help needs."""
    with ExitStack() as stack:
        named = Named(stack, folder)
        settings = {key: value.format_map(named) for key, value in needs.settings.items()}
        named["broker"] = stack.enter_context(Broker(settings)).bootstrap_servers
        replaced = [(old, new.format_map(named)) for old, new in needs.replaced.items()]
        shell = stack.enter_context(Shell(folder, named["broker"], replaced, HOME=str(folder)))
        shell.run(needs.before)
        shell.printed = ""
        yield shell


class Named(dict[str, str]):
    """What `{name}` stands for in `Needs`; made when it is asked for."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        super().__init__(folder=str(folder), root=str(ROOT))
        self._stack, self._folder = stack, folder

    def __missing__(self, name: str) -> str:
        makers = {"port": self._port, "stopped": self._stopped, "damaged": self._damaged}
        self[name] = makers.get(name, self._other)()
        return self[name]

    def _port(self) -> str:
        return str(free_port())

    def _other(self) -> str:
        """The address of another broker: topics news and orders, group readers."""
        broker = self._stack.enter_context(Broker())
        for topic in ("news", "orders"):
            broker.create_topic(topic, partitions=2)
        with Cluster(broker.bootstrap_servers) as cluster:
            commit_offsets(cluster, "readers", {"news": {0: 0}})
        return broker.bootstrap_servers

    def _stopped(self) -> str:
        """The directory of a broker that was stopped: topic news with one record, group readers."""
        data = self._folder / ".stopped"
        with Broker({"log.dirs": data}, durable=False) as broker:
            broker.create_topic("news")
            with Cluster(broker.bootstrap_servers) as cluster:
                with Producer(cluster, "news") as producer:
                    producer.send(b"hello")
                commit_offsets(cluster, "readers", {"news": {0: 1}})
        return str(data)

    def _damaged(self) -> str:
        """A copy of it in which a batch has a wrong checksum."""
        data = self._folder / ".damaged"
        shutil.copytree(self["stopped"], data)
        [log] = (data / "news-0").glob("*.log")
        log.write_bytes(log.read_bytes().replace(b"hello", b"hellO"))
        return str(data)
