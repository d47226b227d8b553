"""One source of a mirror: reads as a member of a group, writes to the target, then commits.

One thread reads messages from the connector's stream, gives them to its own Delivery, and commits
offsets of the source when the target has acknowledged everything below them, every
`commit_interval_ms` and before partitions go to another member. A mirror that starts again after a
crash reads the uncommitted messages again: delivery is at least once. Retries have no limit. A
message that the target rejects with a final error ends the mirror, because it would otherwise lose
the message.

Limits: GATHER messages or GATHER_BYTES at a time, plus one message; PENDING_BYTES that are not
acknowledged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from barnabas.client.cluster import Cluster
from barnabas.client.delivery import Batch, Cancelled, Delivery
from barnabas.client.failures import ClientError
from barnabas.client.offsets import LATEST, list_offsets
from barnabas.clients.consumer.connector import ConsumerConnector
from barnabas.clients.consumer.offset_stores import StoreFailed
from barnabas.clients.consumer.streams import ConsumerTimeout, KafkaStream
from barnabas.clients.consumer.topic_filter import TopicFilter
from barnabas.clients.mirror.flights import Flight, Flights, Position
from barnabas.clients.mirror.target_topics import TargetTopics
from barnabas.clients.producer.event_sender import EventSender
from barnabas.errors import KafkaError
from barnabas.hooks.views import KeyedMessage, MirroredMessage

log = logging.getLogger("barnabas.mirror")

GATHER = 1000
GATHER_BYTES = 1024 * 1024
PENDING_BYTES = 16 * 1024 * 1024
WAIT_S = 0.05
STEP_S = 0.005
FLUSH_S = 20.0  # longest wait for the target before partitions go to another member
RETRY_S = 1.0
PASSING = (ClientError, KafkaError, StoreFailed)

MessageHandler = Callable[[str, Sequence[MirroredMessage]], Sequence[KeyedMessage]]


class SourceIsTarget(ValueError):
    """The source and the target are the same cluster."""


class MirrorSource:
    """One source. `settings`: the settings of its connector. `make_sender` takes the callback for
    batches that have ended. `failed` is called once, on the source's thread, when the source cannot
    continue."""

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any],
        topic_filter: TopicFilter,
        *,
        make_sender: Callable[..., tuple[EventSender, Delivery]],
        topics: TargetTopics,
        observer: Cluster,
        handler: MessageHandler | None,
        keeps_partitions: bool,
        commit_interval_ms: int,
        failed: Callable[[MirrorSource, BaseException], None],
    ) -> None:
        self.name = name
        self.error: BaseException | None = None
        self.records: Counter[str] = Counter()  # acknowledged messages by target topic
        self.size_bytes: Counter[str] = Counter()
        self.committed: dict[Position, int] = {}
        self.is_at_end = (
            False  # the target has everything below the ends that `reaches_ends` fetched
        )
        self._reads_on = True
        self._ends: dict[Position, int] = {}
        self._topics, self._observer = topics, observer
        self._handler, self._keeps_partitions = handler, keeps_partitions
        self._commit_s = commit_interval_ms / 1000
        self._failed = failed
        self._flights = Flights()
        self._refused: Exception | None = None
        self._stopping = threading.Event()
        self._releases: threading.Event | None = None  # set when partitions may go
        self._is_over = False
        self._sender, self.delivery = make_sender(self._ended)
        self._connector = ConsumerConnector(settings)
        self._connector.set_consumer_rebalance_listener(self)
        self._filter = topic_filter
        self._thread = threading.Thread(target=self._run, name=f"mirror-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, wait_s: float) -> None:
        """Stops when the target has every message that was read, or after `wait_s` seconds."""
        if self._thread.ident is None:
            self._close()  # the thread was never started
            return
        self._stopping.set()
        self.delivery.wake()
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self.delivery.cancel()
            self._thread.join()

    def lags(self) -> dict[Position, int]:
        """Returns the number of unread offsets of each partition that this source reads. One other
        thread at a time may call it. Raises ClientError, KafkaError."""
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in self._connector.positions().items():
            by_topic.setdefault(topic, {})[partition] = offset
        found = {}
        for topic, positions in by_topic.items():
            ends = list_offsets(self._observer, topic, dict.fromkeys(positions, LATEST))
            for partition, offset in positions.items():
                end = ends[partition].offset
                found[topic, partition] = end if offset < 0 else max(end - offset, 0)
        return found

    def reaches_ends(self) -> bool:
        """Returns whether the target has acknowledged everything below the ends.

        The first call that finds a partition assigned fetches its end, once, so that a source with
        steady writes has an end too. Reading stops there, and at once if no topic matches. One
        thread may call it, but not the source's own. Raises ClientError, KafkaError."""
        positions = self._connector.assigned_positions()
        if positions is None:
            return self.is_at_end
        by_topic: dict[str, list[int]] = {}
        for topic, partition in positions.keys() - self._ends.keys():
            by_topic.setdefault(topic, []).append(partition)
        for topic, partitions in by_topic.items():
            found = list_offsets(self._observer, topic, dict.fromkeys(partitions, LATEST))
            self._ends.update({(topic, index): row.offset for index, row in found.items()})
        if all(max(offset, 0) >= self._ends[at] for at, offset in positions.items()):
            self._reads_on = False
        return self.is_at_end

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._check_target()
            (stream,) = self._connector.create_message_streams_by_filter(self._filter, 1)
            self._work(stream)
            self._flush(None)
            self._commit(retries=True)
        except Cancelled:
            log.warning("source %s: stopped before the target had everything", self.name)
        except BaseException as error:
            self.error = error
            self._failed(self, error)
        finally:
            self._close()

    def _check_target(self) -> None:
        """Raises ValueError when the source is the target: each record would be read and written
        again, without end. Waits until both clusters answer."""
        while not self._stopping.is_set():
            try:
                is_target = self._topics.source_is_target()
            except PASSING as error:
                log.warning("source %s: cannot compare the cluster ids yet: %s", self.name, error)
                self._stopping.wait(RETRY_S)
                continue
            if is_target:
                raise SourceIsTarget(
                    "the source and the target are the same cluster, so every record would be"
                    " copied again without end. Name another cluster with --target or"
                    " --target-config"
                )
            return

    def _work(self, stream: KafkaStream) -> None:
        commit_at = time.monotonic() + self._commit_s
        while not self._stopping.is_set():
            reads_on = self._reads_on
            messages = list(self._gathered(stream)) if reads_on else []
            if messages:
                self._pass_on(messages)
            is_at_rest = not messages and self._flights.is_empty
            self.is_at_end = is_at_rest and not reads_on
            self._step(STEP_S if messages else 0 if is_at_rest and reads_on else WAIT_S)
            while self.delivery.pending_bytes > PENDING_BYTES and not self._stopping.is_set():
                self._step(WAIT_S)
            self._let_go()
            if time.monotonic() >= commit_at:
                self._commit()
                commit_at = time.monotonic() + self._commit_s

    def _gathered(self, stream: KafkaStream) -> Iterator[Any]:
        size_bytes = 0
        try:
            for _ in range(GATHER):
                message = next(stream)
                yield message
                size_bytes += len(message.raw_message or b"") + len(message.raw_key or b"")
                if size_bytes >= GATHER_BYTES:
                    return
        except (ConsumerTimeout, StopIteration):
            return

    def _step(self, wait_s: float) -> None:
        self.delivery.step(wait_s)
        if self._refused is not None:
            raise self._refused

    def _pass_on(self, messages: Sequence[Any]) -> None:
        positions = {(row.topic, row.partition): row.offset + 1 for row in messages}
        events = self._events(messages)
        flight = Flight(positions, len(events))
        self._flights.add(flight)
        if not events:
            return
        source_topic = messages[0].topic
        places = {(event.topic, event.partition) for event in events}
        own = {row.topic for row in messages}
        for topic, partition in places:
            self._ensure(topic, topic if topic in own else source_topic, partition)
        self._sender.send(events, flight)

    def _events(self, messages: Sequence[Any]) -> Sequence[KeyedMessage]:
        if self._handler is None:
            keeps = self._keeps_partitions
            return [
                KeyedMessage(
                    row.topic,
                    row.raw_message,
                    row.raw_key,
                    None,
                    row.headers,
                    row.timestamp,
                    row.partition if keeps else None,
                )
                for row in messages
            ]
        shown = [
            MirroredMessage(
                row.topic,
                row.partition,
                row.offset,
                row.timestamp,
                row.raw_key,
                row.raw_message,
                row.headers,
            )
            for row in messages
        ]
        made = self._handler(self.name, shown)
        if not all(isinstance(row, KeyedMessage) for row in made):
            raise TypeError("the message handler must return KeyedMessages")
        return made

    def _ensure(self, topic: str, source_topic: str, partition: int | None) -> None:
        while True:
            try:
                self._topics.ensure(topic, source_topic, partition)
                return
            except PASSING as error:
                if isinstance(error, KafkaError) and not error.retriable:
                    raise
                log.warning("topic %s of the target: %s", topic, error)
            until = time.monotonic() + RETRY_S
            while time.monotonic() < until:  # messages in flight continue
                self._step(WAIT_S)

    def _ended(self, batch: Batch, error: Exception | None) -> None:
        """Called when a batch of the Delivery has ended."""
        if error is not None:
            self._refused = error
            return
        self.records[batch.place.topic] += len(batch.records)
        self.size_bytes[batch.place.topic] += batch.size_bytes
        for flight, count in batch.notes:
            flight.left -= count

    # -- offsets of the source --------------------------------------------------------------------

    def _commit(self, retries: bool = False) -> None:
        """Commits the offsets below which the target has everything. The next commit repeats a
        failed one."""
        positions = self._flights.take_safe()
        if not positions:
            return
        try:
            self._connector.commit_offsets(positions, retry_on_failure=retries)
            self.committed.update(positions)
        except PASSING as error:
            log.warning("source %s: cannot commit offsets: %s", self.name, error)
            self._flights.put_back(positions)

    def _flush(self, wait_s: float | None) -> None:
        """Waits until the target has every message that was read, or for `wait_s` seconds (None: no
        limit)."""
        deadline = None if wait_s is None else time.monotonic() + wait_s
        while not self._flights.is_empty:
            if deadline is not None and time.monotonic() > deadline:
                return
            self._step(WAIT_S)

    def before_releasing_partitions(self, owned: Mapping[str, set[int]]) -> None:
        """Called on the connector's thread before partitions go to another member; waits until the
        target has the messages that were read from them."""
        done = threading.Event()
        self._releases = done
        if not self._is_over:
            self.delivery.wake()
            done.wait(2 * FLUSH_S)

    def _let_go(self) -> None:
        done = self._releases
        if done is None:
            return
        self._releases = None
        try:
            self._flush(FLUSH_S)
            self._commit(retries=True)
            self._flights.clear()
        finally:
            done.set()

    def _close(self) -> None:
        self._is_over = True
        if self._releases is not None:
            self._releases.set()
        self._connector.shutdown()
        self.delivery.close()
        self._topics.close()
        self._observer.close()
