"""`producer.type=async`: a queue, and one thread that makes batches from it and sends them.

A batch is complete when it has `batch.size` events, or `queue.time` after the previous batch was
complete, whichever is first. The event handler then gives it to the Delivery. While more than
PENDING_BYTES are not acknowledged the thread takes nothing from the queue, so the queue fills and
`send` waits or raises QueueFull.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.client.delivery import Delivery
from barnabas.clients.producer.config import ProducerConfig
from barnabas.clients.producer.event_queue import EventQueue
from barnabas.clients.producer.event_sender import EventSender
from barnabas.clients.producer.failures import ProducerClosed, ProducerError, QueueFull
from barnabas.hooks.views import KeyedMessage

log = logging.getLogger("barnabas.clients")

PENDING_BYTES = 32 * 1024 * 1024
LOG_EVERY_S = 60.0
WAIT_S = 0.5  # longest wait for responses without other work

Handler = Callable[[Sequence[KeyedMessage], Any], None]
Callbacks = dict[str, Callable[..., Any]]


class _Sender:
    """The `sender` argument of an event handler."""

    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer

    def send(self, events: Sequence[KeyedMessage]) -> None:
        if events:
            self._producer.deliver(events)


class AsyncProducer:
    """The background thread of an asynchronous producer, which then owns the Delivery. `callbacks`:
    hook -> function of the callback handler."""

    def __init__(
        self,
        config: ProducerConfig,
        sender: EventSender,
        delivery: Delivery,
        handler: Handler | None,
        callbacks: Callbacks,
        dropped: Callable[[int], None],
    ) -> None:
        self._config, self._sender, self._delivery = config, sender, delivery
        self._handler, self._callbacks, self._dropped = handler, callbacks, dropped
        self._logged_at = float("-inf")
        self._unlogged = 0
        self._broken: BaseException | None = None
        self.queue = EventQueue(config.queue_events_max, config.batch_events, delivery.wake)
        self._before = callbacks.get("before_enqueue")
        self._after = callbacks.get("after_enqueue")
        self._thread = threading.Thread(
            target=self._run, name=f"producer-{config.client_id}", daemon=True
        )
        self._thread.start()

    # -- on the threads that call send -------------------------------------------------------------

    def send(self, events: Sequence[KeyedMessage]) -> None:
        """Queues events. Raises QueueFull, ProducerClosed, and what the callback handler raises."""
        if self.queue.closed:
            raise ProducerClosed("the producer is closed")
        if self._before is not None:
            events = list(self._before(events))
        added = self.queue.put(events, self._config.enqueue_timeout_ms)
        if self._after is not None:
            if added:
                self._after(events[:added], True)
            if added < len(events):
                self._after(events[added:], False)
        if added < len(events):
            self._refuse(len(events) - added)

    def _refuse(self, count: int) -> None:
        if self._broken is not None:
            raise ProducerError(f"the producer has stopped: {self._broken}") from self._broken
        if self.queue.closed:
            raise ProducerClosed("the producer was closed while send waited")
        self._dropped(count)
        raise QueueFull(
            f"{count} events were not queued: the queue is full ({self.queue.events_max} events)"
        )

    def close(self) -> None:
        """Waits until every queued event is acknowledged or has failed."""
        self.queue.close()
        self._thread.join()
        # A `send` on another thread may have run in between.
        self._drop(
            self.queue.take(len(self.queue.events)), ProducerClosed("the producer is closed")
        )

    # -- on the background thread -----------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
            self._finish()
        except BaseException as error:  # every lost message must be counted
            log.exception("the producer's thread has failed")
            self._broken = error
            self.queue.close()
            self._drop(self.queue.take(len(self.queue.events)), error)
            self._delivery.fail_all(ProducerError(f"the producer has stopped: {error}"))
        finally:
            self._delivery.close()

    def _work(self) -> None:
        queue, delivery, batch_events = self.queue, self._delivery, self._config.batch_events
        queue_s = self._config.queue_ms / 1000
        after_dequeuing = self._callbacks.get("after_dequeuing")
        gathered: list[KeyedMessage] = []
        last_s = time.monotonic()
        while True:
            if delivery.pending_bytes > PENDING_BYTES:
                delivery.step(WAIT_S)
                continue
            now_s = time.monotonic()
            is_over = now_s - last_s >= queue_s or queue.closed
            count = len(queue.events)
            is_enough = count + len(gathered) >= batch_events or count >= queue.events_max
            if count and (is_over or is_enough):
                events = queue.take(batch_events - len(gathered))
                if after_dequeuing is not None:
                    events = self._called("after_dequeuing", events)
                gathered += events
            if len(gathered) >= batch_events or (gathered and is_over):
                self._handle(gathered)
                gathered = []
                last_s = now_s
                if len(queue.events) < batch_events:
                    delivery.step(0)
                continue
            if is_over:
                if queue.closed and not queue.events:
                    return
                last_s = now_s
            self._sleep(last_s + queue_s - now_s, len(gathered))

    def _sleep(self, wait_s: float, gathered: int) -> None:
        queue = self.queue
        queue.wake_at = min(max(self._config.batch_events - gathered, 1), queue.events_max)
        queue.asleep = True
        queue.let_in()
        if len(queue.events) < queue.wake_at and not queue.closed:
            self._delivery.step(wait_s)
        queue.asleep = False

    def _finish(self) -> None:
        if "last_batch_before_close" in self._callbacks:
            last = self._called("last_batch_before_close", None)
            if last:
                self._handle(last)
        while not self._delivery.is_idle:
            self._delivery.step(WAIT_S)
        self._delivery.settle()

    def _called(self, hook: str, events: list[KeyedMessage] | None) -> list[KeyedMessage]:
        """Calls a callback that may change a batch; a failed call leaves the batch unchanged."""
        try:
            answer = self._callbacks[hook](*(() if events is None else (events,)))
            return [_event(row) for row in answer]
        except Exception as error:
            self._tell(f"the callback handler failed in {hook}", error)
            return events or []

    def _handle(self, events: list[KeyedMessage]) -> None:
        if "before_sending" in self._callbacks:
            events = self._called("before_sending", events)
            if not events:
                return
        if self._handler is None:
            self.deliver(events)
            return
        try:
            self._handler(events, _Sender(self))
        except Exception as error:
            self._drop(events, error)

    def deliver(self, events: Sequence[KeyedMessage]) -> None:
        """The default event handler."""
        self._sender.send_each(events, self._drop)

    def failed(self, count: int, error: Exception) -> None:
        """Counts records that were not acknowledged."""
        self._dropped(count)
        self._tell(f"{count} messages were not acknowledged", error)

    def _drop(self, events: Sequence[KeyedMessage], error: BaseException) -> None:
        if events:
            self._dropped(len(events))
            self._tell(f"{len(events)} messages for topic {events[0][0]} were not sent", error)

    def _tell(self, what: str, error: BaseException) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_at < LOG_EVERY_S:
            self._unlogged += 1
            return
        more = f" ({self._unlogged} more failures since the last line)" if self._unlogged else ""
        self._logged_at, self._unlogged = now_s, 0
        log.error("%s: %s: %s%s", what, type(error).__name__, error, more)


def _event(row: Any) -> KeyedMessage:
    if not isinstance(row, KeyedMessage):
        raise TypeError(f"it returned a {type(row).__name__} among the events")
    return row
