"""Scenarios for groups and their offsets, with fields that every version has.

The other members of a group join with JoinGroup 3, which every Kafka still has and
which needs no second round for an id.
"""

import base64
import struct
import time
from typing import Any

from compat.answers.asking import Asker
from compat.answers.consumer_scenarios import (
    CONSUMER_SCENARIOS,
    commits_of_consumers,
    consumer_group,
    reads_of_consumers,
)
from compat.answers.streams_scenarios import (
    commits_of_streams,
    reads_of_streams,
    streams_group,
)
from compat.support import create_topic

from barnabas.wire import Struct

NO_TOPIC = "no-such-topic"
NO_TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
NO_GROUP = "no-such-group"
JOIN, SYNC, LEAVE, COMMIT, DESCRIBE = 11, 14, 13, 8, 15
RANGE, ROUND_ROBIN = "range", "roundrobin"
CONSUMERS_COMMIT_FROM = 9
NEWER_JOIN_FROM, NEWER_FROM = 2, 1  # versions that a Kafka with streams groups answers
ID_REQUIRED_FROM, MEMBER_ID_REQUIRED = 4, 79  # KIP-394
EMPTY_ATTEMPTS_MAX, EMPTY_AGAIN_S = 100, 0.05


def subscription(*topics: str) -> str:
    """A consumer's subscription, version 0, as JSON represents bytes."""
    raw = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        raw += struct.pack(">h", len(topic)) + topic.encode()
    return base64.b64encode(raw + struct.pack(">i", 0)).decode()


def protocols(asker: Asker, *names: str) -> list[dict[str, Any]]:
    return [{"name": name, "metadata": subscription(asker.topic)} for name in names]


class Group:
    """A group of the scenario, and the member that joined it last."""

    def __init__(self, asker: Asker, suffix: str) -> None:
        self.asker = asker
        self.name = f"{asker.topic}-{suffix}"
        self.member = ""
        self.generation = -1

    def join(self, member: str = "") -> "Group":
        """Joins as the only member, so that the response comes at once."""
        told = self.asker.call_until_ready(
            JOIN,
            3,
            groupId=self.name,
            sessionTimeoutMs=10_000,
            rebalanceTimeoutMs=20_000,
            memberId=member,
            protocolType="consumer",
            protocols=protocols(self.asker, RANGE),
        )
        assert told.errorCode == 0, told
        self.member, self.generation = told.memberId, told.generationId
        return self

    def sync(self) -> "Group":
        """The assignment is two arbitrary bytes, because coordinators do not read it."""
        told = self.call(
            SYNC,
            0,
            assignments=[{"memberId": self.member, "assignment": "AAE="}],
        )
        assert told.errorCode == 0, told
        return self

    def commit(self, **offsets: int) -> "Group":
        """Commits offsets by partition of the scenario's topic, with or without a member."""
        partitions = [
            {"partitionIndex": int(p[1:]), "committedOffset": at, "committedMetadata": "note"}
            for p, at in offsets.items()
        ]
        told = self.asker.call_until_ready(
            COMMIT,
            2,
            groupId=self.name,
            generationIdOrMemberEpoch=self.generation,
            memberId=self.member,
            topics=[{"name": self.asker.topic, "partitions": partitions}],
        )
        assert told.topics[0].partitions[0].errorCode == 0, told
        return self

    def leave(self) -> "Group":
        told = self.call(LEAVE, 1)
        assert told.errorCode == 0, told
        return self

    def call(self, key: int, version: int, **fields: Any) -> Struct:
        fields = {"groupId": self.name, "memberId": self.member} | fields
        if key == SYNC:
            fields["generationId"] = self.generation
        return self.asker.call(key, version, **fields)


def nameless(asker: Asker) -> None:
    """Makes sure that the group with an empty name, which all scenarios share, exists, by a
    commit."""
    group = Group(asker, "")
    group.name = ""
    group.commit(p0=1)


def coordinator_ready(asker: Asker) -> None:
    """Waits until the coordinators' topic exists and is loaded."""
    Group(asker, "first").join().leave()


