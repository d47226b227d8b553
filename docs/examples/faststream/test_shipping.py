import asyncio
import json

from confluent_kafka import Producer
from shipping import shipping


def test_an_order_becomes_parcels(broker):
    broker.create_topic("orders")
    broker.create_topic("parcels")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("orders", json.dumps({"order": 7, "customer": "c-1", "items": 4}))
    assert producer.flush(10) == 0

    async def run():
        app = shipping(broker.bootstrap_servers)
        await app.start()
        parcel = json.dumps({"order": 7, "customer": "c-1", "parcels": 2}, separators=(",", ":"))
        await asyncio.to_thread(broker.assert_records, "parcels", [parcel], timeout_s=20)
        await app.stop()

    asyncio.run(run())
