"""One broker inside this process: the class that `from barnabas import Broker` gives.

It is the broker of `barnabas start`, on a free port. Without `log.dirs` it keeps its data in a
directory of its own, in memory where enough is free, and removes the directory when it stops. It
changes no state of the process, so several brokers may run side by side.

A fork copies the memory of a process but none of its threads, so a forked child has no broker. The
child's handle raises BrokerNotRunning. The child closes the files and sockets that it inherited,
and may start a broker of its own.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet, finalize

from barnabas.cext.memory.sys import SystemCalls, keep_for_ever
from barnabas.config import BrokerConfig
from barnabas.controller.topics import NewTopic
from barnabas.errors import KafkaError
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.memory import MemoryStore
from barnabas.metadata.znodes import uuid_text
from barnabas.node import Node, open_embedded
from barnabas.storage.scratch_dir import make_scratch_dir, remove_tree
from barnabas.testing.clock import BrokerClock
from barnabas.testing.faults import DiskFault, DiskFaults, Drop, Fault, Faults
from barnabas.testing.records import Expected, Record, difference, read_records

if TYPE_CHECKING:
    from types import TracebackType

    from barnabas.cext.memory.sys import Call
    from barnabas.metadata.tree import MetadataTree

# A test gains nothing from these defaults of Kafka, and they cost time: threads, fifty partitions
# of an internal topic, and the wait for more members before a group's first rebalance.
FOR_TESTS = {
    "num.network.threads": "1",
    "num.io.threads": "4",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
# Each of these names, some of them Kafka's older ones, sets the place of the data or the port.
LOG_DIRS = ("log.dirs", "log.dir")
LISTENERS = ("listeners", "host.name", "port")
COMMIT_TIMEOUT_MS = 10_000
POLL_S = 0.005


class BrokerNotRunning(RuntimeError):
    """The broker has not started, has stopped, or runs in a parent process."""


class _Run:
    """The resources of one handle. They live apart from the handle, so that Python can collect a
    handle that no test stopped, and release them."""

    def __init__(self, settings: dict[str, str], durable: bool, scratch: Path | None) -> None:
        self.settings = settings
        self.durable = durable
        self.scratch = scratch
        self.pid = os.getpid()
        self.serves = False
        self.ended = False
        self.system = SystemCalls()
        self.disk = DiskFaults(self.system)
        self.faults = Faults(self.topic_of_id)
        self.store = MemoryStore() if scratch is not None and not durable else None
        self.node = self.new_node()

    def new_node(self) -> Node:
        config = BrokerConfig(self.settings)
        return Node(config, self.system, open_tree=self.open_tree, gate=self.faults.gate)

    def open_tree(self, directory: Path, wall_ms: Callable[[], int]) -> MetadataTree:
        if self.durable:
            return open_embedded(directory, wall_ms)
        if self.store is not None:
            return EmbeddedTree(directory, clock_ms=wall_ms, store=self.store)
        # The files outlive the broker, so SQLite holds the metadata.
        from barnabas.metadata.database import Database

        store = Database(directory, synced=False)
        return EmbeddedTree(directory, clock_ms=wall_ms, store=store)

    def topic_of_id(self, topic_id: bytes) -> str | None:
        found = self.node.cluster().topic_by_id(uuid_text(topic_id))
        return found.name if found is not None else None

    def serve(self) -> None:
        self.node.start()
        self.faults.attach(self.node.reactor, self.node.handlers)
        self.serves = True

    def rest(self) -> None:
        self.serves = False
        self.faults.detach()
        self.node.stop()
        self.faults.release()

    def end(self) -> None:
        if self.ended or os.getpid() != self.pid:
            return
        self.ended = True
        self.rest()
        if self.scratch is not None:
            remove_tree(self.scratch)

    def forgotten(self) -> None:
        """Stops the broker when Python collects its handle or the process ends. The collection may
        run on one of the broker's own threads (all are daemons), which cannot wait for itself."""
        if threading.current_thread().daemon:
            threading.Thread(target=self.end, name="broker-end").start()
        else:
            self.end()


