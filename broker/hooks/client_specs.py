"""What the clients ask of plugins: the old producer (`barnabas.clients`), `barnabas produce`,
`barnabas consume` and `barnabas mirror`. Part of the specifications; see specs.py.

These hooks are asked of the plugins that a client's settings name: `partitioner.class`,
`serializer.class`, `key.serializer.class`, `callback.handler`, `event.handler`. They run in the
client's process, straight on the thread that needs the answer (a plugin with `isolation=process`
in its own), and that thread waits for as long as it takes: a budget of 0 is none. They are asked
once for all records that go together, never for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import pluggy

from barnabas.hooks.views import KeyedMessage, MirroredMessage

PROJECT = "barnabas"
hookspec = pluggy.HookspecMarker(PROJECT)

F = TypeVar("F", bound=Callable[..., Any])
UNBOUNDED = 0


def hook(budget_ms: int) -> Callable[[F], F]:
    """A specification with the time that a call may take; UNBOUNDED: the caller waits."""

    def made(function: F) -> F:
        function.budget_ms = budget_ms  # type: ignore[attr-defined]
        return hookspec(function)

    return made


class EventSender(Protocol):
    """What an event handler sends with."""

    def send(self, events: Sequence[KeyedMessage]) -> None:
        """Encodes events, chooses their partitions and sends them, as the producer does without
        an event handler. With `producer.type=sync` it returns when they are acknowledged and
        raises what went wrong; with `async` it returns when they are on their way."""


class ClientSpecs:
    """What a plugin may implement for the clients."""

    @hook(budget_ms=UNBOUNDED)
    def choose_partitions(
        self,
        topic: str,
        keys: Sequence[Any],
        encoded: Sequence[bytes | None],
        partition_count: int,
        available: Sequence[int],
    ) -> Sequence[int] | int:
        """Into which partitions records go.

        When: records of one topic are about to be sent, and they do not name their partition. On
        the thread that sends: with `producer.type=sync` the one that called `send`.
        `keys`: the partition key of each record, else its key; None for a record that has none.
        `encoded`: the same as bytes, by the encoder of keys. `partition_count`: of the topic.
        `available`: the partitions that have a leader now, all of them where none has.
        Returns: the partition of each record, or one number for all of them.
        When it fails: asked again for each record alone; those for which it fails again are not
        sent. `send` raises it, or the background thread counts, logs and drops them.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def encode(self, topic: str, data: Sequence[Any], is_key: bool) -> Sequence[bytes | None]:
        """Objects into bytes.

        When: records of one topic are about to be sent, on the thread that sends; once for values
        and, when there are any, once for keys.
        `data`: the values, or the keys that are not None. `is_key`: which of them.
        Returns: the bytes of each; None is a record without a value, a tombstone.
        When it fails: as for choose_partitions.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def decode(self, topic: str, data: Sequence[bytes], is_key: bool) -> Sequence[Any]:
        """Bytes into objects: what `encode` wrote.

        When: records of one topic were read, on the thread that reads; once for values and, when
        there are any, once for keys. None never comes here.
        `data`: the bytes. `is_key`: whether they are keys.
        Returns: the object of each.
        When it fails: the call that reads raises the error; no record is left out silently.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def producer_started(self, settings: Mapping[str, str]) -> None:
        """A callback handler or an event handler is taken into use (the old design's `init`).

        When: once, while the producer is made, on the thread that makes it.
        `settings`: all that are text, as they were given.
        Returns: nothing.
        When it fails: the producer is not made; its constructor raises the error.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def before_enqueue(self, events: Sequence[KeyedMessage]) -> Sequence[KeyedMessage]:
        """Events may be changed, left out or added before they stand in the queue.

        When: `producer.type=async`, for each call of `send`, on its thread.
        `events`: what `send` was given, one for each message.
        Returns: what is to be put into the queue.
        When it fails: `send` raises it and nothing is queued.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def after_enqueue(self, events: Sequence[KeyedMessage], added: bool) -> None:
        """Events stand in the queue, or the queue was full.

        When: after before_enqueue and the attempt, on the same thread.
        `events`: those that before_enqueue gave. `added`: False when the queue stayed full for
        longer than `queue.enqueue.timeout.ms`; `send` then raises QueueFull.
        Returns: nothing.
        When it fails: `send` raises it; what was queued will be sent.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def after_dequeuing(self, events: Sequence[KeyedMessage]) -> Sequence[KeyedMessage]:
        """Events have left the queue and are gathered into a batch (the old design's
        `afterDequeuingExistingData`).

        When: the background thread has taken them, one or more at a time.
        `events`: in the order of the queue.
        Returns: what is to be gathered in their place. It may be less (kept back by the handler)
        or more; what is kept back is given by last_batch_before_close at the latest.
        When it fails: it is counted and logged, and the events go on as they are.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def before_sending(self, events: Sequence[KeyedMessage]) -> Sequence[KeyedMessage]:
        """A batch is complete and about to be sent.

        When: on the background thread, whenever a batch is full or its time is over.
        `events`: the batch.
        Returns: what is to be sent in its place.
        When it fails: it is counted and logged, and the batch goes on as it is.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def last_batch_before_close(self) -> Sequence[KeyedMessage]:
        """The producer is being closed; what a handler has kept back is sent now.

        When: on the background thread, after the queue has become empty for good.
        Returns: events to be sent with the last batch.
        When it fails: it is counted and logged; nothing is added.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def producer_closed(self) -> None:
        """The producer has sent its last (the old design's `close`).

        When: once, on the thread that closes the producer.
        Returns: nothing.
        When it fails: it is logged.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def handle_events(self, events: Sequence[KeyedMessage], sender: EventSender) -> None:
        """What is done with a batch: the event handler in the place of the producer's own.

        When: a batch is complete (`async`, on the background thread) or `send` was called
        (`sync`, on its thread), after before_sending.
        `events`: the batch, not encoded. `sender`: its `send` does what the producer's own handler
        does, for any events, any number of times. It is there during the call alone, and not for a
        plugin in a process of its own.
        Returns: nothing.
        When it fails: with `sync` `send` raises it; with `async` the batch counts as dropped and
        the failure is logged.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def handle_mirrored(
        self, source: str, messages: Sequence[MirroredMessage]
    ) -> Sequence[KeyedMessage]:
        """What `barnabas mirror` writes for what it has read (`--message-handler`).

        When: messages of one source were read and are about to be written, on the mirror's thread
        for that source.
        `source`: its name. `messages`: in the order of each partition, keys and values as bytes.
        Returns: what is to be written: other topics, partitions (None: by key), keys, values and
        headers, more or fewer. Keys and values are bytes or None.
        When it fails: the mirror stops with an error; nothing of these messages is committed, so
        that the next start reads them again.
        """
        raise NotImplementedError
