"""Scenarios for groups of the streams protocol (KIP-1071).

A group of a scenario waits for nobody: its own settings turn the first delay and the interval
between two assignments off. Kafka 4.3 answers version 0, and knows no static members and no offsets
of tasks; these are asked for in version 1.
"""

import time
from itertools import count
from typing import Any

from compat.answers.asking import Asker
from compat.support import CALL_TIMEOUT_S, create_topic

from barnabas.wire import Struct, response
from barnabas.wire.json_form import to_json

HEARTBEAT = 88
NO_GROUP = "no-such-group"
REBALANCE_MS = 60_000
GROUP_RESOURCE = 32
COORDINATOR_CODES = {14, 15, 16}
AT_ONCE = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}
ROLES = ("activeTasks", "standbyTasks", "warmupTasks")
NO_TASKS: dict[str, list[Any]] = {role: [] for role in ROLES}
LATER = 1  # the version that only Kafka 4.4 answers


def internal(name: str, partitions: int = 0) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": partitions,
        "replicationFactor": 0,
        "topicConfigs": [{"key": "cleanup.policy", "value": "compact"}],
    }


def subtopology(*sources: str, name: str = "0", **more: Any) -> dict[str, Any]:
    return {
        "subtopologyId": name,
        "sourceTopics": list(sources),
        "sourceTopicRegex": [],
        "stateChangelogTopics": [],
        "repartitionSinkTopics": [],
        "repartitionSourceTopics": [],
        "copartitionGroups": [],
        **more,
    }


def topology(*rows: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    return {"epoch": epoch, "subtopologies": list(rows)}


def active(*partitions: int, name: str = "0") -> dict[str, Any]:
    """The tasks that a member reports: these partitions of one subtopology."""
    rows = [{"subtopologyId": name, "partitions": list(partitions)}] if partitions else []
    return NO_TASKS | {"activeTasks": rows}


class Streams:
    """A group of the scenario, with its members by id."""

    def __init__(self, asker: Asker, suffix: str, **settings: str) -> None:
        self.asker = asker
        self.name = f"{asker.topic}-{suffix}"
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, dict[str, Any]] = {}
        wanted = AT_ONCE | {name.replace("_", "."): value for name, value in settings.items()}
        rows = [{"name": k, "configOperation": 0, "value": v} for k, v in wanted.items()]
        resource = {"resourceType": GROUP_RESOURCE, "resourceName": self.name, "configs": rows}
        told = asker.call(44, 1, resources=[resource])
        assert told.responses[0].errorCode == 0, told

    def first(self, member: str, **more: Any) -> dict[str, Any]:
        """A first heartbeat."""
        return {
            "groupId": self.name,
            "memberId": member,
            "memberEpoch": 0,
            "endpointInformationEpoch": 0,
            "rebalanceTimeoutMs": REBALANCE_MS,
            "topology": topology(subtopology(self.asker.topic)),
            "processId": f"process-{member}",
            "clientTags": [],
            **NO_TASKS,
            **more,
        }

    def join(self, member: str, **more: Any) -> "Streams":
        fields = self.first(member, **more)
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while True:
            self.asker.call(10, 0, key=self.name)
            told = self.asker.call(HEARTBEAT, self.version, **fields)
            if told.errorCode not in COORDINATOR_CODES:
                return self.told(member, told)
            assert time.monotonic() < deadline, told
            time.sleep(0.05)

    @property
    def version(self) -> int:
        return self.asker.version if self.asker.key == HEARTBEAT else 0

    def beat(self, member: str, **more: Any) -> "Streams":
        fields = self.again(member) | self.owned[member] | more
        return self.told(member, self.asker.call(HEARTBEAT, self.version, **fields))

    def again(self, member: str) -> dict[str, Any]:
        epoch = {"memberEpoch": self.epochs[member], "endpointInformationEpoch": 0}
        return {"groupId": self.name, "memberId": member} | epoch

    def told(self, member: str, told: Struct | None) -> "Streams":
        assert told is not None and told.errorCode == 0, told
        self.epochs[member] = told.memberEpoch
        if told.activeTasks is not None:
            message = to_json(response(HEARTBEAT), told, self.version)
            self.owned[member] = {role: message[role] for role in ROLES}
        self.owned.setdefault(member, NO_TASKS)
        return self

    def settle(self, *members: str) -> "Streams":
        """Sends heartbeats until nothing changes."""
        while True:
            before = dict(self.epochs), dict(self.owned)
            for member in members:
                self.beat(member)
            if before == (self.epochs, self.owned):
                return self

    def leave(self, member: str) -> "Streams":
        fields = {"groupId": self.name, "memberId": member, "memberEpoch": -1}
        fields |= {"endpointInformationEpoch": 0}
        assert self.asker.call(HEARTBEAT, self.version, **fields).errorCode == 0
        return self


