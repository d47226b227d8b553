"""Scenarios for share groups (KIP-932): mainly the requests that a broker refuses, and the error
codes.

Besides the compared response a scenario may need a group with a member, or a state of a
partition; requests whose responses are not compared create them.
"""

import time
from collections.abc import Callable
from typing import Any

from compat.answers.asking import Asker
from compat.answers.group_scenarios import NO_GROUP, NO_TOPIC, NO_TOPIC_ID, Group
from compat.answers.streams_scenarios import streams_group
from compat.support import CALL_TIMEOUT_S, create_topic, produce_batch

from barnabas.wire import Struct

HEARTBEAT, FETCH, ACKNOWLEDGE = 76, 78, 79
INITIALIZE, WRITE = 83, 85
MEMBER = "member-of-answers"
GROUP_ID_NOT_FOUND, COORDINATOR_CODES = 69, {14, 15, 16}


class ShareGroup:
    """A share group of the scenario with one member, which reads the scenario's topic."""

    def __init__(self, asker: Asker, suffix: str = "share", records: int = 5) -> None:
        self.asker = asker
        self.name = f"{asker.topic}-{suffix}"
        self.epoch = 0
        create_topic(asker.address, asker.topic, 1)
        if records:
            produce_batch(asker.address, asker.topic, [b"%d" % n for n in range(records)])
        self.topic_id = asker.topic_id(asker.topic)

    def from_the_start(self) -> "ShareGroup":
        row = {"name": "share.auto.offset.reset", "configOperation": 0, "value": "earliest"}
        resource = {"resourceType": 32, "resourceName": self.name, "configs": [row]}
        told = self.asker.call(44, 1, resources=[resource])
        assert told.responses[0].errorCode == 0, told
        return self

    def join(self) -> "ShareGroup":
        """Sends heartbeats until the member is assigned the partition."""
        deadline = time.monotonic() + CALL_TIMEOUT_S
        given = False
        while not given:
            assert time.monotonic() < deadline, "no assignment"
            self.asker.call(10, 4, coordinatorKeys=[self.name], keyType=0)
            told = self.beat(subscribedTopicNames=[self.asker.topic] if not self.epoch else None)
            assert told.errorCode in {0, *COORDINATOR_CODES}, told
            self.epoch = told.memberEpoch or self.epoch
            given = told.assignment is not None and bool(told.assignment.topicPartitions)
            time.sleep(0.05)
        return self

    def leave(self) -> "ShareGroup":
        self.epoch = -1
        assert self.beat().errorCode == 0
        return self

    def beat(self, **fields: Any) -> Struct:
        fields = {"groupId": self.name, "memberId": MEMBER, "memberEpoch": self.epoch} | fields
        return self.asker.call(HEARTBEAT, 1, **fields)

    def topics(self, *batches: dict[str, Any], partition: int = 0) -> list[dict[str, Any]]:
        row = {"partitionIndex": partition, "acknowledgementBatches": list(batches)}
        return [{"topicId": self.topic_id, "partitions": [row]}]

    def fetch(self, epoch: int, **fields: Any) -> Struct:
        return self.asker.call(FETCH, 1, **self.fetching(epoch, **fields))

    def fetching(self, epoch: int, **fields: Any) -> dict[str, Any]:
        asked = {
            "groupId": self.name,
            "memberId": MEMBER,
            "shareSessionEpoch": epoch,
            "maxWaitMs": 100,
            "maxBytes": 1 << 20,
            "maxRecords": 100,
            "batchSize": 100,
            "topics": self.topics(),
        }
        return asked | fields

    def fetch_records(self) -> "ShareGroup":
        """Fetches in a session; `session` gives its next epoch. All records are acquired."""
        deadline = time.monotonic() + CALL_TIMEOUT_S
        self.session = 0
        while True:
            assert time.monotonic() < deadline, "no records"
            told = self.fetch(self.session, maxWaitMs=500)
            assert told.errorCode == 0, told
            self.session += 1
            if told.responses and told.responses[0].partitions[0].acquiredRecords:
                return self


def batch(first: int, last: int, *kinds: int) -> dict[str, Any]:
    return {"firstOffset": first, "lastOffset": last, "acknowledgeTypes": list(kinds)}


