"""The producer of Kafka 0.7 and 0.8.

    producer = Producer({"broker.list": "127.0.0.1:9092", "serializer.class": "string"})
    producer.send(ProducerData("page-views", "member-17", ["/", "/jobs"]))
    producer.send([KeyedMessage("page-views", "/", key="member-17")])
    producer.close()

`producer.type=sync`: `send` returns when the broker has acknowledged the messages
(request.required.acks), and otherwise raises FailedToSend. `async`: `send` queues them
(async_producer.py). Any number of threads may send. Settings: config.py; plugins:
barnabas.hooks.client_specs.
"""

from __future__ import annotations

import atexit
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from barnabas.client.brokers import Brokers
from barnabas.client.cluster import Cluster
from barnabas.client.delivery import Batch, Delivery
from barnabas.client.failures import ClientError
from barnabas.clients.producer.async_producer import AsyncProducer
from barnabas.clients.producer.config import ProducerConfig
from barnabas.clients.producer.event_queue import EventQueue
from barnabas.clients.producer.event_sender import EventSender
from barnabas.clients.producer.failures import FailedToSend, InvalidConfig, ProducerClosed
from barnabas.errors import KafkaError
from barnabas.hooks.direct import ClientPlugins, caller
from barnabas.hooks.plugin import CannotLoad, Plugin
from barnabas.hooks.views import KeyedMessage

CALLBACKS = (
    "before_enqueue",
    "after_enqueue",
    "after_dequeuing",
    "before_sending",
    "last_batch_before_close",
)
OWN_HANDLER = "default-event-handler"
WAIT_S = 0.5
SEVERAL = (list, tuple)  # types of data that hold several messages
_MISSING: Any = object()


class ProducerData:
    """Messages for one topic with one key (0.7). ProducerData(topic, data) has no key.

    `data`: one message, or a list or tuple of messages. As in 0.7 the key chooses the partition and
    is not stored, unless key.serializer.class is set."""

    __slots__ = ("data", "key", "topic")

    def __init__(self, topic: str, key: Any = None, data: Any = _MISSING) -> None:
        if data is _MISSING:
            key, data = None, key
        self.topic, self.key, self.data = topic, key, data

    def __repr__(self) -> str:
        return f"ProducerData({self.topic!r}, {self.key!r}, {self.data!r})"


class _Outcome:
    """The outcome of one `send`."""

    __slots__ = ("error", "failed", "left")

    def __init__(self) -> None:
        self.left = self.failed = 0
        self.error: Exception | None = None


