"""Places the replicas of new partitions on brokers, one broker after another.

The first replica of partition p is broker (start + p) modulo the number of brokers. The others
follow it with a shift that grows each time the first replicas have used every broker once, so that
the load of a failed broker is spread. Brokers with racks are first arranged so that neighbours are
of different racks; a partition uses a rack again only when it has a replica in each.

Source: Kafka's AdminUtils.assignReplicasToBrokers; tests/controller/placements.json has its
answers.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest


def place(
    brokers: Sequence[int],
    partition_count: int,
    replication_factor: int,
    start: int,
    first: int = 0,
    racks: Mapping[int, str] | None = None,
) -> list[tuple[int, ...]]:
    """Returns the replicas of partitions first..first+partition_count-1, as broker ids with the
    preferred leader first. `start` is random in production; `racks` counts only if it has the rack
    of every broker."""
    count = len(brokers)
    assert 1 <= replication_factor <= count
    if not racks or any(broker not in racks for broker in brokers):
        racks = {broker: str(broker) for broker in brokers}
        step = 1
    else:
        brokers, step = _alternating(brokers, racks), len({racks[broker] for broker in brokers})
    placed = []
    for partition in range(first, first + partition_count):
        turns = partition // count - (first - 1) // count if first else partition // count
        leader = (start + partition) % count
        shift = (start + turns) * step
        followers = [
            brokers[(leader + 1 + (shift + number) % max(count - 1, 1)) % count]
            for number in range(count - 1)
        ]
        placed.append(_spread(brokers[leader], followers, replication_factor, racks))
    return placed


def _spread(
    leader: int, followers: Sequence[int], wanted: int, racks: Mapping[int, str]
) -> tuple[int, ...]:
    """Takes followers in their order, at first one of each rack; when every rack has a replica, the
    search goes on behind the follower that was taken last, and racks do not count any more."""
    rack_count = len({racks[broker] for broker in (leader, *followers)})
    taken, used = [leader], {racks[leader]}
    for broker in chain(followers, followers):
        if len(taken) == wanted:
            break
        if broker not in taken and (racks[broker] not in used or len(used) == rack_count):
            taken.append(broker)
            used.add(racks[broker])
    return tuple(taken)


def _alternating(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    """Returns the brokers rack by rack in turns: the first of each rack, the second of each."""
    names = sorted({racks[broker] for broker in brokers})
    by_rack = [sorted(broker for broker in brokers if racks[broker] == name) for name in names]
    return [broker for turn in zip_longest(*by_rack) for broker in turn if broker is not None]
