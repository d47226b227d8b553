"""The hooks of clients: of the old producer (`barnabas.clients`), `barnabas produce`, `barnabas
consume` and `barnabas mirror`. Part of the specifications; see specs.py.

Clients call these hooks of the plugins that their settings name: `partitioner.class`,
`serializer.class`, `key.serializer.class`, `callback.handler`, `event.handler`. The hooks run in
the client's process, directly on the thread that needs the answer (a plugin with
`isolation=process` in its own process), and that thread waits for as long as the call takes: a
budget of 0 means no limit. A client calls a hook once for all records of a batch, never for each
record."""

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
    """Declares a specification. `budget_ms`: the time that one call may take; UNBOUNDED: the caller
    waits as long as the call takes."""

    def made(function: F) -> F:
        function.budget_ms = budget_ms  # type: ignore[attr-defined]
        return hookspec(function)

    return made


class EventSender(Protocol):
    """Sends the events of an event handler."""

    def send(self, events: Sequence[KeyedMessage]) -> None:
        """Encodes events, chooses their partitions and sends them, as the producer does without an
        event handler. With `producer.type=sync` it returns when they are acknowledged, or raises
        the error; with `async` it returns when they are in flight."""


class ClientSpecs:
    """The hooks that a plugin may implement for the clients."""

    @hook(budget_ms=UNBOUNDED)
    def choose_partitions(
        self,
        topic: str,
        keys: Sequence[Any],
        encoded: Sequence[bytes | None],
        partition_count: int,
        available: Sequence[int],
    ) -> Sequence[int] | int:
        """Chooses the partitions of records.

        When: before the client sends records of one topic that do not name their partition, on the
        thread that sends: with `producer.type=sync` the one that called `send`.
        `keys`: the partition key of each record, else its key; None for a record without either.
        `encoded`: the same keys as bytes, from the encoder of keys. `partition_count`: the topic's
        number of partitions. `available`: the partitions that have a leader now; all, if none has a
        leader.
        Returns: the partition of each record, or one number for all of them.
        When it fails: the client calls it again for each record alone, and does not send a record
        for which it fails again. `send` raises the error, or the background thread counts, logs and
        drops the record.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def encode(self, topic: str, data: Sequence[Any], is_key: bool) -> Sequence[bytes | None]:
        """Encodes objects as bytes.

        When: before the client sends records of one topic, on the thread that sends; once for the
        values and, if there are keys, once for the keys.
        `data`: the values, or the keys that are not None. `is_key`: True for keys.
        Returns: the bytes of each; None makes a record without a value, a tombstone.
        When it fails: as for choose_partitions.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def decode(self, topic: str, data: Sequence[bytes], is_key: bool) -> Sequence[Any]:
        """Decodes bytes that `encode` wrote into objects.

        When: after the client has read records of one topic, on the thread that reads; once for the
        values and, if there are keys, once for the keys. The data never contains None.
        `data`: the bytes. `is_key`: True for keys.
        Returns: the object of each.
        When it fails: the call that reads raises the error; the client skips no record silently.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def producer_started(self, settings: Mapping[str, str]) -> None:
        """Starts a callback handler or an event handler (`init` in Kafka 0.7).

        When: once, in the constructor of the producer, on its thread.
        `settings`: all settings with text values, as given.
        Returns: nothing.
        When it fails: the constructor of the producer raises the error.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def before_enqueue(self, events: Sequence[KeyedMessage]) -> Sequence[KeyedMessage]:
        """Changes, drops or adds events before they enter the queue.

        When: with `producer.type=async`, in each call of `send`, on its thread.
        `events`: the events of that `send`, one for each message.
        Returns: the events to put into the queue.
        When it fails: `send` raises the error and queues nothing.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def after_enqueue(self, events: Sequence[KeyedMessage], added: bool) -> None:
        """Learns whether events entered the queue.

        When: after before_enqueue and the attempt to queue, on the same thread.
        `events`: those that before_enqueue returned. `added`: False when the queue stayed full for
        longer than `queue.enqueue.timeout.ms`; `send` then raises QueueFull.
        Returns: nothing.
        When it fails: `send` raises the error; queued events will be sent.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def after_dequeuing(self, events: Sequence[KeyedMessage]) -> Sequence[KeyedMessage]:
        """Changes events that have left the queue and enter a batch (`afterDequeuingExistingData`
        in Kafka 0.7).

        When: after the background thread has taken them, one or more at a time.
        `events`: in the order of the queue.
        Returns: the events to add to the batch instead: fewer, when the handler keeps some, or
        more. The handler returns kept events in last_batch_before_close at the latest.
        When it fails: the producer counts and logs the failure, and continues with the events
        unchanged.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def before_sending(self, events: Sequence[KeyedMessage]) -> Sequence[KeyedMessage]:
        """Changes a complete batch before the producer sends it.

        When: on the background thread, when a batch is full or its time is over.
        `events`: the batch.
        Returns: the events to send instead.
        When it fails: the producer counts and logs the failure, and sends the batch unchanged.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def last_batch_before_close(self) -> Sequence[KeyedMessage]:
        """Returns the events that a handler has kept, when the producer closes.

        When: on the background thread, after the queue is empty and closed.
        Returns: events to send with the last batch.
        When it fails: the producer counts and logs the failure, and adds nothing.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def producer_closed(self) -> None:
        """Ends a handler after the last send of the producer (`close` in Kafka 0.7).

        When: once, on the thread that closes the producer.
        Returns: nothing.
        When it fails: the producer logs the failure.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def handle_events(self, events: Sequence[KeyedMessage], sender: EventSender) -> None:
        """Handles a batch in place of the producer's default event handler.

        When: when a batch is complete (`async`, on the background thread) or in `send` (`sync`, on
        its thread), after before_sending.
        `events`: the batch, not encoded. `sender`: its `send` does what the default handler does,
        for any events, any number of times. It is valid only during the call, and a plugin in its
        own process does not get it.
        Returns: nothing.
        When it fails: with `sync` `send` raises the error; with `async` the batch counts as dropped
        and the producer logs the failure.
        """
        raise NotImplementedError

    @hook(budget_ms=UNBOUNDED)
    def handle_mirrored(
        self, source: str, messages: Sequence[MirroredMessage]
    ) -> Sequence[KeyedMessage]:
        """Returns what `barnabas mirror` writes for the messages that it has read
        (`--message-handler`).

        When: after the mirror has read messages of one source and before it writes them, on the
        mirror's thread of that source.
        `source`: its name. `messages`: in the order of each partition, keys and values as bytes.
        Returns: the messages to write, more or fewer, with any topics, partitions (None: by key),
        keys, values and headers. Keys and values are bytes or None.
        When it fails: the mirror stops with an error and commits no offset of these messages, so
        that the next start reads them again.
        """
        raise NotImplementedError
