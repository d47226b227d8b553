"""DescribeShareGroupOffsets (90), versions 0-1: the start offsets of share groups in partitions.

Topics null means all topics for which the group has a state. v1 the lag: the number of records that
are not completed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.api.access import of_rows
from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.api.share_rows import code_and_message_as_kafka
from barnabas.errors import KafkaError, TopicAuthorizationFailed
from barnabas.security.acl_codes import DESCRIBE, GROUP, TOPIC
from barnabas.wire import Struct

if TYPE_CHECKING:
    from barnabas.coordinator.share.service import ShareService
    from barnabas.coordinator.share.share_offsets import TopicRow

KEY = 90
VERSIONS = (0, 1)
CONTEXT = ShareContext
ACCESS = of_rows(DESCRIBE, GROUP, "groups", "groups", "groupId")


def handle(request: Struct, call: Call[ShareContext]) -> Struct:
    share = call.context.share()
    share.check_enabled()
    return call.answer()(groups=[_group(row, share, call) for row in request.groups])


def _group(asked: Struct, share: ShareService, call: Call[ShareContext]) -> Struct:
    row = call.struct("groups")
    wanted = None
    denied = []
    if asked.topics is not None:
        wanted = {topic.topicName: topic.partitions for topic in asked.topics}
        denied = [name for name in wanted if not call.may(DESCRIBE, TOPIC, name)]
    refused = [_denied(name, wanted.pop(name), call) for name in denied] if wanted else []
    try:
        topics = share.offsets.describe(asked.groupId, wanted)
    except KafkaError as error:
        return row(groupId=asked.groupId, errorCode=error.code, errorMessage=error.message)
    seen = call.permitted(topics, DESCRIBE, TOPIC, lambda topic: topic.name)
    return row(groupId=asked.groupId, topics=[_topic(topic, call) for topic in seen] + refused)


def _denied(name: str, indexes: Sequence[int], call: Call[ShareContext]) -> Struct:
    row_of = call.struct("groups.topics.partitions")
    code, message = code_and_message_as_kafka(TopicAuthorizationFailed())
    rows = [row_of(partitionIndex=at, errorCode=code, errorMessage=message) for at in indexes]
    return call.struct("groups.topics")(topicName=name, partitions=rows)


def _topic(topic: TopicRow, call: Call[ShareContext]) -> Struct:
    row_of = call.struct("groups.topics.partitions")
    rows = []
    for row in topic.rows:
        code, message = code_and_message_as_kafka(row.error)
        rows.append(
            row_of(
                partitionIndex=row.partition,
                startOffset=row.start,
                leaderEpoch=row.leader_epoch,
                lag=row.lag,
                errorCode=code,
                errorMessage=message,
            )
        )
    return call.struct("groups.topics")(
        topicName=topic.name, topicId=topic.topic_id, partitions=rows
    )


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    row = call.struct("groups")
    return call.answer()(
        groups=[row(groupId=group.groupId, errorCode=code) for group in request.groups]
    )