def create_readable_topic(asker: Asker, partitions: int, name: str = "") -> str:
    """Creates a topic and waits until a member gets its tasks: Kafka's coordinators learn of a
    topic later than clients that ask for metadata."""
    name = name or asker.topic
    create_topic(asker.address, name, partitions)
    deadline = time.monotonic() + CALL_TIMEOUT_S
    for number in count():
        group = Streams(asker, f"reads-{name}-{number}".replace(asker.topic, "t"))
        group.join("x", topology=topology(subtopology(name))).leave("x")
        if group.owned["x"]["activeTasks"]:
            return name
        assert time.monotonic() < deadline, f"{name} is assigned to nobody"
        time.sleep(0.05)


def streams_group_heartbeat(asker: Asker) -> None:
    create_readable_topic(asker, 4)
    _refused(asker)
    group = Streams(asker, "a")
    told = asker.ask("joins", **group.first("one"))
    group.told("one", told)
    one = group.again("one")
    asker.ask("nothing new", **one)
    asker.ask("everything once more", **one, **group.owned["one"])
    asker.ask("an epoch of the future", **one | {"memberEpoch": 90})
    asker.ask("an epoch of the past", **one | {"memberEpoch": 1})
    asker.ask("a topology without joining", **one, topology=topology(subtopology(asker.topic)))
    asker.ask("a task that is not there", **one, **active(9))
    asker.ask("a subtopology that is not there", **one, **active(0, name="9"))
    asker.ask("unknown member", **one | {"memberId": "nobody"})
    asker.ask("unknown group", **one | {"groupId": NO_GROUP})
    asker.ask("unknown group, leaving", **one | {"groupId": NO_GROUP, "memberEpoch": -1})
    asker.ask("unknown member, leaving", **one | {"memberId": "nobody", "memberEpoch": -1})
    _moves(asker, group)
    asker.ask("joins anew", **group.first("one"))
    other = topology(subtopology(asker.topic, name="other"))
    asker.ask("another topology", **group.first("three", topology=other))
    asker.ask("asks for the end", **group.again("two"), shutdownApplication=True)
    asker.ask("the end for the other", **group.again("one"))
    asker.ask("leaves", **group.again("two") | {"memberEpoch": -1})
    asker.ask("leaves again", **group.again("two") | {"memberEpoch": -1})
    _topics(asker)
    _stale(asker)
    _endpoints(asker)
    _standbys(asker)
    if asker.version >= LATER:
        _static_members(asker)
        _offsets(asker)
        _tags(asker)


def _refused(asker: Asker) -> None:
    group = Streams(asker, "refused")

    def ask(case: str, **more: Any) -> None:
        asker.ask(case, **group.first("one") | more)

    ask("no group", groupId="")
    ask("no member", memberId="")
    ask("an empty instance", instanceId="")
    ask("an empty rack", rackId="")
    ask("no rebalance timeout", rebalanceTimeoutMs=-1)
    ask("tasks of who joins", **active(0))
    ask("no topology", topology=None)
    ask("an epoch that is none", memberEpoch=-3, topology=None)
    ask("away without an instance", memberEpoch=-2, topology=None)
    ask("standby tasks not said", standbyTasks=None)
    name = asker.topic
    for case, wrong in {
        "a changelog with partitions": subtopology(
            name, stateChangelogTopics=[internal("changelog", 3)]
        ),
        "a regular expression": subtopology(name, sourceTopicRegex=["a.*"]),
        "an internal topic of Kafka": subtopology("__consumer_offsets"),
        "a name that is none": subtopology("a topic"),
        "nobody writes a repartition topic": subtopology(
            name, repartitionSourceTopics=[internal(f"{name}-nobody")]
        ),
        "a loop": subtopology(
            repartitionSinkTopics=[f"{name}-loop"],
            repartitionSourceTopics=[internal(f"{name}-loop")],
        ),
    }.items():
        ask(case, topology=topology(wrong))


