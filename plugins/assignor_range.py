"""Server-side assignor `range`: each member gets consecutive partitions of each topic.

Members have one order for all topics (static members by instance id, before the others by member
id), so a member that subscribes to several topics of the same size gets the same partitions of
each, and records with the same key reach one member. When the partitions cannot be divided evenly,
the first members get one partition more. Earlier assignments have no influence. Kafka:
RangeAssignor.
"""

from collections.abc import Mapping

from barnabas.hooks import GroupMemberView, GroupView, hookimpl

NAME = "range"


class AssignorRange:
    @hookimpl
    def assign_partitions(
        self, assignor: str, group: GroupView
    ) -> Mapping[str, Mapping[bytes, range]] | None:
        if assignor != NAME:
            return None
        members = sorted(group.members.values(), key=_place)
        found: dict[str, dict[bytes, range]] = {member.member_id: {} for member in members}
        for topic_id, topic in group.topics.items():
            readers = [member for member in members if topic_id in member.topics]
            if not readers:
                continue
            least, more = divmod(topic.partition_count, len(readers))
            first = 0
            for at, member in enumerate(readers):
                count = least + (at < more)
                if count == 0:
                    break
                found[member.member_id][topic_id] = range(first, first + count)
                first += count
        return found


def _place(member: GroupMemberView) -> tuple[bool, str]:
    static = member.instance_id is not None
    return not static, (member.instance_id or "") if static else member.member_id
