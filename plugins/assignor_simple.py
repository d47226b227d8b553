"""Server-side assignor `simple` of share groups: each partition has a reader, and each member has a
partition.

A partition may have several readers. Members that subscribe to the same topics share them evenly:
with more partitions than members each member gets a part of them, with more members than partitions
each partition gets several readers. Members keep their partitions as long as the result is even.
Kafka: SimpleAssignor; among equally good assignments Kafka may choose another one.
"""

from collections.abc import Mapping

from barnabas.hooks import GroupMemberView, GroupView, hookimpl

NAME = "simple"
Partition = tuple[bytes, int]


class AssignorSimple:
    @hookimpl
    def assign_partitions(
        self, assignor: str, group: GroupView
    ) -> Mapping[str, Mapping[bytes, set[int]]] | None:
        if assignor != NAME:
            return None
        found: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in group.members}
        for readers, topics in _alike(group):
            partitions = [
                (topic_id, index)
                for topic_id in topics
                for index in range(group.topics[topic_id].partition_count)
            ]
            for member_id, taken in _shared(readers, partitions).items():
                for topic_id, index in taken:
                    found[member_id].setdefault(topic_id, set()).add(index)
        return found


def _alike(group: GroupView) -> list[tuple[list[GroupMemberView], list[bytes]]]:
    """Returns groups of topics that have the same subscribers: those members, and the topic ids."""
    by_readers: dict[tuple[str, ...], list[bytes]] = {}
    for topic_id in sorted(group.topics):
        readers = sorted(m.member_id for m in group.members.values() if topic_id in m.topics)
        if readers:
            by_readers.setdefault(tuple(readers), []).append(topic_id)
    return [([group.members[name] for name in names], ids) for names, ids in by_readers.items()]


def _shared(
    readers: list[GroupMemberView], partitions: list[Partition]
) -> dict[str, set[Partition]]:
    readers_each = -(-len(readers) // len(partitions))  # readers of a partition, at most
    most = -(-len(partitions) * readers_each // len(readers))  # partitions of a member, at most
    taken: dict[str, set[Partition]] = {member.member_id: set() for member in readers}
    reader_count = dict.fromkeys(partitions, 0)
    for member in readers:
        for place in partitions:
            has = place[1] in member.assigned.get(place[0], ())
            mine = taken[member.member_id]
            if has and len(mine) < most and reader_count[place] < readers_each:
                mine.add(place)
                reader_count[place] += 1
    # First the loop gives a reader to partitions without one, then partitions to members without
    # one.
    for place in partitions:
        if reader_count[place] == 0:
            member_id = min(taken, key=lambda name: len(taken[name]))
            taken[member_id].add(place)
            reader_count[place] = 1
    for mine in taken.values():
        if not mine:
            place = min(partitions, key=lambda row: reader_count[row])
            mine.add(place)
            reader_count[place] += 1
    return taken
