"""A partition that moves to another broker while this one starts."""

from dataclasses import replace

import pytest
from waiting import soon

import barnabas.node
from barnabas import Broker
from barnabas.config import BrokerConfig
from barnabas.controller.topics import NewTopic
from barnabas.metadata.znodes import TopicAssignment, topic_path
from barnabas.node import Node


@pytest.fixture
def settings(tmp_path):
    return {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}


def test_its_log_is_deleted_though_it_was_loaded(tmp_path, settings, monkeypatch):
    with Broker(settings) as broker:
        broker.node.serving.administration.topics.create(NewTopic("t", partition_count=2))
    whole = barnabas.node.bind_listeners

    def bind_listeners(loaded):
        assert {row.partition for row in loaded.logs.logs()} == {0, 1}
        tree, reader, path = loaded.before.tree, loaded.before.reader, topic_path("t")
        assignment = TopicAssignment.decode(tree.get(path)[0])
        here = assignment.partitions[1]
        moved = replace(assignment, partitions={0: (here[0] + 1,), 1: here})
        tree.set(path, moved.encode())
        soon(lambda: reader.state.topics["t"].partitions[0].replicas == (here[0] + 1,))
        return whole(loaded)

    monkeypatch.setattr(barnabas.node, "bind_listeners", bind_listeners)
    node = Node(BrokerConfig(settings))
    node.start()
    try:
        assert (tmp_path / "t-1").exists() and not (tmp_path / "t-0").exists()
    finally:
        node.stop()
