"""Scenarios for groups of the consumer protocol (KIP-848), also with other requests about them.

The other members of a group use ConsumerGroupHeartbeat 1, with ids of their own.
"""

import time
from itertools import count
from typing import Any

from compat.answers.asking import Asker
from compat.answers.streams_scenarios import streams_group
from compat.support import CALL_TIMEOUT_S, create_topic

from barnabas.wire import Struct, response
from barnabas.wire.json_form import to_json

HEARTBEAT = 68
NO_GROUP = "no-such-group"
REBALANCE_MS = 60_000
ASSIGNED_S = 0.6


class Consumers:
    """A group of the scenario, with its members by id."""

    def __init__(self, asker: Asker, suffix: str) -> None:
        self.asker = asker
        self.name = f"{asker.topic}-{suffix}"
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, list[Any]] = {}

    def join(self, member: str, **more: Any) -> "Consumers":
        fields = first(self.asker, member) | more
        told = self.asker.call_until_ready(HEARTBEAT, 1, groupId=self.name, **fields)
        return self._told(member, told)

    def beat(self, member: str, **more: Any) -> "Consumers":
        fields = {"memberId": member, "memberEpoch": self.epochs[member]}
        fields |= {"topicPartitions": self.owned[member]} | more
        return self._told(member, self.asker.call(HEARTBEAT, 1, groupId=self.name, **fields))

    def _told(self, member: str, told: Struct) -> "Consumers":
        assert told.errorCode == 0, told
        self.epochs[member] = told.memberEpoch
        if told.assignment is not None:
            rows = to_json(response(HEARTBEAT), told, 1)["assignment"]["topicPartitions"]
            self.owned[member] = rows
        self.owned.setdefault(member, [])
        return self

    def leave(self, member: str) -> "Consumers":
        fields = {"groupId": self.name, "memberId": member, "memberEpoch": -1}
        assert self.asker.call(HEARTBEAT, 1, **fields).errorCode == 0
        return self


def create_assignable_topic(asker: Asker, partitions: int) -> None:
    """Creates the scenario's topic and waits until a subscriber gets its partitions: Kafka's
    coordinators learn of a topic later than clients that ask for metadata."""
    create_topic(asker.address, asker.topic, partitions)
    deadline = time.monotonic() + CALL_TIMEOUT_S
    for number in count():
        group = Consumers(asker, f"first-{number}").join("x").leave("x")
        if group.owned["x"]:
            return
        assert time.monotonic() < deadline, f"{asker.topic} is assigned to nobody"
        time.sleep(0.05)


def first(asker: Asker, member: str) -> dict[str, Any]:
    """A first heartbeat."""
    return {
        "memberId": member,
        "memberEpoch": 0,
        "rebalanceTimeoutMs": REBALANCE_MS,
        "subscribedTopicNames": [asker.topic],
        "topicPartitions": [],
    }


def consumer_group_heartbeat(asker: Asker) -> None:
    create_assignable_topic(asker, 4)
    topic_id = asker.topic_id(asker.topic)

    def ask(case: str, group: str = "a", **more: Any) -> Struct | None:
        name = group if group in ("", NO_GROUP) else f"{asker.topic}-{group}"
        return asker.ask(case, groupId=name, **more)

    def owned(*partitions: int) -> list[dict[str, Any]]:
        return [{"topicId": topic_id, "partitions": list(partitions)}]

    _first_heartbeats(asker, ask, owned)
    one = first(asker, "one")
    told = ask("joins", **one)
    mine = {"memberId": "one", "memberEpoch": told.memberEpoch}
    everything = {"topicPartitions": owned(0, 1, 2, 3)}
    ask("nothing new", **mine)
    ask("everything once more", **one | mine | everything)
    ask("an epoch of the future", **mine | everything | {"memberEpoch": 9})
    ask("unknown member", memberId="nobody", memberEpoch=1)
    ask("unknown group", NO_GROUP, memberId="one", memberEpoch=1)
    ask("unknown group, leaving", NO_GROUP, memberId="one", memberEpoch=-1)
    ask("unknown member, leaving", memberId="nobody", memberEpoch=-1)
    told = ask("a second member joins", **first(asker, "two"))
    two = {"memberId": "two", "memberEpoch": told.memberEpoch}
    # A separate thread computes the assignment now and then: send heartbeats until then.
    for _ in range(3):
        time.sleep(ASSIGNED_S)
        told = asker.call(HEARTBEAT, 1, groupId=f"{asker.topic}-a", **two | {"topicPartitions": []})
        two["memberEpoch"] = told.memberEpoch
    told = ask("the first is to give up", **mine | everything)
    kept = owned(*told.assignment.topicPartitions[0].partitions)
    ask("and does not yet", **mine | everything)
    ask("the second gets nothing yet", **two)
    ask("and does", **mine, topicPartitions=kept)
    ask("and its answer was lost", **mine, topicPartitions=kept)
    ask("and it owns more than it may", **mine | everything)
    ask("and it said nothing of what it owns", **mine)
    ask("the second gets the rest", **two)
    ask("who is known joins anew", **one)
    ask("leaves", memberId="two", memberEpoch=-1)
    ask("leaves again", memberId="two", memberEpoch=-1)
    _static_members(asker, ask)
    streams = streams_group(asker)
    ask("a group of the streams protocol", "streams", **first(asker, "four"))
    streams.leave("one")
    ask("such a group without members", "streams", **first(asker, "four"))
    if asker.version >= 1:
        regex = first(asker, "three") | {"subscribedTopicNames": None}
        ask("no regular expression", "r", **regex | {"subscribedTopicRegex": "a("})
        ask("a regular expression", "r", **regex | {"subscribedTopicRegex": "nothing-fits"})
        ask("an empty one", "r2", **regex | {"subscribedTopicRegex": ""})


