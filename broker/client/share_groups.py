"""Share groups (KIP-932) for administrators: members, start offsets, resets."""

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.failures import raise_for
from barnabas.client.groups import Group, GroupMember, Offsets, with_coordinator
from barnabas.wire import Struct, request

DESCRIBE, DESCRIBE_OFFSETS, ALTER_OFFSETS = 77, 90, 91
PROTOCOL = "share"


@dataclass(frozen=True, slots=True)
class SharePosition:
    """A group's start offset and lag in one partition; None: the group has not read the partition,
    or the broker does not know the value."""

    start: int | None
    lag: int | None


def describe_share_group(cluster: Cluster, group_id: str) -> Group:
    """Returns a share group with its members and their assignments (KIP-932). Raises
    GroupIdNotFound, also for a group of another protocol; NotSpokenByBroker, ClientError."""

    def step(connection: Connection) -> Struct:
        body = request(DESCRIBE).cls(groupIds=[group_id])
        (row,) = connection.call(DESCRIBE, body).groups
        raise_for(row.errorCode, f"group {group_id}", row.errorMessage)
        return row

    row = with_coordinator(cluster, group_id, step)
    members = [
        GroupMember(
            m.memberId,
            None,
            m.clientId,
            m.clientHost,
            {t.topicName: tuple(t.partitions) for t in m.assignment.topicPartitions},
        )
        for m in row.members
    ]
    return Group(group_id, row.groupState, PROTOCOL, row.assignorName, members)


def share_positions(cluster: Cluster, group_id: str) -> dict[str, dict[int, SharePosition]]:
    """Returns the positions of a share group: topic -> partition -> SharePosition, for all
    partitions for which the group has a state. Raises KafkaError, ClientError."""

    def step(connection: Connection) -> dict[str, dict[int, SharePosition]]:
        asked = request(DESCRIBE_OFFSETS)
        groups = [asked.struct("groups")(groupId=group_id, topics=None)]
        (row,) = connection.call(DESCRIBE_OFFSETS, asked.cls(groups=groups)).groups
        raise_for(row.errorCode, f"group {group_id}", row.errorMessage)
        return {
            topic.topicName: {
                row.partitionIndex: SharePosition(_known(row.startOffset), _known(row.lag))
                for row in topic.partitions
                if row.errorCode == 0
            }
            for topic in row.topics
        }

    return with_coordinator(cluster, group_id, step)


def _known(number: int) -> int | None:
    return None if number < 0 else number


def alter_share_offsets(cluster: Cluster, group_id: str, offsets: Offsets) -> None:
    """Sets the start offsets of a share group: topic -> partition -> offset; records before it are
    not delivered any more. Raises NonEmptyGroup while the group has members."""
    with_coordinator(cluster, group_id, _altering(group_id, offsets))


def _altering(group_id: str, offsets: Offsets) -> Callable[[Connection], None]:
    def step(connection: Connection) -> None:
        message = request(ALTER_OFFSETS)
        row = message.struct("topics.partitions")
        topics = [
            message.struct("topics")(
                topicName=name,
                partitions=[
                    row(partitionIndex=index, startOffset=offset)
                    for index, offset in partitions.items()
                ],
            )
            for name, partitions in offsets.items()
        ]
        answer = connection.call(ALTER_OFFSETS, message.cls(groupId=group_id, topics=topics))
        raise_for(answer.errorCode, f"group {group_id}", answer.errorMessage)
        for topic in answer.responses:
            for row in topic.partitions:
                what = f"partition {row.partitionIndex} of topic {topic.topicName}"
                raise_for(row.errorCode, what, row.errorMessage)

    return step
