"""leader.replication.throttled.replicas and follower.replication.throttled.replicas: the replicas
of a topic whose replication is throttled (KIP-73).

Each is `*`, for all replicas, or a list of PARTITION:BROKER. Kafka: ThrottledReplicaListValidator,
TopicConfigHandler.parseThrottledPartitions.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
ALL = "*"
EVERY_PARTITION = range(1 << 31)


def throttled_partitions(text: str, broker_id: int) -> Container[int]:
    """Returns the partitions of a topic whose replica on `broker_id` is in the list `text`, which
    `replica_problems` has accepted."""
    if text.strip() == ALL:
        return EVERY_PARTITION
    found = set()
    for entry in filter(None, (part.strip() for part in text.split(","))):
        partition, broker = map(int, entry.split(":"))
        if broker == broker_id:
            found.add(partition)
    return found


def replica_problems(overrides: Mapping[str, str]) -> list[str]:
    """Returns what is wrong with the two lists in a topic's overrides."""
    return [
        f"{name}={text[:60]}: not a list of replicas. Give * for all, or PARTITION:BROKER between"
        " commas, for example 0:101,1:102."
        for name in (LEADERS, FOLLOWERS)
        if (text := overrides.get(name)) is not None and not _is_list(text)
    ]


def _is_list(text: str) -> bool:
    entries = [part.strip() for part in text.split(",")]
    return entries == [ALL] or all(_is_replica(entry) for entry in entries if entry)


def _is_replica(entry: str) -> bool:
    partition, _, broker = entry.partition(":")
    return all(part.isascii() and part.isdigit() for part in (partition, broker))
