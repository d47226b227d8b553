"""ConsumerGroupDescribe (69), versions 0-1: epochs, members and assignments of consumer groups.

A missing group, or one of another protocol, gets GROUP_ID_NOT_FOUND with a message. v1 each
member's protocol: classic or consumer.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from barnabas.api.access import of_rows
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.api.k68_consumer_group_heartbeat import check_enabled
from barnabas.errors import InvalidGroupId, KafkaError, TopicAuthorizationFailed
from barnabas.security.acl_codes import DESCRIBE, GROUP, TOPIC
from barnabas.wire import Struct

KEY = 69
VERSIONS = (0, 1)
CONTEXT = GroupContext
ACCESS = of_rows(DESCRIBE, GROUP, "groupIds", "groups")
CLASSIC, CONSUMER = 0, 1
HIDDEN = "The group has assigned topics that the client may not describe."


def handle(request: Struct, call: Call[GroupContext]) -> Struct:
    check_enabled(call)
    return call.answer()(groups=[_group(group_id, request, call) for group_id in request.groupIds])


def _group(group_id: str, request: Struct, call: Call[GroupContext]) -> Struct:
    row = call.struct("groups")
    if not group_id:
        return row(errorCode=InvalidGroupId.code)
    try:
        found = call.context.administration.describe_consumers(group_id)
    except KafkaError as error:
        return row(groupId=group_id, errorCode=error.code, errorMessage=error.message)
    member_of, assignment_of = (
        call.struct("groups.members"),
        call.struct("groups.members.assignment"),
    )
    topic_of = call.struct("groups.members.assignment.topicPartitions")
    target_of = call.struct("groups.members.targetAssignment")
    target_topic_of = call.struct("groups.members.targetAssignment.topicPartitions")

    def topics(of: type[Struct], assigned: Mapping[bytes, Collection[int]]) -> list[Struct]:
        views = (
            (found.topics.with_id(t), sorted(partitions)) for t, partitions in assigned.items()
        )
        return [
            of(topicId=view.topic_id, topicName=view.name, partitions=partitions)
            for view, partitions in views
            if view is not None
        ]

    answer = row(
        groupId=group_id,
        groupState=found.state,
        groupEpoch=found.epoch,
        assignmentEpoch=found.target_epoch,
        assignorName=found.assignor,
        members=[
            member_of(
                memberId=member.member_id,
                instanceId=member.instance_id,
                rackId=member.rack_id,
                memberEpoch=member.epoch,
                clientId=member.client_id,
                clientHost=member.client_host,
                subscribedTopicNames=list(member.topics),
                subscribedTopicRegex=member.regex or "",
                assignment=assignment_of(topicPartitions=topics(topic_of, member.assigned)),
                targetAssignment=target_of(topicPartitions=topics(target_topic_of, target)),
                memberType=CONSUMER if member.classic is None else CLASSIC,
            )
            for member, target in zip(found.members, found.targets, strict=True)
        ],
    )
    assignments = (
        part for row in answer.members for part in (row.assignment, row.targetAssignment)
    )
    if not may_see_topics(assignments, call):
        return row(groupId=group_id, errorCode=TopicAuthorizationFailed.code, errorMessage=HIDDEN)
    if request.includeAuthorizedOperations:
        answer.authorizedOperations = call.authorized_operations(GROUP, group_id)
    return answer


def may_see_topics(assignments: Iterable[Struct], call: Call[Any]) -> bool:
    """Returns whether the client may describe every topic of a group's assignments."""
    if call.authorizer is None:
        return True
    names = {part.topicName for row in assignments for part in row.topicPartitions}
    return all(call.may(DESCRIBE, TOPIC, name) for name in names)


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    row = call.struct("groups")
    return call.answer()(groups=[row(groupId=name, errorCode=code) for name in request.groupIds])