def heartbeat(asker: Asker) -> None:
    group = ShareGroup(asker, records=0).join()

    def ask(case: str, **fields: Any) -> None:
        asked = {"groupId": group.name, "memberId": MEMBER, "memberEpoch": group.epoch}
        asker.ask(case, **(asked | fields))

    ask("nothing new")
    ask("no group", groupId="")
    ask("no member", memberId="")
    ask("an empty rack", rackId="")
    ask("a first one without topics", memberEpoch=0, memberId="other")
    ask("an epoch that is none", memberEpoch=-2)
    ask("an epoch of the future", memberEpoch=group.epoch + 90)
    ask("unknown member", memberId="nobody")
    ask("unknown group", groupId=NO_GROUP)
    ask("unknown member leaves", memberId="nobody", memberEpoch=-1)
    Group(asker, "classic").join()
    classic = {"groupId": f"{asker.topic}-classic", "memberEpoch": 0}
    ask("a classic group", **classic, subscribedTopicNames=[asker.topic])
    streams = streams_group(asker)
    first = {"memberEpoch": 0, "subscribedTopicNames": [asker.topic]}
    ask("a group of the streams protocol", groupId=streams.name, **first)
    ask("leaves", memberEpoch=-1)
    ask("has left")


def describe(asker: Asker) -> None:
    group = ShareGroup(asker, records=0).join().leave()
    asker.ask("an empty group", groupIds=[group.name])
    asker.ask("with operations", groupIds=[group.name], includeAuthorizedOperations=True)
    asker.ask("unknown group", groupIds=[NO_GROUP])
    Group(asker, "classic").join()
    asker.ask("a classic group", groupIds=[f"{asker.topic}-classic"])


def fetch(asker: Asker) -> None:
    group = ShareGroup(asker).from_the_start().join()

    def ask(case: str, epoch: int, **fields: Any) -> None:
        asker.ask(case, **group.fetching(epoch, **fields))

    ask("no session", 3)
    ask("the end of no session", -1, topics=[])
    ask("no group", 0, groupId=None)
    ask("no member", 0, memberId=None)
    ask("acknowledges at first", 0, topics=group.topics(batch(0, 0, 1)))
    ask("unknown partition", 0, topics=group.topics(partition=7))
    group.fetch_records()
    ask("the wrong epoch", group.session + 5)

    def acknowledge(case: str, *batches: dict[str, Any], **fields: Any) -> None:
        fields = {"maxRecords": 0, "maxWaitMs": 0} | fields
        ask(case, group.session, topics=group.topics(*batches), **fields)
        group.session += 1

    acknowledge("accepted and released", batch(0, 1, 1), batch(2, 2, 2))
    acknowledge("the released one again", batch(2, 2, 1))
    acknowledge("accepted before", batch(0, 0, 1))
    acknowledge("never handed out", batch(90, 95, 1))
    acknowledge("out of order", batch(3, 3, 1), batch(1, 1, 1))
    acknowledge("a type that is none", batch(3, 3, 9))
    acknowledge("too few types", batch(3, 4, 1, 1, 1))
    acknowledge("no type", batch(3, 4))
    if asker.version >= 2:
        renewal = {"isRenewAck": True}
        none = {"maxBytes": 0, "minBytes": 0, "maxRecords": 0, "maxWaitMs": 0}
        acknowledge("a renewal that is none", batch(3, 3, 4))
        ask("a renewal that fetches", group.session, topics=group.topics(), **renewal)
        acknowledge("a renewal", batch(3, 3, 4), **renewal, **none)
    ask("the end with partitions", -1)
    ask("after the end", 9)