def find_coordinator(asker: Asker) -> None:
    def ask(case: str, name: str, **more: Any) -> None:
        asker.ask(case, key=name, coordinatorKeys=[name], **more)

    coordinator_ready(asker)
    ask("a group", "answers", keyType=0)
    ask("a group without a name", "", keyType=0)
    if asker.version >= 1:
        ask("unknown key type", "k", keyType=9)
    if asker.version >= 4:
        asker.ask("several groups", coordinatorKeys=["a", "b"], keyType=0)


def join_group(asker: Asker) -> None:
    coordinator_ready(asker)

    def ask(case: str, group: str, **more: Any) -> Struct:
        fields = {
            "groupId": f"{asker.topic}-{group}" if group else "",
            "sessionTimeoutMs": 10_000,
            "rebalanceTimeoutMs": 20_000,
            "memberId": "",
            "protocolType": "consumer",
            "protocols": protocols(asker, RANGE, ROUND_ROBIN),
            **more,
        }
        return asker.ask(case, **fields)

    first = ask("a new member", "a")
    if first.errorCode:
        first = ask("with the id it was given", "a", memberId=first.memberId)
    ask("the leader again", "a", memberId=first.memberId)
    ask("unknown member", "a", memberId="nobody")
    ask("unknown member of an unknown group", "never", memberId="nobody")
    ask("another protocol type", "a", protocolType="connect")
    ask("no protocol in common", "a", protocols=protocols(asker, "sticky"))
    ask("no protocol at all", "b", protocols=[])
    ask("a protocol type without a name", "b", protocolType="")
    ask("no group", "")
    ask("a session that is too short", "c", sessionTimeoutMs=1)
    ask("a session that is too long", "c", sessionTimeoutMs=2_000_000_000)
    if asker.version >= ID_REQUIRED_FROM:
        awaits = awaiting_a_member(asker, "e").name.removeprefix(f"{asker.topic}-")
        ask("another protocol type, in an empty group", awaits, protocolType="connect")
        ask("the protocol type of an empty group", awaits)
    if asker.version >= NEWER_JOIN_FROM:
        streams = streams_group(asker)
        ask("a group of the streams protocol", "streams")
        ask("unknown member of such a group", "streams", memberId="nobody")
        streams.leave("one")
        first = ask("such a group without members", "streams")
        assert asker.version >= ID_REQUIRED_FROM or not first.errorCode
    if asker.version >= 5:
        static_members(asker, ask)


