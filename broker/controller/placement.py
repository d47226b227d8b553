"""Places the replicas of new partitions on brokers, one broker after another.

The first replica of partition p is broker (start + p) modulo the number of brokers. The others
follow it with a shift that grows each time the first replicas have used every broker once, so that
the load of a failed broker is spread (Kafka's rack-unaware placement).
"""

from collections.abc import Sequence

# Brokers do not copy partitions from each other yet: a second replica would stay empty, and its
# broker could be elected without the records.
REPLICAS_MAX = 1


def place(
    brokers: Sequence[int],
    partition_count: int,
    replication_factor: int,
    start: int,
    first: int = 0,
) -> list[tuple[int, ...]]:
    """Returns the replicas of partitions first..first+partition_count-1, as broker ids with the
    preferred leader first. `start` is random in production."""
    count = len(brokers)
    assert 1 <= replication_factor <= count
    placed = []
    for partition in range(first, first + partition_count):
        shift = start + partition // count
        leader = (start + partition) % count
        followers = [
            (leader + 1 + (shift + replica) % max(count - 1, 1)) % count
            for replica in range(replication_factor - 1)
        ]
        placed.append(tuple(brokers[index] for index in (leader, *followers)))
    return placed