class _SyncSender:
    """The `sender` argument of an event handler with producer.type=sync."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(self, events: Sequence[KeyedMessage]) -> None:
        if events:
            self._producer._send_and_wait(events)


class Producer:
    """A producer of Kafka 0.7 and 0.8. The constructor raises InvalidConfig, CannotLoad, and
    ClientError when it finds no brokers."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = ProducerConfig(config)
        self._stores_keys = self.config.key_serializer != ""
        self._lock = threading.Lock()  # guards the delivery with producer.type=sync
        self._closed = False
        self._counts = {"acknowledged": 0, "dropped": 0}
        self._counts_lock = threading.Lock()
        self._plugins = ClientPlugins(self.config.given)
        self._background: AsyncProducer | None = None
        self._plain_queue: EventQueue | None = None  # used when no handler reads the events
        self._delivery = self._made_delivery()
        try:
            handler, callbacks = self._made_handlers()
            sender = EventSender(self.config, self._plugins, self._delivery)
        except BaseException as error:
            self._delivery.close()
            self._plugins.close()
            if isinstance(error, CannotLoad):
                raise InvalidConfig(error.problems) from error
            raise
        self._handler, self._sender = handler, sender
        if self.config.is_async:
            self._background = AsyncProducer(
                self.config, sender, self._delivery, handler, callbacks, self._count_dropped
            )
            if not callbacks and handler is None:
                self._plain_queue = self._background.queue
            self._at_exit = _close_at_exit(self)

    # -- sending ----------------------------------------------------------------------------------

    def send(self, data: Any) -> None:
        """Sends ProducerData, a KeyedMessage, or a list of either.

        Raises ProducerClosed, QueueFull, FailedToSend, MessageSizeTooLarge, TypeError and the
        errors of plugins. A call that raises may have sent some of the messages."""
        queue = self._plain_queue
        if queue is not None and type(data) is ProducerData and type(data.data) not in SEVERAL:
            # The common case: no handler reads the event, so a tuple of its fields is enough.
            key = data.key
            if self._stores_keys:
                event: Any = (data.topic, data.data, key, None, (), -1, None)
            else:
                event = (data.topic, data.data, None, key, (), -1, None)
            found = queue.events
            if len(found) < queue.events_max:
                found.append(event)
                if queue.asleep and len(found) >= queue.wake_at:
                    queue.ring()
                return
        if type(data) is KeyedMessage:
            events: Sequence[KeyedMessage] = (data,)
        elif type(data) is ProducerData:
            events = self._events(data)
        else:
            events = self._events_of_many(data)
        if self._background is not None:
            self._background.send(events)
        elif events:
            self._send_now(events)

    def _events(self, data: ProducerData) -> list[KeyedMessage]:
        topic, key, messages = data.topic, data.key, data.data
        stored, chooser = (key, None) if self._stores_keys else (None, key)
        if type(messages) not in SEVERAL:
            messages = (messages,)
        return [KeyedMessage(topic, message, stored, chooser) for message in messages]

    def _events_of_many(self, data: Iterable[Any]) -> list[KeyedMessage]:
        if isinstance(data, str | bytes) or not isinstance(data, Iterable):
            raise TypeError(
                f"send takes ProducerData, KeyedMessage or a list of them, not a"
                f" {type(data).__name__}"
            )
        found: list[KeyedMessage] = []
        for row in data:
            if isinstance(row, KeyedMessage):
                found.append(row)
            elif isinstance(row, ProducerData):
                found += self._events(row)
            else:
                raise TypeError(f"send does not accept a {type(row).__name__}")
        return found

    def _send_now(self, events: Sequence[KeyedMessage]) -> None:
        with self._lock:
            if self._closed:
                raise ProducerClosed("the producer is closed")
            if self._handler is None:
                self._send_and_wait(events)
            else:
                self._handler(events, _SyncSender(self))

    def _send_and_wait(self, events: Sequence[KeyedMessage]) -> None:
        outcome = _Outcome()
        outcome.left = len(events)
        delivery = self._delivery
        try:
            self._sender.send(events, outcome)
        except (ClientError, KafkaError) as error:
            self._count_dropped(len(events))
            raise FailedToSend(f"{len(events)} messages: {error}", len(events)) from error
        while outcome.left:
            delivery.step(WAIT_S)
        while not delivery.is_idle:  # acks=0: to the socket
            delivery.step(WAIT_S)
        if outcome.error is not None:
            text = f"{outcome.failed} of {len(events)} messages failed: {outcome.error}"
            raise FailedToSend(text, outcome.failed) from outcome.error

    # -- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Sends the queued events and closes the producer. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._plain_queue = None
        if self._background is not None:
            self._background.close()
            atexit.unregister(self._at_exit)
        else:
            self._delivery.settle()
            self._delivery.close()
        for plugin in self._handler_plugins:
            closed = caller(plugin, "producer_closed")
            if closed is not None:
                _quietly(closed)
        self._plugins.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def metrics(self) -> dict[str, int]:
        """Returns counts of messages: `acknowledged` (acks 0: sent), `dropped` (queue full,
        encoding failed, retries exhausted), `queued`; and `retried`, the number of batches sent
        again."""
        queued = len(self._background.queue.events) if self._background is not None else 0
        return self._counts | {"queued": queued, "retried": self._delivery.retried}

    @property
    def figures(self) -> dict[str, int]:
        """Returns `metrics`, which had this name in 0.1.0. The release after the next one drops
        it."""
        warnings.warn("Producer.figures is Producer.metrics now", DeprecationWarning, stacklevel=2)
        return self.metrics

    # -- parts ------------------------------------------------------------------------------------

    def _made_delivery(self) -> Delivery:
        config = self.config
        bell: list[Callable[[], None]] = []

        def changed() -> None:
            if bell and not self._closed:
                bell[0]()

        brokers = brokers_of(config, changed)
        try:
            delivery = Delivery(
                brokers,
                self._ended,
                acks=config.acks,
                codec_of=config.codec_of,
                retries_max=config.retries_max,
                retry_backoff_ms=config.retry_backoff_ms,
                request_timeout_ms=config.request_timeout_ms,
                send_buffer_bytes=config.send_buffer_bytes,
            )
        except BaseException:
            brokers.close()
            raise
        bell.append(delivery.wake)
        return delivery

    def _made_handlers(
        self,
    ) -> tuple[Callable[..., None] | None, dict[str, Callable[..., Any]]]:
        """Returns the event handler, None for the default one, and the callbacks."""
        config, plugins = self.config, self._plugins
        self._handler_plugins: list[Plugin] = []
        handler = None
        if config.event_handler != "":
            plugin = plugins.plugin("event.handler", config.event_handler, "handle_events")
            if plugin.name != OWN_HANDLER:
                handler = caller(plugin, "handle_events")
                self._handler_plugins.append(plugin)
        callbacks = {}
        if config.callback_handler != "":
            plugin = plugins.plugin("callback.handler", config.callback_handler, *CALLBACKS)
            found = {hook: caller(plugin, hook) for hook in CALLBACKS}
            callbacks = {hook: row for hook, row in found.items() if row is not None}
            if plugin not in self._handler_plugins:
                self._handler_plugins.append(plugin)
        texts = {key: str(text) for key, text in config.given.items() if _is_plain(text)}
        for plugin in self._handler_plugins:
            started = caller(plugin, "producer_started")
            if started is not None:
                started(texts)
        return handler, callbacks

    def _ended(self, batch: Batch, error: Exception | None) -> None:
        count = len(batch.records)
        if error is None:
            self._counts["acknowledged"] += count
        elif self._background is not None:
            self._background.failed(count, error)
            return
        else:
            self._count_dropped(count)
        for note, own_count in batch.notes:
            if note is not None:
                note.left -= own_count
                if error is not None:
                    note.error = error
                    note.failed += own_count

    def _count_dropped(self, count: int) -> None:
        with self._counts_lock:
            self._counts["dropped"] += count


