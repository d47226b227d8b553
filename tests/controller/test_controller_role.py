"""Tests when a broker may write as the controller of a cluster."""

from types import SimpleNamespace

import pytest

from barnabas.controller.controller_role import ClusterRole
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import CheckVersion


@pytest.fixture
def tree(tmp_path):
    made = EmbeddedTree(tmp_path, clock_ms=lambda: 1)
    made.ensure_paths(znodes.PERSISTENT_PATHS)
    made.create(znodes.CONTROLLER_EPOCH_PATH, znodes.encode_controller_epoch(2))
    return made


def role(tree, known_id, known_epoch, elected_with):
    """Broker 1, the controller that it knows, and the epoch with which it was elected last."""
    state = ClusterState(controller_id=known_id, controller_epoch=known_epoch)
    reader, membership = SimpleNamespace(state=state), SimpleNamespace(epoch=elected_with)
    return ClusterRole(tree, reader, membership, 1)


def test_the_controller_checks_its_epoch(tree):
    assert role(tree, 1, 2, 2).fence() == (CheckVersion(znodes.CONTROLLER_EPOCH_PATH, 0),)


def test_a_controller_that_is_elected_again_waits_for_the_state_of_its_new_session(tree):
    """It has registered and was elected, and has not read the brokers since. One of them may have
    lost records in a restart that it does not know of (KIP-903)."""
    assert role(tree, 1, 1, 2).fence() is None


def test_a_former_controller_is_not_the_controller(tree):
    assert role(tree, 1, 1, 1).fence() is None
    assert role(tree, 2, 2, None).fence() is None