def acknowledge(asker: Asker) -> None:
    group = ShareGroup(asker).from_the_start().join()

    def ask(case: str, epoch: int, *batches: dict[str, Any], **fields: Any) -> None:
        asked = {"groupId": group.name, "memberId": MEMBER, "shareSessionEpoch": epoch}
        asker.ask(case, **(asked | {"topics": group.topics(*batches)} | fields))

    ask("no session", 3, batch(0, 0, 1))
    ask("the first epoch", 0, batch(0, 0, 1))
    ask("no group", 1, batch(0, 0, 1), groupId=None)
    ask("no member", 1, batch(0, 0, 1), memberId=None)
    group.fetch_records()
    ask("the wrong epoch", group.session + 5, batch(0, 0, 1))
    cases = {
        "accepted": [batch(0, 1, 1)],
        "gap, accepted": [batch(2, 3, 0, 1)],
        "accepted before": [batch(0, 1, 1)],
        "never handed out": [batch(90, 95, 1)],
        "out of order": [batch(4, 4, 1), batch(1, 1, 1)],
        "a type that is none": [batch(4, 4, 9)],
        "no type": [batch(4, 4)],
        "a renewal that is none": [batch(4, 4, 4)],
    }
    for number, (case, batches) in enumerate(cases.items(), group.session):
        ask(case, number, *batches)
    at = group.session + len(cases)
    unknown = [
        {"topicId": NO_TOPIC_ID, "partitions": group.topics(batch(0, 0, 1))[0]["partitions"]}
    ]
    ask("unknown topic", at, topics=unknown)
    ask("unknown partition", at + 1, topics=group.topics(batch(0, 0, 1), partition=7))
    if asker.version >= 2:
        ask("a renewal", at + 2, batch(4, 4, 4), isRenewAck=True)
    ask("the end", -1, batch(4, 4, 1))
    ask("after the end", 9, batch(4, 4, 1))


