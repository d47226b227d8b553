"""Copies orders above a limit to the topic `big-orders`.

barnabas dev                  in one terminal
python big_orders.py          in another; Ctrl-C ends it
barnabas consume big-orders
"""

import asyncio
import json
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

LIMIT = 100.0


async def copy_big_orders(servers: str, limit: float = LIMIT) -> None:
    """Runs until it is cancelled. An order may be copied twice after a crash, and none is missed:
    the position is committed when the copy is acknowledged."""
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="big-orders",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer, AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        while True:
            batches = await consumer.getmany(timeout_ms=500)
            sent = [
                await producer.send("big-orders", record.value, key=record.key)
                for records in batches.values()
                for record in records
                if json.loads(record.value)["total"] >= limit
            ]
            await asyncio.gather(*sent)
            if batches:
                await consumer.commit()


if __name__ == "__main__":
    try:
        asyncio.run(copy_big_orders(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"))
    except KeyboardInterrupt:
        pass
