"""confluent-kafka: librdkafka, as most languages use it."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from compat.client import Client
from compat.support import CALL_TIMEOUT_S, Read, Sent
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)

TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}


class Confluent(Client):
    name = "confluent_kafka"
    family = "librdkafka"

    def __init__(self, address: str, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(address, settings)
        self._producers: dict[tuple[str, bool], Producer] = {}
        # The class needs a group name; the client never commits to it.
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "compat",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.message.max.bytes": 12 << 20,
                "fetch.max.bytes": 24 << 20,
                "receive.message.max.bytes": 32 << 20,
                **self.settings,
            }
        )

    def _producer(self, codec: str, idempotent: bool) -> Producer:
        if (codec, idempotent) not in self._producers:
            self._producers[codec, idempotent] = Producer(
                {
                    "bootstrap.servers": self.address,
                    "acks": "all",
                    "compression.type": codec,
                    "enable.idempotence": idempotent,
                    # The flush ends a batch; a pause of this process does not.
                    "linger.ms": CALL_TIMEOUT_S * 500,
                    "message.max.bytes": 12 << 20,
                    "message.timeout.ms": CALL_TIMEOUT_S * 1000,
                    **self.settings,
                }
            )
        return self._producers[codec, idempotent]

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int] | None:
        producer = self._producer(codec, idempotent)
        # Records that wait for their topic's metadata would join the batch one by one during the
        # flush.
        producer.list_topics(topic, timeout=CALL_TIMEOUT_S)
        offsets: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            offsets.append(-1 if error else message.offset())

        for record in records:
            more: dict[str, Any] = {}
            if record.timestamp is not None:
                more["timestamp"] = record.timestamp
            producer.produce(
                topic,
                partition=partition,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                on_delivery=delivered,
                **more,
            )
        assert producer.flush(CALL_TIMEOUT_S) == 0, "not everything was delivered"
        return offsets

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Read]:
        self._consumer.assign([TopicPartition(topic, partition, offset)])
        found: list[Read] = []
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while len(found) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"read {len(found)} of {count}")
            message = self._consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            kind, timestamp = message.timestamp()
            found.append(
                Read(
                    offset=message.offset(),
                    timestamp=timestamp,
                    timestamp_type=TYPES[kind],
                    key=message.key(),
                    value=message.value(),
                    headers=tuple(message.headers() or ()),
                )
            )
        self._consumer.unassign()
        return found

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        asked = [TopicPartition(topic, partition, timestamp)]
        (found,) = self._consumer.offsets_for_times(asked, timeout=CALL_TIMEOUT_S)
        assert found.error is None, found.error
        return found.offset if found.offset >= 0 else None

    def close(self) -> None:
        self._consumer.close()
