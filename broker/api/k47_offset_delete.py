"""OffsetDelete (47), version 0: deletes a group's committed offsets of partitions.

It refuses topics to which members of the group are subscribed. The answer is sent when the deletion
is durable.
"""

from collections.abc import Sequence

from barnabas.api.access import Access, RequestPermission
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.api.later import Later
from barnabas.errors import KafkaError, TopicAuthorizationFailed, UnknownTopicOrPartition
from barnabas.security.acl_codes import DELETE, GROUP, READ, TOPIC
from barnabas.wire import Struct

KEY = 47
VERSIONS = (0, 0)
CONTEXT = GroupContext
ACCESS = Access(
    (RequestPermission(DELETE, GROUP, "groupId"),), elsewhere="handle: READ of each topic"
)


def handle(request: Struct, call: Call[GroupContext]) -> Later:
    state = call.context.cluster()
    asked = [
        (topic.name, row.partitionIndex) for topic in request.topics for row in topic.partitions
    ]
    topics = {topic.name for topic in request.topics}
    allowed = {name for name in topics if call.may(READ, TOPIC, name)}
    errors = [
        TopicAuthorizationFailed.code
        if topic not in allowed
        else UnknownTopicOrPartition.code * (state.partition(topic, index) is None)
        for topic, index in asked
    ]
    later = Later()

    def done(outcomes: Sequence[KafkaError | None]) -> None:
        at = iter(outcomes)
        codes = []
        for code in errors:
            error = None if code else next(at)
            codes.append(code if error is None else error.code)
        later.settle(_answer(request, codes, call))

    wanted = [row for row, code in zip(asked, errors, strict=True) if not code]
    call.context.administration.delete_offsets(request.groupId, wanted, done)
    return later


def _answer(request: Struct, codes: Sequence[int], call: Call[GroupContext]) -> Struct:
    row_of, partition_of = call.struct("topics"), call.struct("topics.partitions")
    at = iter(codes)
    return call.answer()(
        topics=[
            row_of(
                name=topic.name,
                partitions=[
                    partition_of(partitionIndex=row.partitionIndex, errorCode=next(at))
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    return call.answer()(errorCode=code)
