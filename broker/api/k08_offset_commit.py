"""OffsetCommit (8), versions 0-10: how far a group has read; answered when it is durable.

v0 offsets go to the metadata tree, as 0.8 kept them; v1 generation, member, a timestamp of the
client's; v2 a retention time (to v4); v3 throttle time; v6 leader epochs; v7 static members; v8
flexible; v9 members of the new protocol (GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH); v10 topic ids.
"""

from collections.abc import Sequence

from barnabas.api.by_partition import with_code, with_codes
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.api.later import Later
from barnabas.coordinator.groups.group_records import NEVER, Committed
from barnabas.errors import (
    KafkaError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.metadata.znodes import uuid_text
from barnabas.wire import Struct

KEY = 8
VERSIONS = (0, 10)
CONTEXT = GroupContext
IDS_FROM = 10

Rows = list[tuple[str | None, Struct, Struct]]  # topic name, None: not known; topic; partition


def handle(request: Struct, call: Call[GroupContext]) -> Struct | Later:
    if call.version == 0:
        return _to_the_tree(request, call)
    state = call.context.cluster()
    rows: Rows = []
    codes: list[int] = []
    for topic in request.topics:
        name: str | None = topic.name
        if call.version >= IDS_FROM:
            found = state.topic_by_id(uuid_text(topic.topicId))
            name = found.name if found is not None else None
        for row in topic.partitions:
            rows.append((name, topic, row))
            if name is None:
                codes.append(UnknownTopicId.code)
            elif state.partition(name, row.partitionIndex) is None:
                codes.append(UnknownTopicOrPartition.code)
            else:
                codes.append(0)
    later = Later()
    now_ms = call.context.wall_ms()
    commits = [
        (name, row.partitionIndex, _committed(row, request, now_ms))
        for (name, _, row), code in zip(rows, codes, strict=True)
        if code == 0 and name is not None
    ]
    if not commits:
        return with_codes(request, codes, call)

    def done(outcomes: Sequence[KafkaError | None]) -> None:
        at = iter(outcomes)
        merged = [code or _code(next(at)) for code in codes]
        later.settle(with_codes(request, merged, call))

    call.context.groups.commit(
        request.groupId,
        request.memberId,
        request.groupInstanceId,
        request.generationIdOrMemberEpoch,
        commits,
        done,
        version=call.version,
    )
    return later


def _committed(row: Struct, request: Struct, now_ms: int) -> Committed:
    # Version 1 alone has a timestamp in it, versions 2 to 4 alone a retention time.
    commit_ms = row.commitTimestamp if row.commitTimestamp >= 0 else now_ms
    retention_ms = request.retentionTimeMs
    return Committed(
        offset=row.committedOffset,
        leader_epoch=row.committedLeaderEpoch,
        metadata=row.committedMetadata or "",
        commit_ms=commit_ms,
        expire_ms=NEVER if retention_ms < 0 else commit_ms + retention_ms,
    )


def _to_the_tree(request: Struct, call: Call[GroupContext]) -> Struct:
    codes = []
    for topic in request.topics:
        for row in topic.partitions:
            try:
                if call.context.cluster().partition(topic.name, row.partitionIndex) is None:
                    raise UnknownTopicOrPartition()
                call.context.tree_offsets.commit(
                    request.groupId, topic.name, row.partitionIndex, row.committedOffset
                )
                codes.append(0)
            except KafkaError as error:
                codes.append(error.code)
    return with_codes(request, codes, call)


def _code(error: KafkaError | None) -> int:
    return 0 if error is None else error.code


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    return with_code(request, code, call)
