"""Encodes events, chooses their partitions and gives the records to the Delivery.

All events of one call for one topic go through the plugins together. The Delivery gets none of them
unless all are valid.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from barnabas.cext.record.records import Record
from barnabas.client.cluster import Topic
from barnabas.client.delivery import FOREVER, Delivery, is_passing, size_of
from barnabas.client.failures import ClientError
from barnabas.clients.producer.config import ProducerConfig
from barnabas.clients.producer.failures import MessageSizeTooLarge
from barnabas.errors import KafkaError
from barnabas.hooks.direct import ClientPlugins, caller
from barnabas.hooks.views import KeyedMessage

NONE_TYPE = type(None)
TOPIC, *COLUMNS = (itemgetter(place) for place in range(len(KeyedMessage._fields)))


class EventSender:
    """Sends events through the encoders and the partitioner. The constructor raises CannotLoad for
    an encoder or a partitioner that does not exist."""

    def __init__(self, config: ProducerConfig, plugins: ClientPlugins, delivery: Delivery) -> None:
        self._config, self._delivery = config, delivery
        encoder = plugins.plugin("serializer.class", config.serializer, "encode")
        key_encoder = encoder
        if config.key_serializer != "":
            key_encoder = plugins.plugin("key.serializer.class", config.key_serializer, "encode")
        partitioner = plugins.plugin("partitioner.class", config.partitioner, "choose_partitions")
        self._encode, self._encode_keys = caller(encoder, "encode"), caller(key_encoder, "encode")
        self._choose = caller(partitioner, "choose_partitions")
        self._wants_bytes = "encoded" in partitioner.hooks["choose_partitions"].arguments

    def send(self, events: Sequence[KeyedMessage], note: Any) -> None:
        """Sends events; `note` identifies them when their batches end. Raises the errors of
        plugins, MessageSizeTooLarge, ClientError, KafkaError."""
        topics = list(map(TOPIC, events))
        if topics.count(topics[0]) == len(topics):
            self._deliver(*self._made(topics[0], events), note)
            return
        by_topic: dict[str, list[KeyedMessage]] = {}
        for topic, event in zip(topics, events, strict=True):
            by_topic.setdefault(topic, []).append(event)
        made = [self._made(topic, rows) for topic, rows in by_topic.items()]
        for row in made:
            self._deliver(*row, note)

    def send_each(
        self,
        events: Sequence[KeyedMessage],
        failed: Callable[[Sequence[KeyedMessage], Exception], None],
    ) -> None:
        """Like `send`, but an event that cannot be sent does not stop the others."""
        try:
            self.send(events, None)
        except (ClientError, KafkaError) as error:
            failed(events, error)
        except Exception as error:
            if len(events) == 1:
                failed(events, error)
                return
            for event in events:
                self.send_each([event], failed)

    # -- one topic --------------------------------------------------------------------------------

    def _made(
        self, topic: str, events: Sequence[KeyedMessage]
    ) -> tuple[str, Sequence[Record | bytes], Sequence[int] | int, int]:
        """Returns (topic, records, partition of each or of all, bytes)."""
        count = len(events)
        messages, keys, part_keys, headers, stamps, partitions = (
            list(map(column, events)) for column in COLUMNS
        )
        values = self._encoded(topic, messages, False)
        has_keys = keys.count(None) != count
        key_data: Sequence[bytes | None] = (None,) * count
        if has_keys:
            key_data = self._encoded_some(topic, keys)
        is_plain = (
            not has_keys
            and headers.count(()) == count
            and stamps.count(-1) == count
            and None not in values
        )
        records: Sequence[Record | bytes]
        if is_plain:
            records = values  # type: ignore[assignment]
            sizes = list(map(len, records))  # type: ignore[arg-type]
        else:
            now_ms = time.time_ns() // 1_000_000
            records = [
                Record(value, key, timestamp=now_ms if stamp < 0 else stamp, headers=row)
                for value, key, stamp, row in zip(values, key_data, stamps, headers, strict=True)
            ]
            sizes = list(map(size_of, records))
        if max(sizes) > self._config.message_bytes_max:
            raise MessageSizeTooLarge(
                f"a message of {max(sizes)} bytes for topic {topic} is larger than"
                f" max.message.size={self._config.message_bytes_max}"
            )
        placed = self._placed(topic, keys, part_keys, key_data, partitions)
        return topic, records, placed, sum(sizes)

    def _encoded(self, topic: str, data: Sequence[Any], is_key: bool) -> Sequence[bytes | None]:
        encode = self._encode_keys if is_key else self._encode
        assert encode is not None
        found: Sequence[bytes | None] = encode(topic, data, is_key)
        if len(found) != len(data) or not set(map(type, found)) <= {bytes, NONE_TYPE}:
            raise TypeError(
                f"the encoder returned {len(found)} values for {len(data)}; allowed: bytes, None"
            )
        return found

    def _encoded_some(self, topic: str, keys: Sequence[Any]) -> Sequence[bytes | None]:
        there = [key for key in keys if key is not None]
        data = iter(self._encoded(topic, there, True))
        return [None if key is None else next(data) for key in keys]

    def _placed(
        self,
        topic: str,
        keys: Sequence[Any],
        part_keys: Sequence[Any],
        key_data: Sequence[bytes | None],
        partitions: Sequence[int | None],
    ) -> Sequence[int] | int:
        known = self._topic(topic)
        highest = max((index for index in partitions if index is not None), default=0)
        if highest >= len(known.partitions):  # the topic may have more partitions now
            self._delivery.brokers.forget(topic)
            known = self._topic(topic)
        count = len(known.partitions)
        found: Sequence[int] | int
        if None not in partitions:
            found = [_checked(index, count) for index in partitions]
        else:
            found = self._chosen(topic, keys, part_keys, key_data, known)
            if partitions.count(None) != len(partitions):
                each = [found] * len(partitions) if isinstance(found, int) else found
                found = [
                    chosen if index is None else _checked(index, count)
                    for chosen, index in zip(each, partitions, strict=True)
                ]
        return found

    def _chosen(
        self,
        topic: str,
        keys: Sequence[Any],
        part_keys: Sequence[Any],
        key_data: Sequence[bytes | None],
        known: Topic,
    ) -> Sequence[int] | int:
        count = len(known.partitions)
        available = [row.index for row in known.partitions.values() if row.leader >= 0]
        available = available or list(known.partitions)
        if self._config.is_random:
            return random.choice(available)
        has_others = part_keys.count(None) != len(part_keys)
        if has_others:
            keys = [
                key if other is None else other for key, other in zip(keys, part_keys, strict=True)
            ]
        if has_others and self._wants_bytes:
            key_data = self._encoded_some(topic, keys)
        assert self._choose is not None
        found = self._choose(topic, keys, key_data, count, available)
        if isinstance(found, int):
            return _checked(found, count)
        if len(found) != len(keys):
            raise ValueError(f"the partitioner returned {len(found)} partitions for {len(keys)}")
        for index in set(found):
            _checked(index, count)
        return list(found)

    def _topic(self, name: str) -> Topic:
        """Returns the topic's metadata. Batches in flight continue while this waits. Raises
        ClientError, KafkaError."""
        delivery, config = self._delivery, self._config
        deadline = time.monotonic() + config.request_timeout_ms / 1000
        while True:
            try:
                return delivery.brokers.topic(name)
            except (ClientError, KafkaError) as error:
                has_time = config.retries_max == FOREVER or time.monotonic() < deadline
                if not is_passing(error) or not has_time:
                    raise
            pause_s = max(config.retry_backoff_ms, 1) / 1000
            until = time.monotonic() + pause_s
            while (left_s := until - time.monotonic()) > 0:
                delivery.step(left_s)

    def _deliver(
        self,
        topic: str,
        records: Sequence[Record | bytes],
        placed: Sequence[int] | int,
        size_bytes: int,
        note: Any,
    ) -> None:
        if not isinstance(placed, int) and len(set(placed)) == 1:
            placed = placed[0]
        if isinstance(placed, int):
            self._delivery.add(topic, placed, records, size_bytes, note)
            return
        parts: dict[int, list[Record | bytes]] = {}
        for record, index in zip(records, placed, strict=True):
            parts.setdefault(index, []).append(record)
        for index, part in parts.items():
            self._delivery.add(topic, index, part, sum(map(size_of, part)), note)


def _checked(index: Any, count: int) -> int:
    if type(index) is not int or not 0 <= index < count:
        raise ValueError(f"{index!r} is not a partition: the topic has {count}")
    return index
