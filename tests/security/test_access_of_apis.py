"""What a principal may ask of each API in each version: as Kafka 4.3.1 answers it."""

import time
from collections import Counter

import pytest
from compat.answers.asking import fitted
from compat.support import CALL_TIMEOUT_S, Wire
from long_form import pick
from security import record_access
from security.access_questions import (
    CLOSED,
    MEMBER,
    PERMITTED,
    RIGHTS,
    TOPIC,
    ask,
    questions,
    rights_of,
)
from security.ruled_broker import ruled_broker
from streams.streams_wire import StreamsMember, described

from barnabas.api.access import Access
from barnabas.api.table import UNANNOUNCED, api_table
from barnabas.controller.topics import NewTopic
from barnabas.errors import TopicAuthorizationFailed
from barnabas.security import acl_codes
from barnabas.security.acl_codes import DESCRIBE, READ
from barnabas.wire import request
from barnabas.wire.uuids import uuid_text

TABLE = api_table()
EVERY = api_table(is_shared=True)  # and what brokers of a cluster serve to each other


@pytest.fixture(scope="module")
def ruled(tmp_path_factory):
    with ruled_broker(tmp_path_factory.mktemp("ruled")) as made:
        made.broker.node.serving.administration.topics.create(NewTopic(TOPIC, 1, 1), False)
        yield made


@pytest.fixture(scope="module")
def topic_id(ruled):
    return ruled.broker.node.cluster().topic(TOPIC).topic_id


@pytest.fixture(scope="module")
def kafka():
    return record_access.recorded()


@pytest.mark.parametrize("api", EVERY.values(), ids=lambda api: api.name)
def test_each_api_says_which_rights_it_needs(api):
    """A module without a row, or with an empty one, fails here; and its requests are refused."""
    access = api.access()
    assert isinstance(access, Access) and any(access)
    if access.rows is not None:
        assert api.refuse is not None


# What Barnabas answers otherwise, on purpose: (key, case) and why.
OTHERWISE = {(78, "two topics"): "Kafka fails with UNKNOWN_SERVER_ERROR, whatever the rights"}
# Asked before a login, and about delegation tokens, which User:ANONYMOUS cannot have
# (test_delegation_tokens.py).
BESIDE = {17, 18, 36, 38, 39, 40, 41}
# Answered to everyone; lists have only what the client may describe, and before version 3
# DescribeLogDirs has no error code.
OPEN = {
    ("Metadata", "all topics"),
    ("ListGroups", "all"),
    ("DescribeCluster", "all"),
    ("DescribeLogDirs", "a topic"),
    ("DescribeTopicPartitions", "all"),
    ("ListTransactions", "all"),
}


def versions():
    """Keys and versions: in the short form the first and the last of each API."""
    for key, api in TABLE.items():
        every = range(api.version_min, api.version_max + 1)
        for version in pick(short=sorted({every[0], every[-1]}), long=every):
            yield key, version


@pytest.mark.parametrize("right", RIGHTS)
def test_answers_are_those_of_kafka(ruled, topic_id, kafka, right):
    wrong = []
    asked = Counter()
    with ruled.rights(rights_of(right)):
        for key, version in versions():
            for case, fields in questions(key, version, topic_id):
                wanted = kafka.get((key, case, version, right))
                if wanted in (None, CLOSED) or (key, case) in OTHERWISE:
                    continue  # of CLOSED versions tests/native/test_produce_old.py asked Kafka 3.9
                with Wire(ruled.address) as wire:
                    answer = ask(wire, key, version, fields)
                asked[key] += 1
                if answer != wanted:
                    name = TABLE[key].name
                    wrong.append(f"{name} v{version}, {case}: {answer}, Kafka: {wanted}")
    assert not wrong, "\n".join(wrong)
    assert len(asked) > 40


