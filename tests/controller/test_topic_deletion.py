"""Deletions of topics on a real tree, while another controller does the same."""

import pytest

from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import BadVersion, CheckVersion
from barnabas.metadata.znodes import TopicAssignment

FIRST_ID, SECOND_ID = "AAAAAAAAQAEAAAAAAAAAAQ", "AAAAAAAAQAEAAAAAAAAAAg"
PATH, MARK = znodes.topic_path("t"), znodes.delete_topic_path("t")


class Role:
    """The controller with epoch 1, or a broker that is not the controller."""

    def __init__(self, is_controller):
        self.is_controller = is_controller

    def fence(self):
        return (CheckVersion(znodes.CONTROLLER_EPOCH_PATH, 0),) if self.is_controller else None


class Deleting:
    """A topic, and its deletion by one broker. `meanwhile` runs before it deletes the znodes."""

    def __init__(self, folder, is_controller=True):
        self.tree = EmbeddedTree(folder, clock_ms=lambda: 1)
        self.tree.ensure_paths(znodes.PERSISTENT_PATHS)
        self.tree.create(znodes.CONTROLLER_EPOCH_PATH, znodes.encode_controller_epoch(1))
        self.create(FIRST_ID)
        reader = ClusterStateReader(self.tree)
        self.meanwhile = lambda: None
        self.deletion = TopicDeletion(
            self.tree, reader, Role(is_controller), lambda: self.meanwhile()
        )

    def create(self, topic_id):
        self.tree.create(PATH, TopicAssignment({0: (1,)}, topic_id).encode())

    def deleted_by_another(self):
        self.tree.delete(PATH)
        self.tree.delete(MARK)

    def topic_id(self):
        return TopicAssignment.decode(self.tree.get(PATH)[0]).topic_id


def test_a_topic_that_was_created_again_is_not_deleted_with_the_earlier_one(tmp_path):
    """Another controller has finished the deletion, and a client has created the topic again."""
    deleting = Deleting(tmp_path)

    def meanwhile():
        deleting.deleted_by_another()
        deleting.create(SECOND_ID)

    deleting.meanwhile = meanwhile
    assert deleting.deletion.delete(["t"]) == {}
    assert deleting.topic_id() == SECOND_ID


def test_a_former_controller_deletes_no_znode(tmp_path):
    deleting = Deleting(tmp_path)
    epoch = znodes.encode_controller_epoch(2)
    deleting.meanwhile = lambda: deleting.tree.set(znodes.CONTROLLER_EPOCH_PATH, epoch)
    with pytest.raises(BadVersion):
        deleting.deletion.delete(["t"])
    assert deleting.topic_id() == FIRST_ID


def test_a_broker_that_starts_and_is_not_the_controller_finishes_no_deletion(tmp_path):
    deleting = Deleting(tmp_path, is_controller=False)
    assert deleting.deletion.delete(["t"]) == {}
    deleting.deletion._reader.refresh_topics(["t"])
    assert deleting.deletion.finish() == []
    assert deleting.topic_id() == FIRST_ID and deleting.tree.exists(MARK) is not None


def test_the_controller_finishes_a_deletion_that_was_only_marked(tmp_path):
    deleting = Deleting(tmp_path)
    deleting.tree.create(MARK)
    assert deleting.deletion.finish() == []  # it has not read the mark yet
    deleting.deletion._reader.refresh_topics(["t"])
    assert deleting.deletion.finish() == ["t"]
    assert deleting.tree.exists(PATH) is None and deleting.tree.exists(MARK) is None
