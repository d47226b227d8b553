"""kafka-python: the whole protocol in plain Python."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from compat.client import Client
from compat.support import CALL_TIMEOUT_S, Read, Sent
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

TYPES = {0: "CreateTime", 1: "LogAppendTime"}


class KafkaPython(Client):
    name = "kafka_python"
    family = "kafka_python"
    null_header_values = False  # its send() refuses them

    def __init__(self, address: str, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(address, settings)
        self._producers: dict[tuple[str, bool], KafkaProducer] = {}
        self._consumer = KafkaConsumer(
            bootstrap_servers=address,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            check_crcs=True,
            max_partition_fetch_bytes=12 << 20,
            **self.settings,
        )

    def _producer(self, codec: str, idempotent: bool) -> KafkaProducer:
        if (codec, idempotent) not in self._producers:
            self._producers[codec, idempotent] = KafkaProducer(
                bootstrap_servers=self.address,
                acks="all",
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=100,
                batch_size=65536,
                max_request_size=12 << 20,
                **self.settings,
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
        sent = [
            producer.send(
                topic,
                partition=partition,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp_ms=record.timestamp,
            )
            for record in records
        ]
        producer.flush(CALL_TIMEOUT_S)
        return [one.get(CALL_TIMEOUT_S).offset for one in sent]

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Read]:
        at = TopicPartition(topic, partition)
        self._consumer.assign([at])
        self._consumer.seek(at, offset)
        found: list[Read] = []
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while len(found) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"read {len(found)} of {count}")
            polled = self._consumer.poll(timeout_ms=500, max_records=count - len(found))
            for message in polled.get(at, ()):
                found.append(
                    Read(
                        offset=message.offset,
                        timestamp=message.timestamp,
                        timestamp_type=TYPES[message.timestamp_type],
                        key=message.key,
                        value=message.value,
                        headers=tuple(message.headers or ()),
                    )
                )
        return found

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        at = TopicPartition(topic, partition)
        found = self._consumer.offsets_for_times({at: timestamp})[at]
        return None if found is None else found.offset

    def close(self) -> None:
        self._consumer.close()
        for producer in self._producers.values():
            producer.close(timeout=5)
