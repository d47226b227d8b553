"""librdkafka's partitioner `consistent_random`: CRC-32 of the key's bytes.

    partitioner.class=consistent_random        (or crc32)

A key goes to the partition that clients with librdkafka choose by default (confluent-kafka, kcat,
and others). As in librdkafka, an empty key counts as no key, and records without a key go to random
partitions: all such records of one send go to one of the partitions that have a leader."""

import random
import zlib
from collections.abc import Sequence

from barnabas.hooks import hookimpl


class Crc32Partitioner:
    """CRC-32 of the key's bytes, as librdkafka's consistent_random; random without a key."""

    @hookimpl
    def choose_partitions(
        self, encoded: Sequence[bytes | None], partition_count: int, available: Sequence[int]
    ) -> Sequence[int]:
        free = random.choice(available)
        return [zlib.crc32(key) % partition_count if key else free for key in encoded]
