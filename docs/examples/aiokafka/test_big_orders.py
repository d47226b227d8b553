import asyncio
import json

from aiokafka import AIOKafkaProducer
from big_orders import copy_big_orders


def test_orders_above_the_limit_are_copied(broker):
    broker.create_topic("orders", partitions=2)
    broker.create_topic("big-orders")
    servers = broker.bootstrap_servers
    big = json.dumps({"total": 120}).encode()

    async def run():
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for total in (20, 120, 99.99):
                value = json.dumps({"total": total}).encode()
                await producer.send_and_wait("orders", value, key=b"c-1")
        copying = asyncio.create_task(copy_big_orders(servers, limit=100))
        await asyncio.to_thread(broker.assert_records, "big-orders", [("c-1", big)])
        copying.cancel()
        await asyncio.gather(copying, return_exceptions=True)

    asyncio.run(run())
