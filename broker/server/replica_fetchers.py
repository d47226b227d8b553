"""Fetcher threads, which copy partitions from the brokers that lead them: num.replica.fetchers
threads for each leader broker.

A partition belongs to one thread of its leader, by a hash of its name. A thread connects over the
inter-broker listener, and then asks, receives, and applies without the GIL
(cext/replica/fetches.pyx). Between two requests the thread does what a response requires:
truncation, and ListOffsets on the same connection. A thread without partitions ends.

A request waits at the leader for up to replica.fetch.wait.max.ms when there are no records. If a
partition gets a leader meanwhile, acks=all waits for that leader's followers; so the thread drops
the request, with its connection, and sends one with the partition. Kafka's fetchers wait for the
answer. A thread drops one request in replica.fetch.wait.max.ms at most.

A failed connection is logged once for each reason, and tried again after replica.fetch.backoff.ms.
Limits: one request under way; an answer is at most ANSWER_BYTES_MORE larger than
replica.fetch.response.max.bytes and than socket.request.max.bytes, which bounds a batch; the buffer
grows with the bytes received, and one larger than usual is not kept.

Kafka: ReplicaFetcherManager, ReplicaFetcherThread.
"""

import logging
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from barnabas.cext.log.log_handle import LogError
from barnabas.cext.memory.threads import NamedThread
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.replica.fetches import (
    VERSION_MAX,
    VERSION_MIN,
    MalformedFetchAnswer,
    ReplicaFetches,
)
from barnabas.client.connection import Connection
from barnabas.client.failures import CannotConnect, ClientError, NotSpokenByBroker
from barnabas.config import DynamicConfig
from barnabas.errors import KafkaError, error_of
from barnabas.server.follower_truncation import follow_bounds, truncate_to_epoch
from barnabas.wire import request

if TYPE_CHECKING:  # ssl is imported only for connections with TLS
    from barnabas.cext.network.handler import SensorCarrier
    from barnabas.client.security import Security

log = logging.getLogger("barnabas.replicas")

FETCH, LIST_OFFSETS = 1, 2
LIST_OFFSETS_VERSION_MIN = 4  # the first with a leader epoch
LATEST, EARLIEST = -1, -2
ANSWER_BYTES_MORE = 1 << 20  # the fields of an answer beside its records
STOP_TIMEOUT_S = 1.0

Name = tuple[str, int]  # topic, partition


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a followed partition. `topic_id`: 16 bytes."""

    broker_id: int
    epoch: int
    topic_id: bytes


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """replica.* settings, and fetchers for each broker. `version_max`: of Fetch requests; 12 while
    a broker of the cluster knows no topic ids."""

    max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    min_bytes: int = 1
    wait_max_ms: int = 500
    backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000
    receive_buffer_bytes: int = 65536
    batch_bytes_max: int = 100 << 20
    fetchers: int = 1
    version_max: int = VERSION_MAX

    @classmethod
    def of(cls, config: DynamicConfig) -> "FetchSettings":
        integer = config.integer
        return cls(
            max_bytes=integer("replica.fetch.max.bytes"),
            response_max_bytes=integer("replica.fetch.response.max.bytes"),
            min_bytes=integer("replica.fetch.min.bytes"),
            wait_max_ms=integer("replica.fetch.wait.max.ms"),
            backoff_ms=integer("replica.fetch.backoff.ms"),
            socket_timeout_ms=integer("replica.socket.timeout.ms"),
            receive_buffer_bytes=integer("replica.socket.receive.buffer.bytes"),
            batch_bytes_max=integer("socket.request.max.bytes"),
            fetchers=integer("num.replica.fetchers"),
        )

    @property
    def answer_bytes_max(self) -> int:
        return max(self.response_max_bytes, self.batch_bytes_max) + ANSWER_BYTES_MORE


@dataclass(frozen=True, slots=True)
class Brokers:
    """How fetchers reach other brokers. `address` returns host and port of a live broker's
    inter-broker listener, None when it has none; `security` returns what protects the connections;
    `epoch` returns this broker's epoch, -1: none."""

    address: Callable[[int], tuple[str, int] | None]
    security: "Callable[[], Security | None]" = lambda: None
    epoch: Callable[[], int] = lambda: -1