class Kept:
    """Requests about the persisted state of the first partition of the scenario's topic in a
    group."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        create_topic(asker.address, asker.topic, 1)
        self.topic_id = asker.topic_id(asker.topic)
        self.group = f"{asker.topic}-kept"
        deadline = time.monotonic() + CALL_TIMEOUT_S
        key = f"{self.group}:{self.topic_id}:0"
        while asker.call(10, 6, coordinatorKeys=[key], keyType=2).coordinators[0].errorCode:
            assert time.monotonic() < deadline, "no share coordinator"
            time.sleep(0.1)

    def asked(self, **row: Any) -> dict[str, Any]:
        group, topic_id = row.pop("group", self.group), row.pop("topic_id", self.topic_id)
        partition = {"partition": 0} | row
        return {
            "groupId": group,
            "topics": [{"topicId": topic_id, "partitions": [partition]}],
        }

    def ask(self, case: str, **row: Any) -> None:
        self.asker.ask(case, **self.asked(**row))

    def make(self, state_epoch: int = 3, start: int = 0) -> "Kept":
        deadline = time.monotonic() + CALL_TIMEOUT_S
        asked = self.asked(stateEpoch=state_epoch, startOffset=start)
        while True:
            (told,) = self.asker.call(INITIALIZE, 0, **asked).results[0].partitions
            if told.errorCode == 0:
                return self
            assert told.errorCode in COORDINATOR_CODES and time.monotonic() < deadline, told
            time.sleep(0.1)

    def write(self) -> "Kept":
        state = {"firstOffset": 2, "lastOffset": 4, "deliveryState": 2, "deliveryCount": 1}
        asked = self.asked(stateEpoch=3, leaderEpoch=2, startOffset=1, stateBatches=[state])
        (told,) = self.asker.call(WRITE, 0, **asked).results[0].partitions
        assert told.errorCode == 0, told
        return self

    def wrong(self, **row: Any) -> "Kept":
        self.ask("unknown topic", topic_id=NO_TOPIC_ID, **row)
        self.ask("unknown partition", **(row | {"partition": 7}))
        self.ask("a partition below zero", **(row | {"partition": -1}))
        return self


def initialize_state(asker: Asker) -> None:
    kept = Kept(asker).make(0)
    kept.ask("a newer one", stateEpoch=3, startOffset=5)
    kept.ask("the same again", stateEpoch=3, startOffset=5)
    kept.ask("an older one", stateEpoch=1, startOffset=5)
    kept.wrong(stateEpoch=1)


def read_state(asker: Asker) -> None:
    kept = Kept(asker).make().write()
    kept.ask("what was written", leaderEpoch=2)
    kept.ask("by a newer leader", leaderEpoch=5)
    kept.ask("by an older leader", leaderEpoch=2)
    kept.ask("of another group", group=NO_GROUP, leaderEpoch=1)
    kept.wrong(leaderEpoch=5)


def write_state(asker: Asker) -> None:
    kept = Kept(asker).make()
    state = {"firstOffset": 2, "lastOffset": 4, "deliveryState": 2, "deliveryCount": 1}
    row = {"stateEpoch": 3, "leaderEpoch": 2, "startOffset": 1, "stateBatches": [state]}
    kept.ask("batches", **row)
    kept.ask("an older state", **(row | {"stateEpoch": 1}))
    kept.ask("an older leader", **(row | {"leaderEpoch": 1}))
    kept.ask("of another group", group=NO_GROUP, **row)
    kept.wrong(**row)


def delete_state(asker: Asker) -> None:
    kept = Kept(asker).make()
    kept.ask("what is there")
    kept.ask("what is not there")
    kept.wrong()


def read_summary(asker: Asker) -> None:
    kept = Kept(asker).make().write()
    kept.ask("what was written", leaderEpoch=2)
    kept.ask("of another group", group=NO_GROUP, leaderEpoch=2)
    kept.wrong(leaderEpoch=2)


def describe_offsets(asker: Asker) -> None:
    group = ShareGroup(asker).from_the_start().join()

    def ask(case: str, topics: list[dict[str, Any]] | None, name: str = group.name) -> None:
        asker.ask(case, groups=[{"groupId": name, "topics": topics}])

    mine = [{"topicName": asker.topic, "partitions": [0]}]
    ask("nothing was read", mine)
    group.fetch_records()
    rows = group.topics(batch(0, 0, 1), batch(2, 3, 1))
    told = asker.call(
        ACKNOWLEDGE, 1, groupId=group.name, memberId=MEMBER, shareSessionEpoch=group.session,
        topics=rows,
    )  # fmt: skip
    assert told.responses[0].partitions[0].errorCode == 0, told
    ask("a topic", mine)
    ask("all topics", None)
    ask("unknown topic", [{"topicName": NO_TOPIC, "partitions": [0]}])
    ask("unknown group", None, f"{asker.topic}-unknown")


def alter_offsets(asker: Asker) -> None:
    group = ShareGroup(asker).join()

    def ask(case: str, topic: str = asker.topic, partition: int = 0, **fields: Any) -> None:
        row = {"partitionIndex": partition, "startOffset": 2}
        topics = [{"topicName": topic, "partitions": [row]}]
        asker.ask(case, **({"groupId": group.name, "topics": topics} | fields))

    ask("a group with members")
    group.leave()
    ask("an empty group")
    ask("unknown topic", NO_TOPIC)
    ask("unknown partition", partition=7)
    ask("a new group", groupId=f"{asker.topic}-new")
    ask("no topics", topics=[])


def delete_offsets(asker: Asker) -> None:
    group = ShareGroup(asker).join()

    def ask(case: str, *topics: str, name: str = group.name) -> None:
        asker.ask(case, groupId=name, topics=[{"topicName": topic} for topic in topics])

    ask("a group with members", asker.topic)
    group.leave()
    ask("unknown topic", NO_TOPIC)
    ask("a topic", asker.topic)
    ask("a topic that is forgotten", asker.topic)
    ask("unknown group", asker.topic, name=f"{asker.topic}-unknown")


def alike(value: Any) -> Any:
    """Removes leader epochs and error messages, which may differ."""
    if isinstance(value, dict):
        masked = {"acknowledgeErrorMessage", "groupEpoch", "assignmentEpoch", "memberEpoch"}
        return {
            k: "*" if k in masked and v not in (None, 0, -1) else alike(v) for k, v in value.items()
        }
    return [alike(one) for one in value] if isinstance(value, list) else value


def plainly(scenario: Callable[[Asker], None]) -> Callable[[Asker], None]:
    def asked(asker: Asker) -> None:
        scenario(asker)
        asker.answers.update(alike(asker.answers))

    return asked


def on_one_connection(scenario: Callable[[Asker], None]) -> Callable[[Asker], None]:
    """A share session ends with its connection."""

    def asked(asker: Asker) -> None:
        with asker.one_connection():
            scenario(asker)

    return asked


SHARE_SCENARIOS: dict[int, Callable[[Asker], None]] = {
    76: plainly(heartbeat),
    77: plainly(describe),
    78: plainly(on_one_connection(fetch)),
    79: plainly(on_one_connection(acknowledge)),
    83: initialize_state,
    84: read_state,
    85: write_state,
    86: delete_state,
    87: read_summary,
    90: on_one_connection(describe_offsets),
    91: alter_offsets,
    92: delete_offsets,
}