def brokers_of(config: ProducerConfig, changed: Callable[[], None]) -> Brokers:
    """Returns the brokers of a producer's settings. `changed` is called, on any thread, when
    ZooKeeper reports a change. Raises CannotConnect."""

    def cluster(addresses: str) -> Cluster:
        timeout_s = config.request_timeout_ms / 1000
        return Cluster(
            addresses,
            client_id=config.client_id,
            timeout_s=timeout_s,
            connect_timeout_s=config.connect_timeout_ms / 1000,
            answer_timeout_s=timeout_s,
            security=config.security,
        )

    if not config.zookeeper:
        return Brokers(cluster(config.broker_list), config.refresh_ms)
    from barnabas.clients.producer.zookeeper_brokers import ZookeeperBrokers

    return ZookeeperBrokers(
        config.zookeeper,
        cluster,
        config.refresh_ms,
        session_timeout_ms=config.session_timeout_ms,
        connect_timeout_ms=config.zookeeper_timeout_ms,
        security=config.security,
        changed=changed,
    )


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _quietly(call: Callable[[], Any]) -> None:
    import logging

    try:
        call()
    except Exception:
        logging.getLogger("barnabas.clients").exception("a handler failed in its close")


def _close_at_exit(producer: Producer) -> Callable[[], None]:
    """Returns a function that sends the queued events of a program that ends without `close`."""
    known = weakref.ref(producer)

    def close() -> None:
        found = known()
        if found is not None:
            found.close()

    atexit.register(close)
    return close