def _ignore(topic: str, index: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Listeners:
    """Called on a fetcher thread with topic and partition. `truncated`: offsets of the partition in
    checkpoints may lie above its log's end, and must be written again; `offline`: its log cannot be
    used, and it is not fetched until it is followed again."""

    truncated: Callable[[str, int], object] = _ignore
    offline: Callable[[str, int], object] = _ignore


class ReplicaFetchers:
    """The fetcher threads of one broker."""

    def __init__(
        self,
        node_id: int,
        table: PartitionTable,
        brokers: Brokers,
        settings: FetchSettings,
        listeners: "Listeners | None" = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        throttle: "SensorCarrier | None" = None,
    ) -> None:
        """`throttle`: counts the records of throttled partitions; None: none is throttled."""
        self._node_id, self._table, self._brokers = node_id, table, brokers
        self._settings, self._listeners = settings, listeners or Listeners()
        self._monotonic_ns = monotonic_ns
        self._throttle = throttle
        self._lock = threading.Lock()
        self._fetchers: dict[tuple[int, int], _Fetcher] = {}
        self._places: dict[Name, tuple[int, int]] = {}
        self._leaders: dict[Name, Leader] = {}
        self._is_stopped = False

    def follow(self, changes: Mapping[Name, Leader | None]) -> None:
        """Follows partitions from the given leaders, or stops to follow them (None). Others stay as
        they are. When it returns, no thread appends for an earlier leader or truncates any more, so
        that this broker may begin to lead the partitions that are None. It may wait for a disk.
        Does nothing after stop()."""
        with self._lock:
            if self._is_stopped:
                return
            changed = {
                name for name, leader in changes.items() if leader != self._leaders.get(name)
            }
            for name, leader in changes.items():
                self._follow(name, leader)
            self._end_idle()
            for place in {self._places[name] for name in changed if name in self._places}:
                self._fetchers[place].ask_again()

    def resize(self, count: int) -> None:
        """Fetches with `count` threads for each leader (num.replica.fetchers) from now on."""
        with self._lock:
            if self._is_stopped or count == self._settings.fetchers:
                return
            self._settings = replace(self._settings, fetchers=count)
            for name, leader in list(self._leaders.items()):
                if self._places[name] != self._place_of(name, leader):
                    self._follow(name, leader)
            self._end_idle()

    def _follow(self, name: Name, leader: Leader | None) -> None:
        place = None if leader is None else self._place_of(name, leader)
        known = self._places.get(name)
        if known is not None and known != place:
            self._fetchers[known].remove(name)
            del self._places[name], self._leaders[name]
        if leader is not None and place is not None:
            self._fetcher(place).add(name, leader)
            self._places[name], self._leaders[name] = place, leader

    def _place_of(self, name: Name, leader: Leader) -> tuple[int, int]:
        return leader.broker_id, self._share_of(name)

    def _share_of(self, name: Name) -> int:
        return (zlib.crc32(name[0].encode()) * 31 + name[1]) % self._settings.fetchers

    def _fetcher(self, place: tuple[int, int]) -> "_Fetcher":
        found = self._fetchers.get(place)
        if found is None:
            found = self._fetchers[place] = _Fetcher(
                place,
                self._node_id,
                self._table,
                self._brokers,
                self._settings,
                self._listeners,
                self._monotonic_ns,
                self._throttle,
            )
            found.start()
        return found

    def _end_idle(self) -> None:
        idle = [place for place, fetcher in self._fetchers.items() if not fetcher.fetches]
        ended = [self._fetchers.pop(place) for place in idle]
        for fetcher in ended:
            fetcher.stop()

    def states(self) -> dict[Name, tuple[int, int, int, bool]]:
        """Returns (leader, leader epoch, lag in records, whether it waits for a new leader or for
        its log) of each followed partition; the lag is -1 before the first answer."""
        with self._lock:
            fetchers = dict(self._fetchers)
        return {
            (topic, index): (broker_id, epoch, lag, waits)
            for (broker_id, _), fetcher in fetchers.items()
            for topic, index, epoch, lag, waits in fetcher.fetches.partitions()
        }

    def stop(self) -> None:
        """Ends all threads, within STOP_TIMEOUT_S seconds unless one connects at that moment; such
        a thread ends by itself and appends nothing any more."""
        with self._lock:
            self._is_stopped = True
            for name, place in self._places.items():
                self._fetchers[place].remove(name)
            self._places.clear()
            self._leaders.clear()
            fetchers = list(self._fetchers.values())
            self._fetchers.clear()
        for fetcher in fetchers:
            fetcher.stop()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for fetcher in fetchers:
            fetcher.join(max(deadline - time.monotonic(), 0))


class _Fetcher:
    """One thread, and the partitions that it fetches from one broker."""

    def __init__(
        self,
        place: tuple[int, int],
        node_id: int,
        table: PartitionTable,
        brokers: Brokers,
        settings: FetchSettings,
        listeners: "Listeners",
        monotonic_ns: Callable[[], int],
        throttle: "SensorCarrier | None",
    ) -> None:
        self._broker_id = place[0]
        self._monotonic_ns = monotonic_ns
        self._node_id, self._table, self._brokers = node_id, table, brokers
        self._settings, self._listeners = settings, listeners
        self.fetches = ReplicaFetches(
            table,
            node_id=node_id,
            max_bytes=settings.max_bytes,
            response_max_bytes=settings.response_max_bytes,
            min_bytes=settings.min_bytes,
            wait_max_ms=settings.wait_max_ms,
            backoff_ms=settings.backoff_ms,
            throttle=throttle,
        )
        self._connection: Connection | None = None
        self._version = 0
        self._buffer = bytearray()
        self._is_stopped = False
        self._is_asking = False  # a request is at the leader
        self._is_dropped = False  # by ask_again; its connection is lost
        self._dropped_ns = -settings.wait_max_ms * 1_000_000  # when the last one was
        self._changed = threading.Event()  # partitions were added, or the stop
        self._deciding = threading.Lock()  # held while a log is truncated
        self._said: dict[Name, str] = {}  # the last problem that was logged
        self._failure = ""
        self._thread = NamedThread(
            target=self._run, name=f"fetcher-{place[0]}-{place[1]}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped = True
        self._changed.set()
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def add(self, name: Name, leader: Leader) -> None:
        self.fetches.add(*name, leader.topic_id, leader.epoch)
        self._changed.set()

    def ask_again(self) -> None:
        """Drops a request that is at the leader, because partitions were added since it was made.
        Only one thread at a time may call it."""
        connection, now_ns = self._connection, self._monotonic_ns()
        is_soon = now_ns - self._dropped_ns < self._settings.wait_max_ms * 1_000_000
        if self._is_asking and connection is not None and not is_soon:
            self._is_dropped, self._dropped_ns = True, now_ns
            connection.interrupt()

    def remove(self, name: Name) -> None:
        with self._deciding:
            self.fetches.remove(*name)
            self._said.pop(name, None)

    # -- the thread

    @property
    def is_awake(self) -> bool:
        """Whether partitions were added, or the stop: either ends a pause of the thread."""
        return self._changed.is_set()

    def _run(self) -> None:
        while not self._is_stopped:
            pause_s = self.step()
            if pause_s > 0:
                self._changed.wait(pause_s)
                self._changed.clear()
        self._disconnect("")

    def step(self) -> float:
        """Sends one request and applies its response. Returns for how many seconds the thread
        pauses then, unless partitions are added. Only one thread may call it."""
        try:
            return self._round()
        except (ClientError, KafkaError, MalformedFetchAnswer) as error:
            is_dropped, self._is_dropped = self._is_dropped, False
            self._disconnect("" if is_dropped else str(error))
            if is_dropped:
                return 0
        except Exception:
            log.exception("fetching from broker %d failed", self._broker_id)
            self._disconnect("")
        finally:
            self._is_asking = False
        return self._settings.backoff_ms / 1000

    def _disconnect(self, why: str) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._buffer = bytearray()
        self.fetches.disconnected()
        if self._is_stopped:
            return
        if why and why != self._failure:
            log.warning(
                "cannot fetch from broker %d: %s. The fetcher tries again every %d ms"
                " (replica.fetch.backoff.ms).",
                self._broker_id,
                why,
                self._settings.backoff_ms,
            )
        self._failure = why

    def _round(self) -> float:
        """As `step`; raises what ends the connection."""
        connection = self._connection or self._connect()
        self.fetches.wait_flushed(self._settings.wait_max_ms)
        now_ns = self._monotonic_ns()
        self.fetches.broker_epoch = self._brokers.epoch()  # a new session brings another
        self._is_asking = True  # before the request is made: it may lack partitions added later
        body = self.fetches.next_request(self._version, now_ns)
        if body is None:
            self._decide_all(self.fetches.take_events())
            delay_ns = self.fetches.delay_ns(now_ns)
            return self._settings.wait_max_ms / 1000 if delay_ns is None else delay_ns / 1e9
        with connection.exchange(FETCH, self._version, body, self._buffer) as answer:
            self._is_asking = False
            events = self.fetches.take_response(answer, self._monotonic_ns())
        if len(self._buffer) > self._settings.response_max_bytes + ANSWER_BYTES_MORE:
            self._buffer = bytearray()
        if self._failure:
            log.info("fetching from broker %d again", self._broker_id)
            self._failure = ""
        self._decide_all(events)
        return 0

    def _connect(self) -> Connection:
        address = self._brokers.address(self._broker_id)
        if address is None:
            raise CannotConnect("it is not alive, or has no inter-broker listener")
        settings = self._settings
        connection = Connection(
            *address,
            client_id=f"broker-{self._node_id}-{self._thread.name}",
            connect_timeout_s=settings.socket_timeout_ms / 1000,
            answer_timeout_s=(settings.socket_timeout_ms + settings.wait_max_ms) / 1000,
            answer_bytes_max=settings.answer_bytes_max,
            security=self._brokers.security(),
            receive_buffer_bytes=settings.receive_buffer_bytes,
        )
        self._connection = connection
        if self._is_stopped:
            connection.interrupt()  # stop() may have come before the connection was known
        lowest, newest = connection.versions.get(FETCH, (0, 0))
        self._version = min(newest, VERSION_MAX, settings.version_max)
        if not max(lowest, VERSION_MIN) <= self._version:
            raise NotSpokenByBroker(
                f"it serves Fetch versions {lowest} to {newest}, but followers need at least"
                f" version {VERSION_MIN} (Kafka 2.7)"
            )
        return connection

    # -- what an answer leaves to decide

    def _decide_all(self, events: list[tuple[str, int, str, Any]]) -> None:
        """Handles the events of an answer. A failure concerns its own partition only, which waits
        (Kafka: AbstractFetcherThread.markPartitionFailed); the others are fetched on."""
        for topic, index, kind, detail in events:
            try:
                if kind in ("diverged", "out of range", "below start"):
                    self._change_log((topic, index), kind, detail)
                else:
                    self._say((topic, index), kind, detail)
            except (OSError, LogError) as error:
                log.error("%s-%d: its log cannot be truncated: %s", topic, index, error)
                self._listeners.offline(topic, index)
            except (ClientError, KafkaError) as error:
                # The next answer says the same again, and the next request sees a lost connection.
                log.info("%s-%d: the leader's offsets are not known: %s", topic, index, error)
                again_ns = self._monotonic_ns() + self._settings.backoff_ms * 1_000_000
                self.fetches.restart(topic, index, not_before_ns=again_ns)
            except Exception:
                log.exception(
                    "%s-%d: following it failed. It is not fetched until its leader or leader"
                    " epoch changes, or until this broker starts again.",
                    topic,
                    index,
                )

    def _change_log(self, name: Name, kind: str, detail: Any) -> None:
        """Truncates the log of a partition that waits, and fetches it again. Raises LogError, and
        ClientError without the leader's bounds."""
        bounds = self._bounds_of(name) if kind == "out of range" else None
        with self._deciding:
            partition = self._table.partition(*name)
            own = partition.log if partition is not None else None
            if partition is None or own is None or not self.fetches.waits(*name):
                return
            title, high_watermark, read_from = (
                f"{name[0]}-{name[1]}",
                partition.high_watermark,
                -1,
            )
            if kind == "diverged":
                truncate_to_epoch(title, own, high_watermark, *detail)
            elif bounds is not None:
                follow_bounds(title, own, high_watermark, *bounds)
            elif kind == "below start":
                read_from = own.end_offset
                own.truncate_fully_and_start_at(detail)
            else:
                return
            self.fetches.restart(*name, read_from=read_from)
        self._listeners.truncated(*name)

    def _bounds_of(self, name: Name) -> tuple[int, int] | None:
        """Asks the leader where its log begins and ends. None: the partition is not followed any
        more. Raises ClientError, and KafkaError when the leader does not answer."""
        epochs = {row[:2]: row[2] for row in self.fetches.partitions()}
        if name not in epochs or self._connection is None:
            return None
        found = []
        for timestamp in (EARLIEST, LATEST):
            kind = request(LIST_OFFSETS)
            part = kind.struct("topics.partitions")(
                partitionIndex=name[1], currentLeaderEpoch=epochs[name], timestamp=timestamp
            )
            topic = kind.struct("topics")(name=name[0], partitions=[part])
            body = kind.cls(replicaId=self._node_id, topics=[topic])
            answer = self._connection.call(LIST_OFFSETS, body, low=LIST_OFFSETS_VERSION_MIN)
            (row,) = [part for topic in answer.topics for part in topic.partitions]
            if row.errorCode != 0:
                raise error_of(row.errorCode)(f"ListOffsets of {name[0]}-{name[1]}")
            found.append(row.offset)
        return found[0], found[1]

    def _say(self, name: Name, kind: str, detail: Any) -> None:
        """Logs a problem of a partition once, until another comes."""
        if kind == "offline":
            self._listeners.offline(*name)
        with self._deciding:
            if self._said.get(name) == kind:
                return
            self._said[name] = kind
        title = f"{name[0]}-{name[1]}" if name[0] else "all partitions"
        level, text = WORDS[kind]
        if kind in CODED:
            detail = f"{detail} ({error_of(detail).__name__})"
        log.log(level, f"%s of broker %d: {text}", title, self._broker_id, detail)


CODED = ("unknown epoch", "not leader", "unknown topic", "error", "refused")
WORDS = {
    "fenced": (logging.INFO, "the leader is in a later epoch than %s; waits for the controller"),
    "offline": (logging.ERROR, "its log cannot be used here, and it is not fetched (%s)"),
    "unknown epoch": (logging.INFO, "the broker does not lead it in this epoch yet: %s"),
    "not leader": (logging.INFO, "the broker does not lead it: %s"),
    "unknown topic": (logging.INFO, "the broker does not have it: %s"),
    "corrupt": (
        logging.ERROR,
        "records at offset %s were received damaged; fetched again after a pause. Check the"
        " leader's disk if this goes on",
    ),
    "storage": (logging.ERROR, "cannot write its log at offset %s: see the log directory's disk"),
    "error": (logging.WARNING, "error code %s"),
    "refused": (logging.ERROR, "the broker refuses Fetch requests of this one: %s"),
}
