import json

from confluent_kafka import Producer
from totals import Totals


def send(broker, *orders):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for customer, total in orders:
        value = json.dumps({"customer": customer, "total": total})
        producer.produce("orders", key=customer, value=value)
    assert producer.flush(10) == 0


def add_up(totals, count):
    while count > 0:
        count -= totals.step()
    assert count == 0


def test_each_order_counts_once_and_a_new_start_goes_on(broker):
    broker.create_topic("orders")
    broker.create_topic("totals", configs={"cleanup.policy": "compact"})
    send(broker, ("ann", 1.5), ("bob", 2), ("ann", 0.25))
    first = Totals(broker.bootstrap_servers)
    add_up(first, 3)
    first.close()

    send(broker, ("ann", 1))
    second = Totals(broker.bootstrap_servers)
    assert second.cents == {"ann": 175, "bob": 200}
    add_up(second, 1)
    second.close()
    broker.assert_records("totals", [("ann", "175"), ("bob", "200"), ("ann", "275")])