def _moves(asker: Asker, group: Streams) -> None:
    """A second member gets half of the tasks."""
    told = asker.ask("a second member joins", **group.first("two"))
    group.told("two", told)
    everything, kept = active(0, 1, 2, 3), active(0, 1)
    told = asker.ask("the first is to give up", **group.again("one"), **everything)
    group.told("one", told)
    asker.ask("and does not yet", **group.again("one"), **everything)
    asker.ask("the second gets nothing yet", **group.again("two"))
    before = group.again("one")
    group.told("one", asker.ask("and does", **group.again("one"), **kept))
    asker.ask("and its answer was lost", **before, **kept)
    asker.ask("and it owns more than it may", **before, **everything)
    asker.ask("and it said nothing of what it owns", **before)
    group.told("two", asker.ask("the second gets the rest", **group.again("two")))


def _topics(asker: Asker) -> None:
    """Topics that are missing, and topics that do not fit."""
    name = asker.topic
    group = Streams(asker, "missing")
    gone = topology(subtopology(f"{name}-no-source"))
    asker.ask("a source that is not there", **group.first("one", topology=gone))
    stateful = subtopology(name, stateChangelogTopics=[internal(f"{name}-changelog")])
    group = Streams(asker, "internal")
    fields = group.first("one", topology=topology(stateful))
    group.told("one", asker.ask("an internal topic that is not there", **fields))
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while not group.beat("one").owned["one"]["activeTasks"]:
        assert time.monotonic() < deadline, "the internal topic is not created"
        time.sleep(0.05)
    asker.ask("the internal topic is there", **group.first("one", topology=topology(stateful)))
    create_readable_topic(asker, 2, f"{name}-two")
    asker.ask(
        "an internal topic with another number of partitions",
        **Streams(asker, "other-count").first(
            "one",
            topology=topology(
                subtopology(f"{name}-two", stateChangelogTopics=[internal(f"{name}-changelog")])
            ),
        ),
    )
    both = {"sourceTopics": [0, 1], "sourceTopicRegex": [], "repartitionSourceTopics": []}
    apart = subtopology(name, f"{name}-two", copartitionGroups=[both])
    fields = Streams(asker, "apart").first("one", topology=topology(apart))
    asker.ask("topics that are not copartitioned", **fields)


def _stale(asker: Asker) -> None:
    group = Streams(asker, "stale")
    newer = topology(subtopology(asker.topic), epoch=3)
    group.join("one", topology=newer).beat("one")
    told = asker.ask("an older topology", **group.first("two"))
    group.told("two", told)
    asker.ask("its next heartbeat", **group.again("two"))


def _endpoints(asker: Asker) -> None:
    group = Streams(asker, "endpoints")
    endpoint = {"host": "localhost", "port": 8080}
    # Kafka forgets the endpoint of a group's first member until its tasks change.
    group.join("one").beat("one")
    told = asker.ask("an endpoint", **group.first("two", userEndpoint=endpoint))
    group.told("two", told)
    group.told("one", asker.ask("the endpoint for the other", **group.again("one")))
    known = group.again("one") | {"endpointInformationEpoch": 1}
    asker.ask("the endpoints are known", **known)
    group.settle("one", "two")
    asker.ask("the endpoint has tasks", **group.again("one"))


def _standbys(asker: Asker) -> None:
    group = Streams(asker, "standbys", streams_num_standby_replicas="1")
    name = f"{asker.topic}-changelog"
    stateful = topology(subtopology(asker.topic, stateChangelogTopics=[internal(name)]))
    told = asker.ask("a standby without another", **group.first("one", topology=stateful))
    group.told("one", told)
    told = asker.ask("joins for standbys", **group.first("two", topology=stateful))
    group.told("two", told).settle("one", "two")
    asker.ask("the first has standbys", **group.first("one", topology=stateful))
    asker.ask("the second has standbys", **group.first("two", topology=stateful))


def _static_members(asker: Asker) -> None:
    group = Streams(asker, "static")
    static = {"instanceId": "i"}
    group.told("one", asker.ask("a static member joins", **group.first("one", **static)))
    epoch = group.again("one")
    asker.ask("another of its instance", **group.first("two", **static))
    asker.ask("another without joining", **epoch | {"memberId": "two"}, **static)
    asker.ask("an instance that is not there", **epoch, instanceId="j")
    asker.ask("the static member joins anew", **group.first("one", **static))
    asker.ask("away for a while", **epoch | {"memberEpoch": -2}, **static)
    asker.ask("back under another id", **group.first("two", **static))
    asker.ask("the one before", **epoch, **static)
    asker.ask("for good", **epoch | {"memberId": "two", "memberEpoch": -1}, **static)