def test_without_a_right_nothing_is_answered_but_what_is_open_to_all(kafka):
    """So that each question shows something."""
    answered = {
        (TABLE[key].name, case)
        for (key, case, _version, right), answer in kafka.items()
        if right == "nothing" and answer == PERMITTED
    }
    assert answered == OPEN
    asked = {key for key, *_ in record_access.recorded(record_access.ZOOKEEPER_FILE) | kafka}
    assert BESIDE | asked == set(EVERY) - UNANNOUNCED
    closed = {key for (key, *_), answer in kafka.items() if answer == CLOSED}
    assert closed == {0}  # its versions 0 to 2, which Kafka lists and does not serve


def test_a_regular_expression_matches_only_what_its_client_may_describe(ruled):
    """A member would learn ids and partitions of the other topics from its assignment."""
    topics = ruled.broker.node.serving.administration.topics
    for name in ("seen", "secret"):
        topics.create(NewTopic(name, 1, 1), False)
    state = ruled.broker.node.cluster()
    fields = {"groupId": "regex", "memberId": MEMBER, "rebalanceTimeoutMs": 60_000}
    fields |= {"subscribedTopicRegex": "se.*", "topicPartitions": []}
    given = [(READ, acl_codes.GROUP, "regex"), (DESCRIBE, acl_codes.TOPIC, "seen")]
    epoch, found = 0, set()
    deadline = time.monotonic() + CALL_TIMEOUT_S
    with ruled.rights(given), Wire(ruled.address) as wire:
        while not found:
            assert time.monotonic() < deadline
            body = fitted(request(68), fields | {"memberEpoch": epoch}, 1)
            told = wire.call(68, 1, body)
            if told.errorCode in (14, 15, 16):  # the coordinator is not there yet
                wire.call(10, 0, request(10).cls(key="regex"))
                continue
            assert not told.errorCode
            epoch = told.memberEpoch
            rows = told.assignment.topicPartitions if told.assignment is not None else ()
            found = {uuid_text(row.topicId) for row in rows}
    assert found == {state.topic("seen").topic_id}


MISSING_INTERNAL_TOPICS = 3


def test_internal_topics_of_a_streams_group_need_the_right_to_create_them(ruled):
    topics = ruled.broker.node.serving.administration.topics
    topics.create(NewTopic("streamed", 1, 1), False)
    given = [(READ, acl_codes.GROUP, "app"), (DESCRIBE, acl_codes.TOPIC, "streamed")]
    given += [(DESCRIBE, acl_codes.TOPIC, "app-changelog")]
    member = StreamsMember(ruled.address, "app", "streamed", changelogs=["app-changelog"])
    with ruled.rights(given):
        assert member.beat().errorCode == 0
        assert member.statuses[MISSING_INTERNAL_TOPICS] == (
            "Internal topics are missing: app-changelog; Unauthorized to CREATE on topics"
            " app-changelog."
        )
    assert ruled.broker.node.cluster().topic("app-changelog") is None
    with ruled.rights([*given, (acl_codes.CREATE, acl_codes.TOPIC, "app-changelog")]):
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while ruled.broker.node.cluster().topic("app-changelog") is None:
            assert time.monotonic() < deadline
            assert member.beat().errorCode == 0


def test_a_streams_group_is_described_to_those_who_may_see_its_topics(ruled):
    topics = ruled.broker.node.serving.administration.topics
    topics.create(NewTopic("hidden", 1, 1), False)
    given = [(READ, acl_codes.GROUP, "seen"), (DESCRIBE, acl_codes.GROUP, "seen")]
    sees = (DESCRIBE, acl_codes.TOPIC, "hidden")
    with ruled.rights([*given, sees]):
        assert StreamsMember(ruled.address, "seen", "hidden").beat().errorCode == 0
        assert described(ruled.address, "seen")[0].errorCode == 0
    with ruled.rights(given):
        (group,) = described(ruled.address, "seen")
    assert group.errorCode == TopicAuthorizationFailed.code and not group.members
    assert group.topology is None
