"""DescribeShareGroupOffsets (90), versions 0-1: the start offsets of share groups in partitions.

Topics null means all topics for which the group has a state. v1 the lag: the number of records that
are not completed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.api.access import of_rows
from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.api.later import Later
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


def handle(request: Struct, call: Call[ShareContext]) -> Struct | Later:
    share = call.context.share()
    share.check_enabled()
    if not request.groups:
        return call.answer()()
    later = Later()
    lock = threading.Lock()
    groups: dict[int, Struct] = {}

    def done(at: int, group: Struct) -> None:
        with lock:
            groups[at] = group
            if len(groups) < len(request.groups):
                return
        later.settle(call.answer()(groups=[groups[at] for at in range(len(groups))]))

    for at, row in enumerate(request.groups):
        _describe(row, share, call, partial(done, at))
    return later


def _describe(
    asked: Struct, share: ShareService, call: Call[ShareContext], done: Callable[[Struct], object]
) -> None:
    row = call.struct("groups")
    wanted = None
    denied = []
    if asked.topics is not None:
        wanted = {topic.topicName: topic.partitions for topic in asked.topics}
        denied = [name for name in wanted if not call.may(DESCRIBE, TOPIC, name)]
    refused = [_denied(name, wanted.pop(name), call) for name in denied] if wanted else []

    def described(topics: list[TopicRow]) -> None:
        seen = call.permitted(topics, DESCRIBE, TOPIC, lambda topic: topic.name)
        done(row(groupId=asked.groupId, topics=[_topic(topic, call) for topic in seen] + refused))

    try:
        share.offsets.describe(asked.groupId, wanted, described)
    except KafkaError as error:
        done(row(groupId=asked.groupId, errorCode=error.code, errorMessage=error.message))


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
