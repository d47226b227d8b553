"""Kafka's function from a key to a partition: murmur2 of the key's bytes. A key goes to the same
partition as with Kafka's own clients."""

from barnabas.cext.record.key_hash import murmur2


def partition_of(key: bytes, partition_count: int) -> int:
    """Returns the partition of a key: murmur2, as Kafka's Java producer
    (BuiltInPartitioner.partitionForKey). `partition_count`: 1 or greater."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
