"""OffsetDelete (47), version 0: deletes a group's committed offsets of partitions.

It refuses topics to which members of the group are subscribed. The answer is sent when the deletion
is durable.
"""

from collections.abc import Sequence

from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.api.later import Later
from barnabas.errors import KafkaError, UnknownTopicOrPartition
from barnabas.wire import Struct

KEY = 47
VERSIONS = (0, 0)
CONTEXT = GroupContext


def handle(request: Struct, call: Call[GroupContext]) -> Later:
    state = call.context.cluster()
    asked = [
        (topic.name, row.partitionIndex) for topic in request.topics for row in topic.partitions
    ]
    known = [state.partition(topic, index) is not None for topic, index in asked]
    later = Later()

    def done(outcomes: Sequence[KafkaError | None]) -> None:
        at = iter(outcomes)
        codes = []
        for there in known:
            error = next(at) if there else UnknownTopicOrPartition()
            codes.append(0 if error is None else error.code)
        later.settle(_answer(request, codes, call))

    wanted = [row for row, there in zip(asked, known, strict=True) if there]
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
