"""A member of a share group on the wire, with a connection of its own."""

import time

from compat.support import Wire

from barnabas.wire import request
from barnabas.wire.uuids import uuid_bytes

PATIENCE_S = 20
GROUP_RESOURCE, TOPIC_RESOURCE = 32, 2
FETCH, ACKNOWLEDGE = 78, 79


def configure(address, name, kind=GROUP_RESOURCE, **settings):
    """Error code of IncrementalAlterConfigs; `_` stands for `.`."""
    alter = request(44)
    row = alter.struct("resources.configs")
    configs = [
        row(name=key.replace("_", "."), configOperation=0, value=value)
        for key, value in settings.items()
    ]
    asked = alter.struct("resources")(resourceType=kind, resourceName=name, configs=configs)
    with Wire(address) as wire:
        return wire.call(44, 1, alter.cls(resources=[asked])).responses[0].errorCode


class ShareMember:
    def __init__(self, address, group, member="m1", version=2):
        self.wire = Wire(address)
        self.group, self.member, self.version = group, member, version
        self.epoch = self.session = 0
        self.assigned = {}
        self.heartbeat_ms = None

    def call(self, api, version, /, **fields):
        return self.wire.call(api, version, request(api).cls(**fields))

    def beat(self, topics=None):
        """The error code of one heartbeat."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.call(10, 0, key=self.group)
            told = self.call(
                76, 1, groupId=self.group, memberId=self.member, memberEpoch=self.epoch,
                subscribedTopicNames=topics,
            )  # fmt: skip
            if told.errorCode not in (14, 15, 16) or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if told.errorCode == 0:
            self.epoch, self.heartbeat_ms = told.memberEpoch, told.heartbeatIntervalMs
            if told.assignment is not None:
                rows = told.assignment.topicPartitions
                self.assigned = {row.topicId: sorted(row.partitions) for row in rows}
        return told.errorCode

    def join(self, *topics):
        code = self.beat(list(topics))
        deadline = time.monotonic() + PATIENCE_S
        while code == 0 and not self.assigned and time.monotonic() < deadline:
            time.sleep(0.02)
            code = self.beat()
        assert code == 0, code
        return self

    def leave(self):
        self.epoch = -1
        return self.beat()

    def _topics(self, kind, acknowledged):
        ask = request(kind)
        topic_of, row_of = ask.struct("topics"), ask.struct("topics.partitions")
        batch_of = ask.struct("topics.partitions.acknowledgementBatches")
        topics = []
        for topic_id, partitions in self.assigned.items():
            rows = [
                row_of(
                    partitionIndex=index,
                    acknowledgementBatches=[
                        batch_of(firstOffset=first, lastOffset=last, acknowledgeTypes=list(kinds))
                        for first, last, kinds in acknowledged.get(index, ())
                    ],
                )
                for index in partitions
                if kind != ACKNOWLEDGE or index in acknowledged
            ]
            topics.append(topic_of(topicId=topic_id, partitions=rows))
        return topics

    def fetch(self, wait_ms=0, acknowledged=(), **fields):
        """(partition, first, last, deliveries) of the acquired records; `answer` has the whole
        response."""
        asked = {
            "groupId": self.group,
            "memberId": self.member,
            "shareSessionEpoch": self.session,
            "maxWaitMs": wait_ms,
            "maxBytes": 1 << 20,
            "maxRecords": 500,
            "batchSize": 500,
            "topics": self._topics(78, dict(acknowledged)),
        }
        self.answer = self.call(78, self.version, **(asked | fields))
        if self.answer.errorCode == 0:
            self.session += 1
        return [
            (row.partitionIndex, got.firstOffset, got.lastOffset, got.deliveryCount)
            for topic in self.answer.responses
            for row in topic.partitions
            for got in row.acquiredRecords
        ]

    def acknowledge(self, first, last, *kinds, partition=0, renews=False, last_request=False):
        """The error code of the partition, or of the request."""
        told = self.call(
            79, self.version, groupId=self.group, memberId=self.member,
            shareSessionEpoch=-1 if last_request else self.session, isRenewAck=renews,
            topics=self._topics(79, {partition: [(first, last, kinds)]}),
        )  # fmt: skip
        if told.errorCode:
            return told.errorCode
        self.session += 1
        self.lock_ms = told.acquisitionLockTimeoutMs
        (row,) = (row for topic in told.responses for row in topic.partitions)
        return row.errorCode

    def state(self, topic, partition=0):
        """(start offset, finished records above it) of the persisted state."""
        told = self.call(
            87, 1, groupId=self.group,
            topics=[self._state_of(topic, partition)],
        )  # fmt: skip
        row = told.results[0].partitions[0]
        assert row.errorCode == 0, row
        return row.startOffset, row.deliveryCompleteCount

    def _state_of(self, topic, partition):
        ask = request(87)
        topic_id = topic if isinstance(topic, bytes) else uuid_bytes(topic)
        row = ask.struct("topics.partitions")(partition=partition, leaderEpoch=0)
        return ask.struct("topics")(topicId=topic_id, partitions=[row])

    def close(self):
        self.wire.close()
