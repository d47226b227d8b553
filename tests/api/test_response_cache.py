"""The response cache: network threads send cached Metadata and ApiVersions responses while they are
valid."""

import itertools
from contextlib import closing
from dataclasses import replace

import pytest
from api.admin_calls import BROKER, SET, admin_on
from compat.support import Wire
from waiting import soon

from barnabas.api.k03_metadata import VERSIONS
from barnabas.cext.network.response_cache import ResponseCache
from barnabas.controller.features import SAFE_DOWNGRADE, FeatureUpdate
from barnabas.metadata import znodes
from barnabas.wire import request

LEADER_NOT_AVAILABLE = 5
REQUEST_TIMED_OUT = 7
METADATA = 3
API_VERSIONS = 18
INVALID_REQUEST = 42


@pytest.fixture
def admin(tmp_path):
    with admin_on(tmp_path) as a:
        a.create("one")
        a.create("two", partitions=3)
        yield a


def kept(admin):
    return admin.broker.node.bound.native.response_cache


def ask(admin, *names, version=9):
    return admin.call(METADATA, version, topics=[{"name": name} for name in names] or None)


def twice(ask_once, cache):
    """The response that two requests got, the second of them from the cache."""
    for _ in range(50):  # a change, for example the end of a creation, may come in between
        first, served = ask_once(), cache.served
        again = ask_once()
        if cache.served == served + 1:
            assert again == first
            return again
    raise AssertionError("no answer was kept")


def ask_twice(admin, *names, version=9):
    return twice(lambda: ask(admin, *names, version=version), kept(admin))


@pytest.mark.parametrize("version", range(VERSIONS[0], VERSIONS[1] + 1))
def test_every_version_gets_its_own_answer_again(admin, version):
    ask(admin, "one", "two", version=version - 1 if version else 1)
    answer = ask_twice(admin, "one", "two", version=version)
    assert [(row.name, len(row.partitions)) for row in answer.topics] == [("one", 1), ("two", 3)]


def test_another_question_is_not_answered_with_it(admin):
    ask_twice(admin, "one", "two")
    served = kept(admin).served
    assert [row.name for row in ask(admin, "two", "one").topics] == ["two", "one"]
    assert [row.name for row in ask(admin, "one").topics] == ["one"]
    rows = ask(admin, version=8).topics
    assert sorted(row.name for row in rows) == ["one", "two"]
    admin.call(METADATA, 8, topics=None, includeTopicAuthorizedOperations=True)
    assert kept(admin).served == served


def test_topics_come_grow_and_go(admin):
    def seen():
        return {row.name: len(row.partitions) for row in ask_twice(admin).topics}

    assert seen() == {"one": 1, "two": 3}
    admin.create("three", partitions=2)
    assert seen() == {"one": 1, "two": 3, "three": 2}
    row = {"name": "one", "count": 4, "assignments": None}
    grown = admin.call(37, 1, topics=[row], timeoutMs=9000, validateOnly=False)
    assert grown.results[0].errorCode == 0
    assert seen() == {"one": 4, "two": 3, "three": 2}
    assert admin.delete("two") == [0]
    assert seen() == {"one": 4, "three": 2}


def test_a_topic_made_anew_has_its_new_id(admin):
    before = ask_twice(admin, "one", version=12).topics[0].topicId
    admin.delete("one")
    admin.create("one")
    assert ask_twice(admin, "one", version=12).topics[0].topicId != before


def test_a_missing_topic_is_looked_for_each_time(admin):
    served = kept(admin).served
    for _ in range(3):
        answer = admin.call(
            METADATA, 9, topics=[{"name": "none"}, {"name": "one"}], allowAutoTopicCreation=False
        )
        assert [row.errorCode for row in answer.topics] == [3, 0]
    assert kept(admin).served == served
    soon(lambda: [row.errorCode for row in ask(admin, "none").topics] == [0], "it was not created")


def test_a_leader_change_that_another_wrote(admin):
    """As a controller writes it: the partition's state, then a notification of the change."""
    assert ask_twice(admin, "two").topics[0].partitions[1].leaderEpoch == 0
    node = admin.broker.node
    state = node.cluster().partition("two", 1).state
    path = znodes.partition_state_path("two", 1)
    node.opened.tree.set(path, replace(state, leader_epoch=7).encode())
    note = znodes.encode_partitions([("two", 1)])
    node.opened.tree.create(znodes.ISR_CHANGE_PREFIX + "0", note)
    soon(lambda: node.cluster().partition("two", 1).state.leader_epoch == 7)
    assert [row.leaderEpoch for row in ask_twice(admin, "two").topics[0].partitions] == [0, 7, 0]


@pytest.mark.parametrize("damage", ["flush", "directory"])
def test_a_log_that_goes_offline_has_no_leader(admin, damage):
    assert ask_twice(admin, "one").topics[0].partitions[0].leaderId >= 0
    if damage == "flush":
        admin.broker.fail_disk("fdatasync")
        assert admin.produce("one") != 0
    else:
        admin.broker.node.loaded.replicas._table.set_offline("one", 0)
    for _ in range(2):
        row = ask(admin, "one").topics[0].partitions[0]
        assert (row.leaderId, row.errorCode) == (-1, LEADER_NOT_AVAILABLE)


