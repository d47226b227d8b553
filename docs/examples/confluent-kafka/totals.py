"""Adds up the orders of each customer, each order exactly once.

    barnabas dev                  in one terminal
    python totals.py              in another; Ctrl-C ends it
    barnabas consume totals --from-beginning --committed --key

A transaction holds the new totals and the position in `orders`: after a crash the program goes on
behind the last committed transaction. The totals themselves are read again from the topic.
"""

import json
import sys
from collections import Counter

from confluent_kafka import Consumer, Producer, TopicPartition

BATCH = 500


class Totals:
    """`step` takes what is there; `close` leaves the group."""

    def __init__(self, servers: str, source: str = "orders", target: str = "totals") -> None:
        self._target = target
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "totals",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": "totals"})
        self._producer.init_transactions()
        self.cents: Counter[str] = Counter(self._totals_so_far(servers))
        self._consumer.subscribe([source])

    def _totals_so_far(self, servers: str) -> dict[str, int]:
        reader = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "totals-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        found: dict[str, int] = {}
        partitions = reader.list_topics(self._target, 10).topics[self._target].partitions
        reader.assign([TopicPartition(self._target, index, 0) for index in partitions])
        ends = 0
        while ends < len(partitions):
            message = reader.poll(10)
            if message is None or message.error() is not None:
                ends += 1  # the end of a partition
            else:
                found[message.key().decode()] = int(message.value())
        reader.close()
        return found

    def step(self, timeout_s: float = 1.0) -> int:
        """Returns the number of orders that were added."""
        orders = [row for row in self._consumer.consume(BATCH, timeout_s) if row.error() is None]
        if not orders:
            return 0
        changed = set()
        for message in orders:
            order = json.loads(message.value())
            self.cents[order["customer"]] += round(100 * order["total"])
            changed.add(order["customer"])
        self._producer.begin_transaction()
        for customer in sorted(changed):
            self._producer.produce(self._target, key=customer, value=str(self.cents[customer]))
        self._producer.send_offsets_to_transaction(
            self._consumer.position(self._consumer.assignment()),
            self._consumer.consumer_group_metadata(),
        )
        self._producer.commit_transaction()
        return len(orders)

    def close(self) -> None:
        self._consumer.close()


if __name__ == "__main__":
    totals = Totals(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
    try:
        while True:
            if count := totals.step():
                print(f"{count} orders; {len(totals.cents)} customers", flush=True)
    except KeyboardInterrupt:
        totals.close()
