"""Chooses the new brokers of a drained broker's replicas. A pure function; the caller moves them.

Each replica goes to a live broker without a replica of the same partition: first to a broker in a
rack that the partition does not use yet, among those to the one with the fewest replicas. The new
replica takes the drained one's place in the list, so that the next preferred leader replaces a
preferred leader.
"""

from collections.abc import Mapping, Sequence

Place = tuple[str, int]


class NoOtherBroker(Exception):
    """A partition already has a replica on every live broker."""


def evacuated(
    partitions: Mapping[Place, Sequence[int]], leaving: int, racks: Mapping[int, str | None]
) -> dict[Place, tuple[int, ...]]:
    """Returns the new replicas of the partitions that have a replica on `leaving`. `partitions`:
    the replicas of all partitions; `racks`: broker id -> rack of the live brokers. Raises
    NoOtherBroker."""
    load = dict.fromkeys(racks, 0)
    for replicas in partitions.values():
        for broker in replicas:
            if broker in load:
                load[broker] += 1
    found = {}
    for place, replicas in sorted(partitions.items()):
        if leaving not in replicas:
            continue
        others = [broker for broker in racks if broker != leaving and broker not in replicas]
        if not others:
            raise NoOtherBroker(
                f"{place[0]}-{place[1]} has {len(replicas)} replicas, and no live broker beside"
                f" these could take the one of broker {leaving}"
            )
        used = {racks.get(broker) for broker in replicas if broker != leaving}
        best = min(others, key=lambda b: (racks[b] is not None and racks[b] in used, load[b], b))
        load[best] += 1
        found[place] = tuple(best if broker == leaving else broker for broker in replicas)
    return found