def test_each_listener_tells_its_own_address(tmp_path):
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT"}
    with admin_on(tmp_path, node_id="1", **protocols) as a:
        a.create("one")
        plain = ask_twice(a, "one").brokers[0].port
        both = "PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:0"
        assert a.alter(BROKER, "1", ("listeners", SET, both)) == (0, None)
        second = {row.name: row.port for row in a.broker.node.listening}["SECOND"]
        body = request(METADATA).cls(topics=[request(METADATA).struct("topics")(name="one")])
        with closing(Wire(f"127.0.0.1:{second}")) as wire:
            for _ in range(2):
                assert wire.call(METADATA, 9, body).brokers[0].port == second
                assert a.call(METADATA, 9, topics=[{"name": "one"}]).brokers[0].port == plain


def test_a_fault_strikes_though_the_answer_is_kept(admin):
    ask_twice(admin, "one")
    with admin.broker.fail("Metadata", "REQUEST_TIMED_OUT", topic="one", times=2):
        assert ask(admin, "two").topics[0].errorCode == 0
        for _ in range(2):
            assert ask(admin, "one").topics[0].errorCode == REQUEST_TIMED_OUT
    assert ask_twice(admin, "one").topics[0].errorCode == 0


def test_error_codes_are_counted_alike(tmp_path):
    """The error code of the response, and those of each topic and partition."""
    with admin_on(tmp_path, metrics_port="0") as a:
        a.create("two", partitions=3)
        node = a.broker.node

        def counted():
            """Counts of the request handlers and of the network threads."""
            metrics = node.reactor.request_metrics().get(METADATA, {"errors": {}})
            return node.serving.errors.counts().get((METADATA, 0), 0), metrics["errors"].get(0, 0)

        for asked in itertools.count(1):  # the new topic invalidates it at its end
            served, before = kept(a).served, counted()
            ask(a, "two")
            if kept(a).served > served:
                break
            assert counted() == (before[0] + 5, 0) and asked < 10
        assert counted() == (before[0], 5)


def test_an_answer_that_a_change_overtakes_is_not_kept():
    held = ResponseCache(((METADATA, 0, 13),))  # no broker invalidates it
    generation = held.generation
    given = {"listener_index": 0, "api_key": METADATA, "api_version": 9, "good_codes": 1}
    given["question"] = b"q"
    assert held.store(generation=generation, frame=b"12345678answer", **given)
    assert held.held_bytes > 0
    held.forget()
    assert held.held_bytes == 0
    assert not held.store(generation=generation, frame=b"12345678answer", **given)
    assert held.held_bytes == 0
    with pytest.raises(ValueError, match="7 bytes"):
        held.store(generation=held.generation, frame=b"1234567", **given)


def test_memory_of_the_response_cache_is_bounded():
    held = ResponseCache(((METADATA, 0, 13),))
    frame = bytes(8 + 200_000)
    for number in range(300):
        question = b"%d" % number
        given = {"listener_index": 0, "api_key": METADATA, "api_version": 9, "good_codes": 1}
        given["question"] = question
        assert held.store(generation=held.generation, frame=frame, **given)
        assert held.held_bytes <= 8 << 20
    given["question"] = bytes(65537)
    assert not held.store(generation=held.generation, frame=frame, **given)
    given["question"] = b"large"
    assert not held.store(generation=held.generation, frame=bytes(8 + 262_145), **given)


def api_versions(admin, version=4, name="test"):
    named = {"clientSoftwareName": name, "clientSoftwareVersion": "1.0"} if version >= 3 else {}
    return admin.call(API_VERSIONS, version, **named)


@pytest.mark.parametrize("version", range(6))
def test_f16_api_versions_is_answered_from_the_cache_and_in_python_only_once(admin, version):
    answer = twice(lambda: api_versions(admin, version), kept(admin))
    assert answer.errorCode == 0 and {row.apiKey for row in answer.apiKeys} >= {0, 1, 3, 18}


def test_api_versions_with_an_error_is_not_stored(admin):
    served = kept(admin).served
    for _ in range(3):
        answer = api_versions(admin, name="no name!")
        assert (answer.errorCode, answer.apiKeys) == (INVALID_REQUEST, [])
    assert kept(admin).served == served


def test_another_feature_level_changes_the_stored_api_versions(admin):
    def level():
        rows = api_versions(admin).finalizedFeatures
        return {row.name: row.maxVersionLevel for row in rows}.get("group.version", 0)

    assert (level(), level()) == (1, 1)
    features = admin.broker.node.serving.administration.features
    features.update([FeatureUpdate("group.version", 0, SAFE_DOWNGRADE)])
    assert (level(), level()) == (0, 0)
