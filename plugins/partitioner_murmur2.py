"""The partitioner of Kafka's own clients since 0.8.2: murmur2 of the key's bytes.

    partitioner.class=org.apache.kafka.clients.producer.internals.DefaultPartitioner   (or murmur2)

A key goes to the partition that the Java producer chooses, and librdkafka's producer with
`partitioner=murmur2_random`. Records without a key that are sent together go to one of the
partitions that have a leader, each time to another one, as with Java's producer since 2.4.
"""

import random
from collections.abc import Sequence

from barnabas.cext.record.key_hash import murmur2_partitions
from barnabas.hooks import hookimpl


class Murmur2Partitioner:
    """murmur2 of the key's bytes, as Kafka's own clients; random without a key."""

    @hookimpl
    def choose_partitions(
        self, encoded: Sequence[bytes | None], partition_count: int, available: Sequence[int]
    ) -> Sequence[int] | int:
        free = random.choice(available)
        keys = [key for key in encoded if key is not None]
        if not keys:
            return free
        placed = iter(murmur2_partitions(keys, partition_count))
        return [free if key is None else next(placed) for key in encoded]
