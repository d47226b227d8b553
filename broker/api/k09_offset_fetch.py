"""OffsetFetch (9), versions 0-10: the committed offsets of groups.

v0 offsets in the metadata tree, as in Kafka 0.8; v2 null topics means all, and an error for the
whole answer; v3 throttle time; v5 leader epochs; v6 flexible; v7 requireStable: a partition with a
pending transactional commit gets UNSTABLE_OFFSET_COMMIT; v8 several groups in one request; v9
members of the consumer protocol; v10 topic ids.
"""

from collections.abc import Iterable

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.coordinator.groups.group_records import Committed
from barnabas.errors import (
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from barnabas.metadata.znodes import uuid_bytes, uuid_text
from barnabas.security.acl_codes import DESCRIBE, GROUP, TOPIC
from barnabas.wire import Struct

KEY = 9
VERSIONS = (0, 10)
CONTEXT = GroupContext
ACCESS = Access(elsewhere="_topics and others: DESCRIBE of each group, and of each topic")
WHOLE_ERROR_FROM = 2
GROUPS_FROM = 8
IDS_FROM = 10
NO_OFFSET = -1
NO_ID = bytes(16)


def handle(request: Struct, call: Call[GroupContext]) -> Struct:
    if call.version < GROUPS_FROM:
        call.require(DESCRIBE, GROUP, request.groupId)
    if call.version == 0:
        return _from_the_tree(request, call)
    if call.version < GROUPS_FROM:
        row_of, partition_of = call.struct("topics"), call.struct("topics.partitions")
        topics = _topics(request.groupId, request, request.requireStable, call)
        return call.answer()(topics=_rows(topics, row_of, partition_of))
    return call.answer()(groups=[_group(asked, request, call) for asked in request.groups])


def _group(asked: Struct, request: Struct, call: Call[GroupContext]) -> Struct:
    group_of = call.struct("groups")
    row_of, partition_of = call.struct("groups.topics"), call.struct("groups.topics.partitions")
    try:
        call.require(DESCRIBE, GROUP, asked.groupId)
        call.context.groups.check_reader(asked.groupId, asked.memberId, asked.memberEpoch)
        topics = _topics(asked.groupId, asked, request.requireStable, call)
    except KafkaError as error:
        return group_of(groupId=asked.groupId, errorCode=error.code)
    return group_of(groupId=asked.groupId, topics=_rows(topics, row_of, partition_of))


Fetched = tuple[int, Committed | None, int]  # partition, committed offset, error code
Topics = list[tuple[str, bytes, list[Fetched]]]


def _topics(group_id: str, asked: Struct, stable: bool, call: Call[GroupContext]) -> Topics:
    groups, state = call.context.groups, call.context.cluster()
    by_id = call.version >= IDS_FROM
    refused: Topics = []
    wanted: list[tuple[str, Iterable[int]]] = []
    ids: dict[str, bytes] = {}
    if asked.topics is None:
        committed = groups.committed(group_id).items()
        wanted += call.permitted(committed, DESCRIBE, TOPIC, lambda row: row[0])
        if by_id:
            known = {name: state.topic(name) for name, _ in wanted}
            ids = {n: uuid_bytes(t.topic_id) for n, t in known.items() if t and t.topic_id}
            wanted = [(name, partitions) for name, partitions in wanted if name in ids]
    else:
        for topic in asked.topics:
            name = topic.name
            if by_id:
                found = state.topic_by_id(uuid_text(topic.topicId))
                if found is None:
                    refused.append(_refused("", topic.topicId, topic, UnknownTopicId.code))
                    continue
                name = found.name
                ids[name] = topic.topicId
            if not call.may(DESCRIBE, TOPIC, name):
                code = TopicAuthorizationFailed.code
                topic_id = topic.topicId if by_id else NO_ID
                refused.append(_refused("" if by_id else name, topic_id, topic, code))
                continue
            wanted.append((name, topic.partitionIndexes))
    fetched: Topics = []
    for name, partitions in groups.fetch(group_id, wanted, stable):
        unstable = UnstableOffsetCommit.code
        rows = [(p, row, unstable if due else 0) for p, row, due in partitions]
        fetched.append((name, ids.get(name, NO_ID), rows))
    return fetched + refused


def _refused(name: str, topic_id: bytes, asked: Struct, code: int) -> tuple[str, bytes, list]:
    return name, topic_id, [(index, None, code) for index in asked.partitionIndexes]


def _rows(topics: Topics, row_of: type[Struct], partition_of: type[Struct]) -> list[Struct]:
    return [
        row_of(name=name, topicId=topic_id, partitions=[_row(row, partition_of) for row in rows])
        if "topicId" in row_of.layout.names
        else row_of(name=name, partitions=[_row(row, partition_of) for row in rows])
        for name, topic_id, rows in topics
    ]


def _row(fetched: Fetched, partition_of: type[Struct]) -> Struct:
    partition, committed, code = fetched
    if committed is None or code:
        return partition_of(
            partitionIndex=partition,
            committedOffset=NO_OFFSET,
            committedLeaderEpoch=-1,
            metadata="",
            errorCode=code,
        )
    return partition_of(
        partitionIndex=partition,
        committedOffset=committed.offset,
        committedLeaderEpoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _from_the_tree(request: Struct, call: Call[GroupContext]) -> Struct:
    row_of, partition_of = call.struct("topics"), call.struct("topics.partitions")
    topics: Topics = []
    for topic in request.topics:
        rows: list[Fetched] = []
        allowed = call.may(DESCRIBE, TOPIC, topic.name)
        for index in topic.partitionIndexes:
            try:
                if not allowed:
                    raise TopicAuthorizationFailed()
                if call.context.cluster().partition(topic.name, index) is None:
                    raise UnknownTopicOrPartition()
                offset = call.context.tree_offsets.fetch(request.groupId, topic.name, index)
                # In version 0 a partition without a committed offset gets this error.
                code = UnknownTopicOrPartition.code if offset is None else 0
            except KafkaError as error:
                offset, code = None, error.code
            row = None if offset is None else Committed(offset, -1, "", -1)
            rows.append((index, row, code))
        topics.append((topic.name, NO_ID, rows))
    return call.answer()(topics=_rows(topics, row_of, partition_of))


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    if call.version >= GROUPS_FROM:
        group_of = call.struct("groups")
        return call.answer()(
            groups=[group_of(groupId=row.groupId, errorCode=code) for row in request.groups]
        )
    if call.version >= WHOLE_ERROR_FROM:
        return call.answer()(errorCode=code)
    row_of, partition_of = call.struct("topics"), call.struct("topics.partitions")
    topics: Topics = [
        (topic.name, NO_ID, [(index, None, code) for index in topic.partitionIndexes])
        for topic in request.topics
    ]
    return call.answer()(topics=_rows(topics, row_of, partition_of))
