"""Kafka's way from a key to a partition: murmur2 of the key's bytes, so that one key lands in the
same partition whichever of Kafka's own clients writes it."""

from barnabas.cext.record.key_hash import murmur2


def partition_of(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