def awaiting_a_member(asker: Asker, suffix: str) -> Group:
    """A group whose only member left while a new member has an id and has not come back with it."""
    group = Group(asker, suffix).join().sync()
    fields = {"sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 20_000, "memberId": ""}
    fields |= {"protocolType": "consumer", "protocols": protocols(asker, RANGE)}
    assert group.call(JOIN, ID_REQUIRED_FROM, **fields).errorCode == MEMBER_ID_REQUIRED
    group.leave()
    for _attempt in range(EMPTY_ATTEMPTS_MAX):  # it is empty when that is written
        (described,) = asker.call(DESCRIBE, 0, groups=[group.name]).groups
        if described.groupState == "Empty":
            return group
        time.sleep(EMPTY_AGAIN_S)
    raise AssertionError(described)


def static_members(asker: Asker, ask: Any) -> None:
    one = ask("a static member", "s", groupInstanceId="one")
    group = Group(asker, "s")
    group.member, group.generation = one.memberId, one.generationId
    sync = {"groupId": group.name, "memberId": group.member, "groupInstanceId": "one"}
    sync |= {"generationId": group.generation, "assignments": []}
    assert asker.call(SYNC, 3, **sync).errorCode == 0
    again = ask("a static member without its id", "s", groupInstanceId="one")
    ask("a static member's old id", "s", groupInstanceId="one", memberId=one.memberId)
    ask("a static member's id of another", "s", groupInstanceId="two", memberId=again.memberId)
    ask(
        "a static member with another order of protocols",
        "s",
        groupInstanceId="one",
        protocols=protocols(asker, ROUND_ROBIN),
    )


def sync_group(asker: Asker) -> None:
    group = Group(asker, "a").join()

    def ask(case: str, **more: Any) -> None:
        fields = {
            "groupId": group.name,
            "memberId": group.member,
            "generationId": group.generation,
            "assignments": [{"memberId": group.member, "assignment": "AAE="}],
            "protocolType": "consumer",
            "protocolName": RANGE,
            **more,
        }
        asker.ask(case, **fields)

    ask("unknown member", memberId="nobody")
    ask("an older generation", generationId=0)
    ask("a generation of the future", generationId=9)
    ask("unknown group", groupId=NO_GROUP)
    ask("no group", groupId="")
    if asker.version >= 3:
        ask("a static member that is not there", groupInstanceId="nobody")
    if asker.version >= 5:
        ask("another protocol", protocolName="sticky")
        ask("another protocol type", protocolType="connect")
        ask("no protocol", protocolType=None, protocolName=None)
    ask("the leader")
    ask("the leader again", assignments=[])
    group.leave()
    ask("after leaving")
    if asker.version >= NEWER_FROM:
        in_streams(asker, ask)


def heartbeat(asker: Asker) -> None:
    group = Group(asker, "a").join()

    def ask(case: str, **more: Any) -> None:
        fields = {"groupId": group.name, "memberId": group.member} | more
        asker.ask(case, **{"generationId": group.generation} | fields)

    ask("before the assignment")
    group.sync()
    ask("a member")
    ask("unknown member", memberId="nobody")
    ask("an older generation", generationId=0)
    ask("a later generation", generationId=9)
    ask("unknown group", groupId=NO_GROUP)
    ask("no group", groupId="")
    if asker.version >= 3:
        ask("a static member that is not there", groupInstanceId="nobody")
    group.leave()
    ask("after leaving")
    if asker.version >= NEWER_FROM:
        in_streams(asker, ask)


def in_streams(asker: Asker, ask: Any) -> None:
    """The classic protocol in a group of the streams protocol."""
    streams = streams_group(asker)
    ask("a group of the streams protocol", groupId=streams.name, memberId="one")
    streams.leave("one")
    ask("such a group without members", groupId=streams.name, memberId="one")


def leave_group(asker: Asker) -> None:
    group = Group(asker, "a").join().sync()

    def ask(case: str, member: str, name: str = group.name) -> None:
        rows = [{"memberId": member, "groupInstanceId": None}]
        asker.ask(case, groupId=name, memberId=member, members=rows)

    ask("unknown member", "nobody")
    ask("unknown group", "nobody", NO_GROUP)
    ask("no group", "nobody", "")
    ask("a member", group.member)
    ask("the same again", group.member)
    if asker.version >= 3:
        asker.ask("nobody", groupId=group.name, members=[])
        group.join()
        rows = [
            {"memberId": "", "groupInstanceId": "nobody"},
            {"memberId": group.member, "groupInstanceId": None},
        ]
        asker.ask("two at once", groupId=group.name, members=rows)
    if asker.version >= NEWER_FROM:
        ask("a group of the streams protocol", "one", streams_group(asker).name)


def offset_commit(asker: Asker) -> None:
    create_topic(asker.address, asker.topic, 2)
    topic_id = asker.topic_id(asker.topic)
    coordinator_ready(asker)

    def ask(case: str, group: str, partition: int = 0, known: bool = True, **more: Any) -> None:
        row = {
            "partitionIndex": partition,
            "committedOffset": 7,
            "committedLeaderEpoch": 0,
            "commitTimestamp": -1,
            "committedMetadata": "note",
        }
        row |= {key: more.pop(key) for key in list(more) if key in row}
        name = asker.topic if known else NO_TOPIC
        ident = topic_id if known else NO_TOPIC_ID
        fields = {
            "groupId": group,
            "topics": [{"name": name, "topicId": ident, "partitions": [row]}],
            **more,
        }
        asker.ask(case, **fields)

    simple = f"{asker.topic}-simple"
    ask("without a member", simple)
    ask("unknown topic", simple, known=False)
    ask("unknown partition", simple, partition=9)
    ask("no metadata", simple, committedMetadata=None)
    ask("an offset below zero", simple, committedOffset=-5)
    if asker.version == 0:
        return
    ask("too much metadata", simple, committedMetadata="x" * 5000)
    ask("a group without a name", "")
    ask("a member of a group that is not there", f"{simple}-2", memberId="nobody")
    gone = {"memberId": "nobody", "generationIdOrMemberEpoch": 3}
    ask("a generation of a group that is not there", NO_GROUP, **gone)
    ask("a generation of a group without members", simple, **gone)
    group = Group(asker, "a").join()
    mine = {"memberId": group.member, "generationIdOrMemberEpoch": group.generation}
    ask("before the assignment", group.name, **mine)
    group.sync()
    ask("a member", group.name, **mine)
    ask("without a member, to a group with members", group.name)
    ask("unknown member", group.name, **mine | {"memberId": "nobody"})
    ask("an older generation", group.name, **mine | {"generationIdOrMemberEpoch": 0})
    ask("a later generation", group.name, **mine | {"generationIdOrMemberEpoch": 9})
    if asker.version >= 7:
        ask("a static member that is not there", group.name, groupInstanceId="nobody", **mine)
    row = {"partitionIndex": 0, "committedOffset": 7, "committedLeaderEpoch": 0}
    names = ((asker.topic, topic_id), (NO_TOPIC, NO_TOPIC_ID))
    topics = [{"name": name, "topicId": ident, "partitions": [row]} for name, ident in names]
    stranger = mine | {"memberId": "nobody"}
    ask("unknown member, and an unknown topic", group.name, topics=topics, **stranger)
    group.leave()
    ask("after leaving", group.name, **mine)
    if asker.version >= CONSUMERS_COMMIT_FROM:
        commits_of_consumers(asker, ask)
        commits_of_streams(asker, ask)


def offset_fetch(asker: Asker) -> None:
    create_topic(asker.address, asker.topic, 3)
    topic_id = asker.topic_id(asker.topic)
    group = Group(asker, "a").commit(p0=7, p2=9)

    def wanted(known: bool, *partitions: int) -> list[dict[str, Any]]:
        name = asker.topic if known else NO_TOPIC
        row: dict[str, Any] = {"name": name, "partitionIndexes": list(partitions)}
        if asker.version >= 8:
            row["topicId"] = topic_id if known else NO_TOPIC_ID
        return [row]

    def ask(case: str, name: str, topics: list[dict[str, Any]] | None, **more: Any) -> None:
        fields: dict[str, Any] = {"groupId": name, "topics": topics}
        if asker.version >= 8:
            fields = {"groups": [fields | more]}
        asker.ask(case, **fields)

    ask("committed and not", group.name, wanted(True, 0, 1, 2))
    ask("a partition that is not there", group.name, wanted(True, 9))
    ask("unknown topic", group.name, wanted(False, 0))
    ask("unknown group", NO_GROUP, wanted(True, 0))
    ask("a group without a name", "", wanted(True, 0))
    ask("no topics", group.name, [])
    if asker.version >= 2:
        ask("all topics", group.name, None)
        ask("all topics of an unknown group", NO_GROUP, None)
    if asker.version >= 7:
        stable: dict[str, Any] = {"groupId": group.name, "topics": wanted(True, 0)}
        if asker.version >= 8:
            stable = {"groups": [stable]}
        asker.ask("stable", requireStable=True, **stable)
    if asker.version >= 8:
        one = {"groupId": group.name, "topics": wanted(True, 0)}
        asker.ask("two groups", groups=[one, {"groupId": NO_GROUP, "topics": None}])
    if asker.version >= 9:
        ask("a member that is not there", group.name, wanted(True, 0), memberId="x", memberEpoch=1)
        reads_of_consumers(asker, ask, wanted(True, 0))
        reads_of_streams(asker, ask, wanted(True, 0))


def describe_groups(asker: Asker) -> None:
    simple = Group(asker, "simple")
    create_topic(asker.address, asker.topic)
    simple.commit(p0=1)
    group = Group(asker, "a").join()
    asker.ask("before the assignment", groups=[group.name])
    group.sync()
    asker.ask("with a member", groups=[group.name])
    group.leave()
    asker.ask("after its member left", groups=[group.name])
    asker.ask("never with members", groups=[simple.name])
    asker.ask("unknown group", groups=[NO_GROUP])
    nameless(asker)
    asker.ask("a group without a name", groups=[""])
    asker.ask("nothing", groups=[])
    if asker.version >= 3:
        asker.ask("operations", groups=[simple.name], includeAuthorizedOperations=True)
    consumers = consumer_group(asker)
    asker.ask("a group of the consumer protocol", groups=[consumers.name])
    consumers.leave("one")
    asker.ask("a group of the streams protocol", groups=[streams_group(asker).name])


def list_groups(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    Group(asker, "simple").commit(p0=1)
    Group(asker, "a").join().sync()
    asker.ask("all")
    if asker.version >= 4:
        asker.ask("stable", statesFilter=["Stable"])
        asker.ask("in small letters", statesFilter=["empty"])
        asker.ask("no such state", statesFilter=["Sleeping"])
    if asker.version >= 5:
        asker.ask("classic", typesFilter=["classic"])
        asker.ask("in big letters", typesFilter=["CLASSIC"])
        asker.ask("consumer", typesFilter=["consumer"])
        asker.ask("no such type", typesFilter=["odd"])
        consumers = consumer_group(asker)
        asker.ask("a group of the consumer protocol", typesFilter=["Consumer"])
        consumers.join("two")
        asker.ask("that assigns", statesFilter=["assigning"], typesFilter=["consumer"])
        consumers.leave("two").leave("one")
        asker.ask("that is empty", typesFilter=["consumer"])
        streams = streams_group(asker)
        asker.ask("a group of the streams protocol", typesFilter=["Streams"])
        asker.ask("that is not ready", statesFilter=["not_ready"], typesFilter=["streams"])
        streams.leave("one")
        asker.ask("that has no members", typesFilter=["streams"])


def delete_groups(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    simple = Group(asker, "simple").commit(p0=1)
    group = Group(asker, "a").join().sync()
    asker.ask("with a member", groupsNames=[group.name])
    group.leave()
    asker.ask("after its member left", groupsNames=[group.name])
    asker.ask("the same again", groupsNames=[group.name])
    asker.ask("two, one of them unknown", groupsNames=[simple.name, NO_GROUP])
    nameless(asker)
    asker.ask("a group without a name", groupsNames=[""])
    asker.ask("a group without a name that is not there", groupsNames=[""])
    asker.ask("nothing", groupsNames=[])
    consumers = consumer_group(asker)
    asker.ask("with a member of the consumer protocol", groupsNames=[consumers.name])
    consumers.leave("one")
    asker.ask("after it left", groupsNames=[consumers.name])
    asker.ask("and again", groupsNames=[consumers.name])
    streams = streams_group(asker)
    asker.ask("with a member of the streams protocol", groupsNames=[streams.name])
    streams.leave("one")
    asker.ask("without one", groupsNames=[streams.name])
    asker.ask("and once more", groupsNames=[streams.name])


def offset_delete(asker: Asker) -> None:
    create_topic(asker.address, asker.topic, 2)
    simple = Group(asker, "simple").commit(p0=1, p1=2)
    group = Group(asker, "a").join().sync().commit(p0=1)

    def ask(case: str, name: str, topic: str, *partitions: int) -> None:
        rows = [{"partitionIndex": index} for index in partitions]
        asker.ask(case, groupId=name, topics=[{"name": topic, "partitions": rows}])

    ask("a group without members", simple.name, asker.topic, 0)
    ask("what was never committed", simple.name, asker.topic, 0)
    ask("a topic that members subscribe to", group.name, asker.topic, 0)
    ask("unknown partition", simple.name, asker.topic, 9)
    ask("unknown topic", simple.name, NO_TOPIC, 0)
    ask("unknown group", NO_GROUP, asker.topic, 0)
    ask("no group", "", asker.topic, 0)
    asker.ask("no topics", groupId=simple.name, topics=[])
    consumers = consumer_group(asker)
    ask("a topic that consumers subscribe to", consumers.name, asker.topic, 0)
    consumers.leave("one")
    ask("after they left", consumers.name, asker.topic, 0)
    streams = streams_group(asker)
    ask("a topic that a streams group reads", streams.name, asker.topic, 0)
    ask("unknown topic of a streams group", streams.name, NO_TOPIC, 0)
    streams.leave("one")
    ask("after its member left", streams.name, asker.topic, 0)


GROUP_SCENARIOS = {
    8: offset_commit,
    9: offset_fetch,
    10: find_coordinator,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    42: delete_groups,
    47: offset_delete,
} | CONSUMER_SCENARIOS