def _first_heartbeats(asker: Asker, ask: Any, owned: Any) -> None:
    one = first(asker, "one")
    ask("without an id", "own", **one | {"memberId": ""})
    ask("no group", "", **one)
    ask("no rebalance timeout", **one | {"rebalanceTimeoutMs": -1})
    ask("owned partitions not said", **one | {"topicPartitions": None})
    ask("owned partitions of who joins", **one | {"topicPartitions": owned(0)})
    ask("no subscription", **one | {"subscribedTopicNames": None})
    ask("an empty instance", **one | {"instanceId": ""})
    ask("an empty rack", **one | {"rackId": ""})
    ask("an epoch that is none", **one | {"memberEpoch": -3})
    ask("an assignor that is none", **one | {"serverAssignor": "mine"})
    ask("away without an instance", memberId="one", memberEpoch=-2)
    ask("a subscription to nothing", "empty", **one | {"subscribedTopicNames": []})
    ask("a topic that is not there", "gone", **one | {"subscribedTopicNames": ["no-such-topic"]})
    ask("the range assignor", "range", **one | {"serverAssignor": "range"})


def _static_members(asker: Asker, ask: Any) -> None:
    static = {"instanceId": "i"}
    told = ask("a static member joins", "s", **first(asker, "one") | static)
    epoch = {"memberEpoch": told.memberEpoch}
    ask("another of its instance", "s", **first(asker, "two") | static)
    ask("another without joining", "s", memberId="two", **epoch, **static)
    ask("an instance that is not there", "s", memberId="one", instanceId="j", **epoch)
    ask("the static member joins anew", "s", **first(asker, "one") | static)
    ask("away for a while", "s", memberId="one", memberEpoch=-2, **static)
    ask("back under another id", "s", **first(asker, "two") | static)
    ask("the one before", "s", memberId="one", **epoch, **static)
    ask("for good", "s", memberId="two", memberEpoch=-1, **static)


def consumer_group_describe(asker: Asker) -> None:
    create_assignable_topic(asker, 2)
    group = Consumers(asker, "a").join("one", rackId="r", serverAssignor="range")
    asker.ask("one member", groupIds=[group.name])
    asker.ask("operations", groupIds=[group.name], includeAuthorizedOperations=True)
    group.join("two")
    asker.ask("a second has just joined", groupIds=[group.name])
    group.leave("two")
    asker.ask("and left", groupIds=[group.name])
    group.leave("one")
    asker.ask("nobody is left", groupIds=[group.name])
    asker.ask("unknown group", groupIds=[NO_GROUP])
    asker.ask("no group", groupIds=[""])
    asker.ask("nothing", groupIds=[])
    asker.ask("two groups", groupIds=[group.name, NO_GROUP])
    asker.ask("a group of the streams protocol", groupIds=[streams_group(asker).name])


def commits_of_consumers(asker: Asker, ask: Any) -> None:
    """Cases for OffsetCommit; the topic exists, with two partitions."""
    group = Consumers(asker, "consumers").join("one")
    mine = {"memberId": "one", "generationIdOrMemberEpoch": group.epochs["one"]}
    ask("a consumer", group.name, **mine)
    ask("a consumer with a newer epoch", group.name, **mine | {"generationIdOrMemberEpoch": 9})
    ask("no member, beside consumers", group.name)
    ask("unknown consumer", group.name, **mine | {"memberId": "nobody"})
    group.leave("one")
    ask("no member, after consumers", group.name)
    ask("a consumer that left", group.name, **mine)


def reads_of_consumers(asker: Asker, ask: Any, topics: list[dict[str, Any]]) -> None:
    """Cases for OffsetFetch."""
    group = Consumers(asker, "consumers").join("one")
    epoch = group.epochs["one"]
    ask("a consumer", group.name, topics, memberId="one", memberEpoch=epoch)
    ask("with a newer epoch", group.name, topics, memberId="one", memberEpoch=epoch + 1)
    ask("unknown consumer", group.name, topics, memberId="nobody", memberEpoch=epoch)
    ask("without a member", group.name, topics)
    group.leave("one")


def consumer_group(asker: Asker) -> Consumers:
    """A group with a member, for requests about groups."""
    return Consumers(asker, "consumers").join("one")


CONSUMER_SCENARIOS = {68: consumer_group_heartbeat, 69: consumer_group_describe}