def _offsets(asker: Asker) -> None:
    group = Streams(asker, "offsets")
    group.join("one")
    row = {"subtopologyId": "0", "partition": 0, "offset": 7}
    asker.ask("offsets of tasks", **group.again("one"), taskOffsets=[row], taskEndOffsets=[row])
    asker.ask("offsets of a task twice", **group.again("one"), taskOffsets=[row, row])


def _tags(asker: Asker) -> None:
    group = Streams(asker, "tags", streams_rack_aware_assignment_tags="zone,rack")
    tag = {"key": "zone", "value": "a"}
    asker.ask("a client tag is missing", **group.first("one", clientTags=[tag]))


def streams_group_describe(asker: Asker) -> None:
    create_readable_topic(asker, 2)
    name = asker.topic
    group = Streams(asker, "a")
    stateful = subtopology(name, stateChangelogTopics=[internal(f"{name}-changelog")])
    fields = {
        "rackId": "r",
        "userEndpoint": {"host": "localhost", "port": 8080},
        "clientTags": [{"key": "zone", "value": "z"}],
        "topology": topology(stateful),
    }
    group.join("one", **fields)
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while not group.beat("one").owned["one"]["activeTasks"]:
        assert time.monotonic() < deadline, "the internal topic is not created"
        time.sleep(0.05)

    def ask(case: str, *groups: str, **more: Any) -> None:
        asker.ask(case, groupIds=list(groups), **{"includeAuthorizedOperations": False} | more)

    late = Streams(asker, "late")
    late.join("one", topology=topology(subtopology(name)))
    ask("one member", late.name)
    ask("operations", late.name, includeAuthorizedOperations=True)
    late.join("two", topology=topology(subtopology(name)))
    ask("a second has just joined", late.name)
    late.beat("one")
    ask("the first is to give up", late.name)
    late.beat("one").beat("two").leave("two")
    ask("and left", late.name)
    late.leave("one")
    if asker.version >= LATER:  # Kafka 4.3 leaves the epoch of the assignment
        ask("nobody is left", late.name)
    ask("unknown group", NO_GROUP)
    ask("no group", "")
    ask("nothing")
    gone = Streams(asker, "gone").join("one", topology=topology(subtopology(f"{name}-none")))
    ask("a source that is not there", gone.name)
    ask("two groups", gone.name, NO_GROUP)
    asker.ask(
        "its description",
        groupIds=[gone.name],
        includeAuthorizedOperations=False,
        includeTopologyDescription=True,
    )
    group.beat("one")
    ask("a member with everything", group.name)


def streams_group_topology_description_update(asker: Asker) -> None:
    node = {
        "name": "source",
        "nodeType": 0,
        "sourceTopics": [asker.topic],
        "sinkTopic": None,
        "stores": [],
        "successors": [],
    }
    described = {"subtopologies": [{"subtopologyId": "0", "nodes": [node]}], "globalStores": []}
    fields = {"memberId": "one", "topologyEpoch": 0, "topologyDescription": described}
    asker.ask("without a plugin", groupId=f"{asker.topic}-a", **fields)
    asker.ask("no group", groupId="", **fields)


def streams_group(asker: Asker) -> Streams:
    """A group with a member, for requests about groups."""
    return Streams(asker, "streams").join("one")


def commits_of_streams(asker: Asker, ask: Any) -> None:
    """Cases for OffsetCommit; the topic exists, with two partitions."""
    group = streams_group(asker)
    mine = {"memberId": "one", "generationIdOrMemberEpoch": group.epochs["one"]}
    ask("a streams member", group.name, **mine)
    ask("a streams member with a newer epoch", group.name, **mine | later(90))
    ask("no member, beside streams members", group.name)
    ask("unknown streams member", group.name, **mine | {"memberId": "nobody"})
    group.leave("one")
    ask("no member, after streams members", group.name)
    ask("a streams member that left", group.name, **mine)


def later(epoch: int) -> dict[str, int]:
    return {"generationIdOrMemberEpoch": epoch}


def reads_of_streams(asker: Asker, ask: Any, topics: list[dict[str, Any]]) -> None:
    """Cases for OffsetFetch."""
    group = streams_group(asker)
    epoch = group.epochs["one"]
    ask("a streams member", group.name, topics, memberId="one", memberEpoch=epoch)
    ask("it with a newer epoch", group.name, topics, memberId="one", memberEpoch=epoch + 1)
    ask("unknown streams member", group.name, topics, memberId="nobody", memberEpoch=epoch)
    ask("without a streams member", group.name, topics)
    group.leave("one")


STREAMS_SCENARIOS = {
    88: streams_group_heartbeat,
    89: streams_group_describe,
    93: streams_group_topology_description_update,
}
