"""Metadata requests for a topic that does not exist: the first responses, and those after its
creation."""

import threading
import time

import pytest
from api.admin_calls import admin_on

UNKNOWN_TOPIC, INVALID_TOPIC = 3, 17


def ask(admin, name, version, may_create=True):
    asked = {"topics": [{"name": name}]}
    if version >= 4:
        asked["allowAutoTopicCreation"] = may_create
    return admin.call(3, version, **asked).topics[0]


def ask_until_there(admin, name, version):
    deadline = time.monotonic() + 10
    while (row := ask(admin, name, version)).errorCode == UNKNOWN_TOPIC:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return row


@pytest.mark.parametrize("version", range(14))
def test_the_first_answer_of_a_missing_topic_is_unknown_and_the_topic_comes_after(
    tmp_path, version
):
    """F11, as Apache Kafka 4.3.1 answers each version."""
    with admin_on(tmp_path, num_partitions="2") as a:
        first = ask(a, "t", version)
        assert (first.errorCode, first.partitions, first.name) == (UNKNOWN_TOPIC, [], "t")
        row = ask_until_there(a, "t", version)
        assert (row.errorCode, len(row.partitions)) == (0, 2)


def test_a_question_that_may_not_create_creates_nothing(tmp_path):
    with admin_on(tmp_path) as a:
        assert ask(a, "t", 9, may_create=False).errorCode == UNKNOWN_TOPIC
        assert ask(a, "bad/name", 9).errorCode == INVALID_TOPIC
        ask_until_there(a, "u", 9)
        assert a.names() == ["u"]


def test_a_coordinators_topic_is_created_with_its_own_settings(tmp_path):
    with admin_on(tmp_path, offsets_topic_num_partitions="4") as a:
        first = ask(a, "__consumer_offsets", 9)
        assert (first.errorCode, first.isInternal) == (UNKNOWN_TOPIC, True)
        row = ask_until_there(a, "__consumer_offsets", 9)
        assert (row.isInternal, len(row.partitions)) == (True, 4)


def test_what_cannot_be_created_is_unknown_and_logged(tmp_path, caplog):
    """As Kafka 4.3.1, which gives the same answer however often a client asks."""
    with admin_on(tmp_path, default_replication_factor="3") as a:
        a.create("a.b")
        for _ in range(3):
            assert ask(a, "a_b", 9).errorCode == UNKNOWN_TOPIC
            assert ask(a, "t", 9).errorCode == UNKNOWN_TOPIC
        deadline = time.monotonic() + 10
        while "cannot create topic t for a client" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert "collides" in caplog.text and a.names() == ["a.b"]


def test_a_topic_whose_logs_are_still_being_opened_has_no_leader_yet(tmp_path):
    """Clients that saw a leader produced at once, and got UNKNOWN_TOPIC_OR_PARTITION."""
    with admin_on(tmp_path) as a:
        logs = a.broker.node.loaded.logs
        opening, may_go_on = threading.Event(), threading.Event()
        save = logs.save

        def slow():
            opening.set()
            assert may_go_on.wait(30)
            return save()

        logs.save = slow
        ask(a, "t", 9)
        assert opening.wait(30)
        while_opened = ask(a, "t", 9)
        may_go_on.set()
        del logs.save
        assert [(row.errorCode, row.leaderId) for row in while_opened.partitions] == [(5, -1)]
        deadline = time.monotonic() + 10
        while (row := ask(a, "t", 9)).partitions[0].errorCode:
            assert time.monotonic() < deadline
        assert row.partitions[0].leaderId == a.broker.node.node_id
