"""ShareGroupDescribe (77), version 1: state, epochs and members of share groups.

v0 was never stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.api.access import of_rows
from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.api.k69_consumer_group_describe import HIDDEN, may_see_topics
from barnabas.errors import KafkaError, TopicAuthorizationFailed
from barnabas.security.acl_codes import DESCRIBE, GROUP
from barnabas.wire import Struct

if TYPE_CHECKING:
    from barnabas.coordinator.groups.target_assignment import Assignment
    from barnabas.coordinator.share.service import ShareService
    from barnabas.coordinator.share.share_group import ShareMember

KEY = 77
VERSIONS = (1, 1)
CONTEXT = ShareContext
ACCESS = of_rows(DESCRIBE, GROUP, "groupIds", "groups")
DEAD = "Dead"


def handle(request: Struct, call: Call[ShareContext]) -> Struct:
    share = call.context.share()
    share.check_enabled()
    rows = [_group(group_id, share, call) for group_id in request.groupIds]
    if request.includeAuthorizedOperations:
        for row in rows:
            if not row.errorCode:
                row.authorizedOperations = call.authorized_operations(GROUP, row.groupId)
    return call.answer()(groups=rows)


def _group(group_id: str, share: ShareService, call: Call[ShareContext]) -> Struct:
    row = call.struct("groups")
    try:
        with share.groups.lock:
            group = share.groups.group(group_id)
            answer = row(
                groupId=group_id,
                groupState=group.state,
                groupEpoch=group.epoch,
                assignmentEpoch=group.target_epoch,
                assignorName=share.groups.assignor(),
                members=[_member(member, share, call) for member in group.members.values()],
            )
    except KafkaError as error:
        return row(groupId=group_id, errorCode=error.code, errorMessage=error.message)
    if not may_see_topics((member.assignment for member in answer.members), call):
        return row(groupId=group_id, errorCode=TopicAuthorizationFailed.code, errorMessage=HIDDEN)
    return answer


def _member(member: ShareMember, share: ShareService, call: Call[ShareContext]) -> Struct:
    return call.struct("groups.members")(
        memberId=member.member_id,
        rackId=member.rack_id,
        memberEpoch=member.epoch,
        clientId=member.client_id,
        clientHost=member.client_host,
        subscribedTopicNames=list(member.topics),
        assignment=_assignment(member.assignment, share, call),
    )


def _assignment(assignment: Assignment, share: ShareService, call: Call[ShareContext]) -> Struct:
    row = call.struct("groups.members.assignment.topicPartitions")
    views = share.groups.topics()
    return call.struct("groups.members.assignment")(
        topicPartitions=[
            row(topicId=topic_id, topicName=view.name, partitions=sorted(indexes))
            for topic_id, indexes in assignment.items()
            if (view := views.with_id(topic_id)) is not None
        ]
    )


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    row = call.struct("groups")
    return call.answer()(groups=[row(groupId=name, errorCode=code) for name in request.groupIds])