class Broker:
    """One broker inside this process; several may run side by side.

    `settings` maps Kafka's names of settings to values; the broker reads neither the environment
    nor files. `durable`: whether an acknowledged record is on disk; with False the broker is
    faster, and a crash of the machine loses records. The default is True with `log.dirs`, otherwise
    False. The constructor raises ConfigError for a bad setting, and `start` raises CannotStart."""

    def __init__(
        self, settings: Mapping[str, object] | None = None, *, durable: bool | None = None
    ) -> None:
        given = {name: _text(value) for name, value in (settings or {}).items()}
        kept = not given.keys().isdisjoint(LOG_DIRS)
        durable = kept if durable is None else durable
        scratch = None
        if not kept:
            scratch = make_scratch_dir(durable)
            given = FOR_TESTS | {"log.dirs": str(scratch)} | given
        if not durable:
            given = {"log.durability": "os"} | given
        try:
            if given.keys().isdisjoint(LISTENERS):
                given = {"listeners": "PLAINTEXT://127.0.0.1:0"} | given
            self._run = _Run(given, durable, scratch)
        except BaseException:
            if scratch is not None:
                remove_tree(scratch)
            raise
        self._forgotten = finalize(self, self._run.forgotten)

    # -- start and stop -------------------------------------------------------------------------

    def start(self) -> Broker:
        """Starts the broker; returns when it serves clients. A broker starts once; see `restart`.
        Raises CannotStart and BrokerNotRunning."""
        self._check_process()
        if self._run.serves or self._run.ended:
            raise BrokerNotRunning("a broker starts once: make another Broker, or use restart()")
        _running.add(self)
        try:
            self._run.serve()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stops the broker cleanly: closes connections, ends threads, frees ports and descriptors,
        and removes its files unless `log.dirs` was given. A second call does nothing, nor does a
        call in a forked child."""
        self._forgotten.detach()
        self._run.end()
        _running.discard(self)

    def restart(self) -> None:
        """Stops the broker cleanly and starts it on the same ports, with the same data, faults and
        clock."""
        run = self._running_here()
        bound = [f"{row.name}://{row.host}:{row.port}" for row in run.node.listening]
        run.settings["listeners"] = ",".join(bound)
        run.rest()
        run.node = run.new_node()
        try:
            run.serve()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _check_process(self) -> None:
        if os.getpid() != self._run.pid:
            raise BrokerNotRunning(
                f"this broker runs in process {self._run.pid}; this process is its forked child"
                f" {os.getpid()}: connect to the parent's broker, or start another Broker here"
            )

    def _running_here(self) -> _Run:
        self._check_process()
        if not self._run.serves:
            raise BrokerNotRunning("this broker has not started, or it has stopped")
        return self._run

    # -- for tests ------------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """The internal parts of the broker. They may change with any release."""
        self._check_process()
        return self._run.node

    @property
    def bootstrap_servers(self) -> str:
        """Returns `host:port` of the first listener, with the bound port. Raises
        BrokerNotRunning."""
        first = self._running_here().node.listening[0]
        return f"{first.host}:{first.port}"

    @property
    def directory(self) -> Path:
        """Returns the first log directory."""
        return Path(self._run.node.config.log_dirs[0])

    @property
    def clock(self) -> BrokerClock:
        """Returns the clock of this broker: `broker.clock.advance(hours=1)`. Raises
        BrokerNotRunning."""
        node = self._running_here().node
        return BrokerClock(node.clock, node.background)

    @property
    def topics(self) -> list[str]:
        """Returns the names of all topics without Kafka's internal ones."""
        state = self._running_here().node.cluster()
        return sorted(
            name
            for name, row in state.topics.items()
            if not row.deleting and not name.startswith("__")
        )

    def create_topic(
        self, name: str, partitions: int = 1, *, configs: Mapping[str, object] | None = None
    ) -> str:
        """Creates a topic and returns its name; producers may write to it at once. Raises
        TopicAlreadyExists and the other errors of CreateTopics."""
        texts = {key: _text(value) for key, value in (configs or {}).items()}
        topics = self._running_here().node.serving.administration.topics
        topics.create(NewTopic(name, partition_count=partitions, configs=texts))
        return name

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and its records; returns when this broker has deleted them. Raises
        UnknownTopicOrPartition."""
        deletion = self._running_here().node.serving.administration.deletion
        for error in deletion.delete([name]).values():
            raise error

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """Returns all records that a consumer of the whole topic would get, partition by partition;
        an empty list for a topic that does not exist. `partition`: None for all. This reads the log
        and sends no request, so no protocol fault affects it."""
        node = self._running_here().node
        found: list[Record] = []
        known = node.cluster().topic(topic)
        indexes = sorted(known.partitions) if known is not None and not known.deleting else []
        size_max = node.config.integer("max.decompressed.bytes")
        for index in indexes:
            if partition not in (None, index):
                continue
            row = node.loaded.replicas.partition(topic, index)
            log = node.loaded.replicas.log(topic, index)
            if row.high_watermark < log.end_offset:
                row.commit(COMMIT_TIMEOUT_MS)
            found += read_records(log, index, row.high_watermark, size_max=size_max)
        return found

    def assert_records(
        self,
        topic: str,
        expected: Iterable[Expected],
        *,
        partition: int | None = None,
        in_order: bool | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        """Raises AssertionError unless the topic holds exactly the expected records within
        `timeout_s` seconds.

        An expected record is a value, a pair (key, value), a mapping of Record's fields, or a
        Record. The order counts when the topic has one partition; `in_order` overrides that."""
        __tracebackhide__ = True
        wanted = list(expected)
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.records(topic, partition)
            ordered = len({row.partition for row in found}) <= 1 if in_order is None else in_order
            why = difference(topic, found, wanted, ordered)
            if not why:
                return
            if time.monotonic() >= deadline:
                raise AssertionError(why)
            time.sleep(POLL_S)

    # -- faults ---------------------------------------------------------------------------------

    def fail(
        self,
        api: str | int,
        error: str | int | type[KafkaError],
        *,
        times: int | None = 1,
        delay_ms: float = 0,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Makes the broker answer the next `times` (None: all) requests of an API with an error,
        without carrying them out: `fail("Fetch", "OFFSET_OUT_OF_RANGE")`. The response has the
        error where the protocol puts the errors of that API. `topic`, `client_id`: only requests
        that name this topic, or come from this client. `delay_ms`: the delay of each response. The
        broker carries out a request whose response has no field for an error. Raises ValueError for
        an unknown API or error."""
        return self._lay(
            api, error, delay_ms=delay_ms, times=times, topic=topic, client_id=client_id
        )

    def delay(
        self,
        api: str | int,
        *,
        ms: float,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Delays the next requests of an API by `ms` before the broker carries them out. The other
        arguments and errors are those of `fail`."""
        return self._lay(api, None, delay_ms=ms, times=times, topic=topic, client_id=client_id)

    def drop(
        self,
        api: str | int,
        *,
        after: bool = False,
        times: int | None = 1,
        delay_ms: float = 0,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Closes the connections of the next requests without a response. With `after`, the broker
        carries out the request first, so that the client cannot know the outcome. The other
        arguments and errors are those of `fail`."""
        return self._lay(
            api,
            None,
            drop="after" if after else "before",
            delay_ms=delay_ms,
            times=times,
            topic=topic,
            client_id=client_id,
        )

    def fail_disk(
        self, call: Call = "pwritev", error: int = 5, *, times: int | None = None
    ) -> DiskFault:
        """Makes a system call on this broker's logs fail with an errno (5: EIO), from now on or
        `times` times. Calls: pread pwritev fdatasync ftruncate open rename unlink ..."""
        self._check_process()
        return self._run.disk.lay(call, error, times)

    def fill_disk(self, *, times: int | None = None) -> DiskFault:
        """Makes writes to a log fail with ENOSPC (no space left on the device): the next `times`
        writes, None: all until `clear_faults`. Returns the fault, which also is a context
        manager."""
        return self.fail_disk("pwritev", 28, times=times)

    def clear_faults(self) -> None:
        """Removes every fault, of the protocol and of the disk."""
        self._check_process()
        self._run.faults.remove()
        self._run.disk.clear()

    def _lay(
        self,
        api: str | int,
        error: str | int | type[KafkaError] | None,
        *,
        delay_ms: float,
        times: int | None,
        topic: str | None,
        client_id: str | None,
        drop: Drop = None,
    ) -> Fault:
        self._check_process()
        return self._run.faults.lay(
            api,
            error,
            delay_ms=delay_ms,
            drop=drop,
            times=times,
            topic=topic,
            client_id=client_id,
        )

    # -- a forked child -------------------------------------------------------------------------

    def _forsake(self) -> None:
        """Closes, in a forked child, the descriptors of the parent's broker. The child never uses
        or frees the objects of that broker again."""
        keep_for_ever(self._run)
        keep_for_ever(self._run.node)
        ports = {row.port for row in self._run.node.listening}
        _close_inherited(ports, self._run.node.config.log_dirs)


# Only a fork uses this set: no other code knows of more than one broker.
_running: WeakSet[Broker] = WeakSet()


def _forsake_all() -> None:
    for broker in list(_running):
        broker._forsake()
    _running.clear()


os.register_at_fork(after_in_child=_forsake_all)


def _close_inherited(ports: Collection[int], directories: Iterable[str]) -> None:
    """Closes the descriptors of a broker: files below its directories, its listening sockets, and
    the connections that they accepted."""
    below = tuple(f"{os.path.realpath(directory)}/" for directory in directories)
    for text in os.listdir("/proc/self/fd"):
        fd = int(text)
        with suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{fd}")
            if path.startswith(below) or (path.startswith("socket:") and _port_of(fd) in ports):
                os.close(fd)


def _port_of(fd: int) -> int | None:
    """Returns the local port of a TCP socket."""
    borrowed = socket.socket(fileno=fd)
    try:
        if borrowed.family in (socket.AF_INET, socket.AF_INET6):
            return int(borrowed.getsockname()[1])
        return None
    finally:
        borrowed.detach()


def _text(value: object) -> str:
    """Formats the value of a setting as Kafka's properties files do."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
