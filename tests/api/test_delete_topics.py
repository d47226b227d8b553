"""Topics are deleted completely, also after a crash in the middle of a deletion."""

import logging

import pytest
from api.admin_calls import BROKER, SET, admin_on

from barnabas.metadata import znodes
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import StoreUnavailable
from barnabas.wire.uuids import uuid_text

UNKNOWN_TOPIC, INVALID_REQUEST, STORAGE, DELETION_DISABLED, UNKNOWN_ID = 3, 42, 56, 73, 100
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def store(path):
    return EmbeddedTree(path / "data" / "metadata", clock_ms=lambda: 0)


def nodes_about(path, topic):
    tree = store(path)
    try:
        return [n.path for n in tree.subtree("/") if topic in n.path.split("/")]
    finally:
        tree.close()


def test_a_deleted_topic_is_gone_from_everything(tmp_path):
    with admin_on(tmp_path, auto_create_topics_enable="false") as a:
        a.create("t", 3, retention_ms="1000")
        a.create("other")
        assert a.produce("t") == 0
        assert a.delete("t") == [0]
        assert a.names() == ["other"]
        assert a.produce("t") == UNKNOWN_TOPIC
        assert a.offset("t", -1) == -1
        assert all(name.endswith("-delete") for name in a.directories("t"))
        assert len(a.directories("t")) == 3
        assert a.produce("other") == 0
    assert nodes_about(tmp_path, "t") == []
    with admin_on(tmp_path) as a:
        assert a.names() == ["other"] and a.directories("t") == []


def test_directories_go_after_log_segment_delete_delay_ms(tmp_path):
    with admin_on(tmp_path) as a:
        a.create("t", 2)
        a.delete("t")
        a.broker.node.running.retention.run()
        assert len(a.directories("t")) == 2
        assert a.alter(BROKER, "", ("log.segment.delete.delay.ms", SET, "0")) == (0, None)
        a.broker.node.running.retention.run()
        assert a.directories("t") == []


def test_a_topic_of_the_same_name_starts_afresh(tmp_path):
    with admin_on(tmp_path) as a:
        a.create("t", retention_ms="1000")
        assert a.produce("t", 5) == 0
        row = {"partitionIndex": 0, "offset": 3}
        a.call(21, 1, topics=[{"name": "t", "partitions": [row]}], timeoutMs=9000)
        assert "t 0 3" in (a.data / "log-start-offset-checkpoint").read_text()
        assert a.delete("t") == [0]
        for name in ("log-start-offset", "recovery-point-offset", "replication-offset"):
            assert "t 0" not in (a.data / f"{name}-checkpoint").read_text()
        a.create("t")
        assert (a.offset("t", -2), a.offset("t", -1)) == (0, 0)
        assert a.configs(2, "t", "retention.ms")["retention.ms"].value == "604800000"
        assert a.produce("t") == 0


def test_what_cannot_be_deleted(tmp_path):
    with admin_on(tmp_path, auto_create_topics_enable="false") as a:
        a.create("t")
        assert a.delete("absent") == [UNKNOWN_TOPIC]
        assert a.delete("t", "t") == [INVALID_REQUEST]
        assert a.names() == ["t"]

        def by(name, topic_id):
            topics = [{"name": name, "topicId": topic_id}]
            return a.call(20, 6, topics=topics, timeoutMs=9000).responses[0]

        told = a.call(3, 12, topics=[{"name": "t", "topicId": NO_ID}], allowAutoTopicCreation=False)
        shown = uuid_text(told.topics[0].topicId)
        assert by("t", shown).errorCode == INVALID_REQUEST
        assert by(None, NO_ID).errorCode == INVALID_REQUEST
        assert by(None, "AAECAwQFBgcICQoLDA0ODw").errorCode == UNKNOWN_ID
        both = [{"name": "t", "topicId": NO_ID}, {"name": None, "topicId": shown}]
        rows = a.call(20, 6, topics=both, timeoutMs=9000).responses
        assert [row.errorCode for row in rows] == [INVALID_REQUEST] * 2
        assert a.names() == ["t"]
        found = by(None, shown)
        assert (found.errorCode, found.name) == (0, "t")
        assert a.names() == []


@pytest.mark.parametrize(("version", "code"), [(2, INVALID_REQUEST), (5, DELETION_DISABLED)])
def test_delete_topic_enable(tmp_path, version, code):
    with admin_on(tmp_path, **{"delete.topic.enable": "false"}) as a:
        a.create("t")
        [row] = a.call(20, version, topicNames=["t"], timeoutMs=9000).responses
        assert row.errorCode == code and a.names() == ["t"]


def test_a_crash_after_the_marker_ends_in_deleted(tmp_path):
    with admin_on(tmp_path) as a:
        a.create("t", 2, retention_ms="1000")
        a.create("kept")
        a.produce("t", 4)
    tree = store(tmp_path)
    tree.create(znodes.delete_topic_path("t"))
    tree.close()
    with admin_on(tmp_path, auto_create_topics_enable="false") as a:
        assert a.names() == ["kept"]
        assert a.directories("t") == [], "neither served nor kept as a stray"
        a.create("t")
        assert a.offset("t", -1) == 0
    assert not any("delete_topics/" in path for path in nodes_about(tmp_path, "t"))


def test_a_crash_after_the_logs_left_ends_in_deleted(tmp_path, monkeypatch):
    with admin_on(tmp_path, auto_create_topics_enable="false") as a:
        a.create("t", 2)
        whole_multi = EmbeddedTree.multi

        def multi(tree, operations):
            if any(getattr(op, "path", "") == "/brokers/topics/t" for op in operations):
                raise StoreUnavailable("the disk is full")
            return whole_multi(tree, operations)

        monkeypatch.setattr(EmbeddedTree, "multi", multi)
        assert a.delete("t") == [STORAGE]
        assert all(name.endswith("-delete") for name in a.directories("t"))
        assert a.produce("t") != 0
    monkeypatch.undo()
    assert nodes_about(tmp_path, "t") != []
    with admin_on(tmp_path, auto_create_topics_enable="false") as a:
        assert a.names() == []
    assert nodes_about(tmp_path, "t") == []


def test_a_failed_deletion_can_be_asked_for_again(tmp_path, monkeypatch):
    with admin_on(tmp_path, auto_create_topics_enable="false") as a:
        a.create("t", 2)
        with monkeypatch.context() as patch:
            patch.setattr(
                "barnabas.controller.topic_deletion.TopicDeletion._remove",
                lambda *_: (_ for _ in ()).throw(StoreUnavailable("no")),
            )
            assert a.delete("t") == [STORAGE]
        assert a.delete("t") == [0]
        assert a.names() == []
        a.create("t")
        assert a.produce("t") == 0


def test_deleted_topics_are_logged_and_internal_ones_as_a_warning(tmp_path, caplog):
    with admin_on(tmp_path) as a, caplog.at_level(logging.INFO, "barnabas.controller"):
        a.create("t")
        a.call(10, 4, keyType=0, coordinatorKeys=["g"])
        assert "__consumer_offsets" in a.names()
        assert a.delete("t", "absent", "__consumer_offsets") == [0, UNKNOWN_TOPIC, 0]
    said = {row.getMessage(): row.levelname for row in caplog.records if "deleted" in row.msg}
    assert said == {
        "Topic t deleted, its records and settings with it": "INFO",
        "Topic __consumer_offsets deleted, its records and settings with it": "WARNING",
    }
