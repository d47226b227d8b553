"""A start goes through its stages, and can be undone after each of them."""

import uuid
from dataclasses import replace

import pytest
from testing.processes import held, left_since
from waiting import soon

import barnabas.node
from barnabas.config import BrokerConfig
from barnabas.controller.topics import NewTopic
from barnabas.node import CannotStart, Node, NotStarted
from barnabas.storage.log_dirs import UnusableDirectory
from barnabas.wire.uuids import uuid_text

STAGES = ("opened", "loaded", "bound", "serving", "running")
MAKERS = ("open_stores", "load_logs", "bind_listeners", "serve", "run_tasks")
LAST_STEPS = (
    "barnabas.stages.opened.ClusterStateReader",
    "barnabas.stages.loaded.wanted_logs",
    "barnabas.stages.bound._follow_listeners",
    "barnabas.stages.serving.advertised_versions",
    "barnabas.stages.running._add_tasks",
)


def new_node(tmp_path):
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    return Node(BrokerConfig(settings | {"metrics.port": "0"}))


def fail(*_, **__):
    raise UnusableDirectory("planted")


def check_undone(node, tmp_path, before, has_logs):
    soon(lambda: not left_since(before))  # the kernel forgets a joined thread a little later
    assert node.metrics.address is None
    assert (tmp_path / ".kafka_cleanshutdown").exists() is has_logs
    again = new_node(tmp_path)
    again.start()
    again.stop()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("at", range(len(MAKERS)))
def test_a_start_that_fails_between_stages_gives_everything_back(tmp_path, monkeypatch, at):
    before = held()
    node = new_node(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(CannotStart, match="planted"):
        patch.setattr(barnabas.node, MAKERS[at], fail)
        node.start()
    for name in STAGES[:at]:
        assert getattr(node, name)
    for name in STAGES[at:]:
        with pytest.raises(NotStarted):
            getattr(node, name)
    check_undone(node, tmp_path, before, has_logs=at >= 2)


@pytest.mark.parametrize("step", LAST_STEPS)
def test_a_start_that_fails_inside_a_stage_gives_everything_back(tmp_path, monkeypatch, step):
    before = held()
    node = new_node(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(CannotStart, match="planted"):
        patch.setattr(step, fail)
        node.start()
    check_undone(node, tmp_path, before, has_logs=LAST_STEPS.index(step) >= 2)


def test_a_stage_is_frozen_and_knows_the_one_before(tmp_path):
    node = new_node(tmp_path)
    node.start()
    try:
        later = None
        for name in reversed(STAGES):
            stage = getattr(node, name)
            assert later is None or later.before is stage
            with pytest.raises(AttributeError):
                stage.before = None
            later = stage
    finally:
        node.stop()


def test_a_step_of_a_stop_that_fails_does_not_keep_the_others_from_running(tmp_path):
    before = held()
    node = new_node(tmp_path)
    node.start()
    node._configured.undo.callback(fail)
    with pytest.raises(UnusableDirectory, match="planted"):
        node.stop()
    soon(lambda: not left_since(before))  # the kernel forgets a joined thread a little later
    node.stop()


def test_a_change_that_arrives_while_the_node_stops_is_not_applied(tmp_path):
    node = new_node(tmp_path)
    node.start()
    node.serving.administration.topics.create(NewTopic("t", partition_count=1))
    replicas, state = node.loaded.replicas, node.cluster()
    known = state.topics["t"]
    assignment = replace(known.assignment, topic_id=uuid_text(uuid.uuid4().bytes))
    late = replace(known, name="u", assignment=assignment)
    node.stop()
    replicas.apply(replace(state, topics={**state.topics, "u": late}))
    assert (tmp_path / "t-0").exists() and not (tmp_path / "u-0").exists()
