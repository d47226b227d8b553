"""The old clients' partitioner: the hash of the key modulo the number of partitions; random without
a key.

    partitioner.class=kafka.producer.DefaultPartitioner        (or hash)

The hash is Java's hashCode, so a key goes to the partition that the producers of Kafka 0.7 and 0.8
choose: text as String, bytes as Arrays.hashCode (0.8's ByteArrayPartitioner), whole numbers as
Integer, or as Long when they are larger, bool as Boolean, float as Double. Keys of other types have
no such hash: use murmur2, which takes their bytes. Records without a key that are sent together go
to one of the partitions that have a leader, each time to another one.
"""

import random
import struct
from collections.abc import Sequence
from typing import Any

from barnabas.cext.record.key_hash import java_hash
from barnabas.hooks import hookimpl


class HashPartitioner:
    """The key's hash (Java's hashCode) modulo the number of partitions; random without a key."""

    @hookimpl
    def choose_partitions(
        self, keys: Sequence[Any], partition_count: int, available: Sequence[int]
    ) -> Sequence[int] | int:
        free = random.choice(available)
        if keys.count(None) == len(keys):
            return free
        return [free if key is None else _placed(hash_code(key), partition_count) for key in keys]


def _placed(hashed: int, partition_count: int) -> int:
    # Java has no absolute value of Integer.MIN_VALUE; the old clients that handled it used 0.
    return 0 if hashed == -(1 << 31) else abs(hashed) % partition_count


def hash_code(key: Any) -> int:
    """Returns Java's hashCode of a key. Raises TypeError for a key that has no Java class."""
    if isinstance(key, str | bytes):
        return java_hash(key)
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int) and -(1 << 63) <= key < 1 << 63:
        return _int32(key if -(1 << 31) <= key < 1 << 31 else key ^ (key & (1 << 64) - 1) >> 32)
    if isinstance(key, float):
        bits = int.from_bytes(struct.pack(">d", key), "big")
        return _int32(bits ^ bits >> 32)
    raise TypeError(
        f"a key of class {type(key).__name__} has no hash in Java: partitioner.class=murmur2 takes"
        " its bytes"
    )


def _int32(number: int) -> int:
    low = number & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low
