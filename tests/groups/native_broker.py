"""A broker with a topic and a group, its native OffsetCommit handler, and clients that commit."""

from contextlib import closing, contextmanager

from compat.support import Wire, create_topic

from barnabas import Broker
from barnabas.coordinator.groups.group_records import OffsetRecord, read_record
from barnabas.wire import request, response
from barnabas.wire.batches import decode_batches
from barnabas.wire.headers import encode_response
from barnabas.wire.internal import CONSUMER_OFFSETS

ENTRIES_MAX = 256  # the limit of one shard: cext/coordinator/commit_entries.pxd
PATIENCE_S = 30
OFFSETS_PARTITIONS = 4


@contextmanager
def started(path, settings=()):
    base = {
        "log.dirs": str(path),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),  # by default 50 are made
    }
    with Broker({**base, **dict(settings)}) as broker:
        create_topic(broker.bootstrap_servers, "t", 3)
        with closing(Wire(broker.bootstrap_servers)) as wire:
            assert wire.call(10, 0, request(10).cls(key="g")).errorCode == 0
        yield broker


def native_of(broker):
    return broker.node.serving.coordinators.groups._native


def passed_to_python(broker):
    """The list gets an element for each request that the native handler passes to Python."""
    groups, passed_on = broker.node.serving.coordinators.groups, []
    take = groups.take_commits

    def take_commits():
        passed_on.append(1)
        take()

    groups.take_commits = take_commits
    return passed_on


def states_of(broker):
    """The states of the partitions of __consumer_offsets."""
    return broker.node.serving.coordinators.group_log._states


def table_of(broker):
    """The table of groups that commits are checked against."""
    return broker.node.serving.coordinators.groups.table


def body(rows, group="g", generation=-1, member="", by_id=None, key=8, **more):
    """OffsetCommit, or TxnOffsetCommit (28), of (partition, offset, metadata, leader epoch)."""
    ask = request(key)
    topics = [
        ask.struct("topics")(
            name="t",
            topicId=by_id or bytes(16),
            partitions=[
                ask.struct("topics.partitions")(
                    partitionIndex=index,
                    committedOffset=offset,
                    committedMetadata=metadata,
                    committedLeaderEpoch=epoch,
                )
                for index, offset, metadata, epoch in rows
            ],
        )
    ]
    return ask.cls(
        groupId=group,
        generationIdOrMemberEpoch=generation,
        memberId=member,
        topics=topics,
        **more,
    )


def answer(key, version, asked, codes):
    """The answer to a request, without its size, by the schema of the message."""
    at, made = iter(codes), response(key)
    topics = [
        made.struct("topics")(
            name=topic.name,
            topicId=topic.topicId,
            partitions=[
                made.struct("topics.partitions")(
                    partitionIndex=row.partitionIndex, errorCode=next(at)
                )
                for row in topic.partitions
            ],
        )
        for topic in asked.topics
    ]
    return encode_response(key, version, 77, made.cls(topics=topics))[4:]


def commit(wire, *args, version=8, **more):
    told = wire.call(8, version, body(*args, **more))
    return [row.errorCode for topic in told.topics for row in topic.partitions]


def fetched(broker, group="g"):
    ask = request(9)
    topics = [ask.struct("topics")(name="t", partitionIndexes=[0, 1, 2])]
    with closing(Wire(broker.bootstrap_servers)) as wire:
        told = wire.call(9, 5, ask.cls(groupId=group, topics=topics))
    if told.errorCode:  # it is loading
        return [(-1, "", -1)] * 3
    return [
        (row.committedOffset, row.metadata, row.committedLeaderEpoch)
        for row in told.topics[0].partitions
    ]


def journal_of(broker, group="g"):
    """The log of the group's partition of __consumer_offsets."""
    partition = broker.node.serving.coordinators.groups.journal.partition_of(group)
    return broker.node.loaded.replicas.log(CONSUMER_OFFSETS, partition)


def batches(broker, group="g"):
    """All of that log."""
    return list(decode_batches(journal_of(broker, group).read(0, 1 << 24), size_max=1 << 24))


def records(broker, group="g"):
    """The offset records of the group's partition, in order, from native code and from Python."""
    found = [read_record(record) for batch in batches(broker, group) for record in batch.records]
    return [row for row in found if isinstance(row, OffsetRecord) and row.group_id == group]


class Member:
    """A member of the classic protocol on a connection of its own."""

    def __init__(self, broker, session_ms=30_000, instance=None):
        self.wire = Wire(broker.bootstrap_servers)
        self.session_ms, self.instance = session_ms, instance
        self.id, self.generation = "", -1

    def join(self):
        ask = request(11)
        protocol = ask.struct("protocols")(name="range", metadata=b"")
        told = self.wire.call(
            11,
            5,
            ask.cls(
                groupId="g",
                sessionTimeoutMs=self.session_ms,
                rebalanceTimeoutMs=60_000,
                memberId=self.id,
                groupInstanceId=self.instance,
                protocolType="consumer",
                protocols=[protocol],
            ),
        )
        self.id, self.generation = told.memberId, told.generationId
        if told.errorCode == 79:
            return self.join()
        assert told.errorCode == 0, told
        return told

    def sync(self):
        ask = request(14)
        row = ask.struct("assignments")(memberId=self.id, assignment=b"a")
        told = self.wire.call(
            14,
            3,
            ask.cls(
                groupId="g",
                generationId=self.generation,
                memberId=self.id,
                groupInstanceId=self.instance,
                assignments=[row],
            ),
        )
        assert told.errorCode == 0, told

    def commit(self, offset, **more):
        given = {"generation": self.generation, "member": self.id, **more}
        given["groupInstanceId"] = self.instance
        return commit(self.wire, [(0, offset, "", -1)], version=7, **given)[0]


def settled(broker, **more):
    member = Member(broker, **more)
    member.join()
    member.sync()
    return member
