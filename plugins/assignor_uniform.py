"""Server-side assignor `uniform`: members get equal numbers of partitions, and few partitions move.

When all members subscribe to the same topics, each keeps its partitions up to its share, and the
free ones go to members with fewer. When subscriptions differ, each free partition goes to the
subscriber of its topic with the fewest partitions; then partitions move from the member with the
most to the one with the fewest, among the subscribers of a topic, while that makes the numbers more
even. LOOKS_MAX limits the time. Kafka's UniformAssignor has the same two aims.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from barnabas.hooks import GroupView, hookimpl

NAME = "uniform"
LOOKS_MAX = 2_000_000  # members examined; each move makes the loads more even

Owned = dict[str, dict[bytes, set[int]]]  # by member, by topic


class AssignorUniform:
    @hookimpl
    def assign_partitions(
        self, assignor: str, group: GroupView
    ) -> Mapping[str, Mapping[bytes, set[int]]] | None:
        if assignor != NAME:
            return None
        if len({member.topics for member in group.members.values()}) == 1:
            return _even_shares(group)
        return _balanced(group)


def _kept(group: GroupView) -> tuple[Owned, dict[bytes, set[int]]]:
    """Returns the partitions that members may keep, and the free partitions of each topic."""
    wanted = frozenset[bytes]().union(*{member.topics for member in group.members.values()})
    free = {t: set(range(row.partition_count)) for t, row in group.topics.items() if t in wanted}
    owned: Owned = {}
    for member_id, member in group.members.items():
        mine = owned[member_id] = {}
        for topic_id, partitions in member.assigned.items():
            if topic_id in member.topics and topic_id in free:
                keeps = partitions & free[topic_id]
                if keeps:
                    mine[topic_id] = set(keeps)
                    free[topic_id] -= keeps
    return owned, free


def _even_shares(group: GroupView) -> Owned:
    owned, free = _kept(group)
    total = sum(group.topics[topic_id].partition_count for topic_id in free)
    least, more = divmod(total, len(owned))
    counts = {m: sum(map(len, mine.values())) for m, mine in owned.items()}
    # Members that already have more get the larger shares, so that fewer partitions move.
    larger = {m for m in sorted(counts, key=lambda m: (-counts[m], m))[:more]}
    for member_id, mine in owned.items():
        surplus = counts[member_id] - least - (member_id in larger)
        for topic_id in sorted(mine):
            while surplus > 0 and mine[topic_id]:
                given_up = max(mine[topic_id])
                mine[topic_id].discard(given_up)
                free[topic_id].add(given_up)
                counts[member_id] -= 1
                surplus -= 1
    to_deal = iter([(t, p) for t in sorted(free) for p in sorted(free[t])])
    for member_id in sorted(owned):
        for _ in range(least + (member_id in larger) - counts[member_id]):
            topic_id, partition = next(to_deal)
            owned[member_id].setdefault(topic_id, set()).add(partition)
    return owned


def _balanced(group: GroupView) -> Owned:
    owned, free = _kept(group)
    counts = {m: sum(map(len, mine.values())) for m, mine in owned.items()}
    readers: dict[bytes, list[str]] = {topic_id: [] for topic_id in group.topics}
    for member_id in sorted(group.members):
        for topic_id in group.members[member_id].topics:
            if topic_id in readers:
                readers[topic_id].append(member_id)
    # Topics with few subscribers come first: members of other topics have more choice.
    order = sorted((t for t in readers if readers[t]), key=lambda t: (len(readers[t]), t))
    for topic_id in order:
        least = [(counts[m], m) for m in readers[topic_id]]
        heapify(least)
        for partition in sorted(free[topic_id]):
            count, member_id = heappop(least)
            owned[member_id].setdefault(topic_id, set()).add(partition)
            counts[member_id] = count + 1
            heappush(least, (count + 1, member_id))
    _even_out(owned, counts, readers, order)
    return owned


def _even_out(
    owned: Owned, counts: dict[str, int], readers: dict[bytes, list[str]], order: list[bytes]
) -> None:
    looks_left = LOOKS_MAX
    moved = True
    while moved and looks_left > 0:
        moved = False
        for topic_id in order:
            while looks_left > 0:
                looks_left -= len(readers[topic_id])
                holders = [m for m in readers[topic_id] if owned[m].get(topic_id)]
                if not holders:
                    break
                most = max(holders, key=lambda m: (counts[m], m))
                least = min(readers[topic_id], key=lambda m: (counts[m], m))
                if counts[most] - counts[least] < 2:
                    break
                partition = max(owned[most][topic_id])
                owned[most][topic_id].discard(partition)
                owned[least].setdefault(topic_id, set()).add(partition)
                counts[most] -= 1
                counts[least] += 1
                moved = True
