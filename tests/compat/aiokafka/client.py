"""aiokafka: asyncio, with its own record codec in Cython."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from compat.client import Client
from compat.support import CALL_TIMEOUT_S, Read, Sent

TYPES = {0: "CreateTime", 1: "LogAppendTime"}
T = TypeVar("T")


class AioKafka(Client):
    name = "aiokafka"
    family = "aiokafka"

    def __init__(self, address: str, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(address, settings)
        self._runner = asyncio.Runner()
        self._consumer = self._run(self._start_consumer())
        self._producers: dict[tuple[str, bool], AIOKafkaProducer] = {}

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(work, CALL_TIMEOUT_S))

    async def _start_consumer(self) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.address,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            check_crcs=True,
            max_partition_fetch_bytes=12 << 20,
            **self.settings,
        )
        await consumer.start()
        return consumer

    async def _producer(self, codec: str, idempotent: bool) -> AIOKafkaProducer:
        if (codec, idempotent) not in self._producers:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.address,
                acks="all",
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=100,
                max_batch_size=12 << 20,
                max_request_size=12 << 20,
                **self.settings,
            )
            await producer.start()
            self._producers[codec, idempotent] = producer
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
        return self._run(self._produce(topic, partition, records, codec, idempotent))

    async def _produce(
        self, topic: str, partition: int, records: Sequence[Sent], codec: str, idempotent: bool
    ) -> list[int]:
        producer = await self._producer(codec, idempotent)
        sent = [
            await producer.send(
                topic,
                partition=partition,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp_ms=record.timestamp,
            )
            for record in records
        ]
        return [(await one).offset for one in sent]

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Read]:
        return self._run(self._read(TopicPartition(topic, partition), offset, count))

    async def _read(self, at: TopicPartition, offset: int, count: int) -> list[Read]:
        self._consumer.assign([at])
        self._consumer.seek(at, offset)
        found: list[Read] = []
        while len(found) < count:
            message = await self._consumer.getone(at)
            found.append(
                Read(
                    offset=message.offset,
                    timestamp=message.timestamp,
                    timestamp_type=TYPES[message.timestamp_type],
                    key=message.key,
                    value=message.value,
                    headers=tuple(message.headers),
                )
            )
        return found

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        at = TopicPartition(topic, partition)
        found = self._run(self._consumer.offsets_for_times({at: timestamp}))[at]
        return None if found is None else found.offset

    def close(self) -> None:
        self._run(self._consumer.stop())
        for producer in self._producers.values():
            self._run(producer.stop())
        self._runner.close()
