"""ShareGroupDescribe (77), version 1: state, epochs and members of share groups.

v0 was never stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.api import operations
from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.errors import KafkaError
from barnabas.wire import Struct

if TYPE_CHECKING:
    from barnabas.coordinator.groups.target_assignment import Assignment
    from barnabas.coordinator.share.service import ShareService
    from barnabas.coordinator.share.share_group import ShareMember

KEY = 77
VERSIONS = (1, 1)
CONTEXT = ShareContext
DEAD = "Dead"


def handle(request: Struct, call: Call[ShareContext]) -> Struct:
    share = call.context.share()
    share.check_enabled()
    allowed = operations.GROUP if request.includeAuthorizedOperations else operations.NOT_ASKED
    return call.answer()(
        groups=[_group(group_id, allowed, share, call) for group_id in request.groupIds]
    )


def _group(group_id: str, allowed: int, share: ShareService, call: Call[ShareContext]) -> Struct:
    row = call.struct("groups")
    try:
        with share.groups.lock:
            group = share.groups.group(group_id)
            return row(
                groupId=group_id,
                groupState=group.state,
                groupEpoch=group.epoch,
                assignmentEpoch=group.assignment_epoch,
                assignorName=share.groups.assignor(),
                members=[_member(member, share, call) for member in group.members.values()],
                authorizedOperations=allowed,
            )
    except KafkaError as error:
        return row(groupId=group_id, errorCode=error.code, errorMessage=error.message)


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
