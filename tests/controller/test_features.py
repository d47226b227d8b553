"""Levels of features: supported ones, finalized ones, and that they survive a restart."""

import itertools
import json
import time

import pytest
from waiting import soon

from barnabas.controller.features import (
    FEATURES,
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    Feature,
    Features,
    FeatureUpdate,
    registered_features,
)
from barnabas.errors import InvalidUpdateVersion
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import Broker, ClusterState
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.znodes import BrokerRegistration, Endpoint, FeatureLevels

KNOWN = (
    Feature("metadata.version", 7, 30, unfinalized=30),
    Feature("group.version", 0, 2, unfinalized=2),
)


@pytest.fixture
def tree(tmp_path):
    tree = EmbeddedTree(tmp_path, clock_ms=lambda: 1)
    yield tree
    tree.close()


def features_on(tree):
    return Features(tree, node_id=1, features=KNOWN)


def test_the_levels_of_the_table_count_until_others_are_finalized(tree):
    features = features_on(tree)
    assert features.finalized() == {"metadata.version": 30, "group.version": 2}
    assert features.epoch == 0
    assert features.level("share.version") == 0


def test_a_level_stays_and_each_change_raises_the_epoch(tree):
    features = features_on(tree)
    features.update([FeatureUpdate("group.version", 1, SAFE_DOWNGRADE)])
    assert (features.level("group.version"), features.epoch) == (1, 1)
    features.update([FeatureUpdate("group.version", 0, UNSAFE_DOWNGRADE)])
    assert features.finalized() == {"metadata.version": 30}
    again = features_on(tree)
    assert (again.level("group.version"), again.epoch) == (0, 2)
    again.update([FeatureUpdate("group.version", 2, UPGRADE)])
    assert (again.level("group.version"), again.epoch) == (2, 3)


def test_a_level_finalized_before_an_upgrade_stays_until_it_is_raised(tree):
    former = Features(tree, node_id=1, features=(Feature("group.version", 0, 1, 1),))
    former.update([FeatureUpdate("group.version", 1, UPGRADE)])  # the level that it has already
    upgraded = features_on(tree)
    upgraded.apply(state(b1=2, b2=2))
    assert upgraded.level("group.version") == 1
    upgraded.update([FeatureUpdate("group.version", 2, UPGRADE)])
    assert upgraded.level("group.version") == 2


def test_a_level_that_is_new_in_a_release_takes_effect_when_it_is_finalized(tree):
    """Also when all brokers of a cluster support it, so that they can go back to the release
    before; a broker of that release ends the level again."""
    upgraded = Features(tree, node_id=1, features=(Feature("group.version", 0, 2, unfinalized=1),))
    upgraded.apply(state(b1=2, b2=2))
    assert upgraded.level("group.version") == 1
    with pytest.raises(InvalidUpdateVersion, match="incompatible"):
        upgraded.apply(state(b1=2, b2=1))
        upgraded.update([FeatureUpdate("group.version", 2, UPGRADE)])
    upgraded.apply(state(b1=2, b2=2))
    upgraded.update([FeatureUpdate("group.version", 2, UPGRADE)])
    assert upgraded.level("group.version") == 2
    upgraded.apply(state(b1=2, b2=1))
    assert upgraded.level("group.version") == 1


def test_no_release_raises_the_levels_that_count_without_a_finalized_one():
    """A raise would take effect in a cluster whose administrator has finalized nothing, and the
    release before could not read what is then written."""
    assert {feature.name: feature.unfinalized for feature in FEATURES} == {
        "metadata.version": 30,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,  # new; a release without it skips the records of streams groups
        "transaction.version": 2,
    }


def test_another_nodes_change_is_seen(tree):
    features = features_on(tree)
    other = features_on(tree)
    for level in (1, 0):
        other.update([FeatureUpdate("group.version", level, SAFE_DOWNGRADE)])
        deadline = time.monotonic() + 10
        while features.level("group.version") != level:
            assert time.monotonic() < deadline
            time.sleep(0.002)


@pytest.mark.parametrize(
    ("name", "level", "kind", "said"),
    [
        ("group.version", 3, UPGRADE, "controller 1 only supports versions 0-2"),
        ("group.version", -1, UPGRADE, "cannot be less than 0"),
        ("group.version", 1, UPGRADE, "Can't downgrade"),
        ("group.version", 2, 0, "does not support the given upgrade type"),
        ("group.version", 2, 4, "does not support the given upgrade type"),
        ("metadata.version", 6, SAFE_DOWNGRADE, "only supports versions 7-30"),
        ("no.version", 1, UPGRADE, "controller 1 does not support this feature"),
    ],
)
def test_refusals_change_nothing(tree, name, level, kind, said):
    features = features_on(tree)
    good = FeatureUpdate("group.version", 1, SAFE_DOWNGRADE)
    with pytest.raises(InvalidUpdateVersion, match=f"feature {name}\\. .*{said}"):
        features.update([good, FeatureUpdate(name, level, kind)])
    assert features.finalized() == {"metadata.version": 30, "group.version": 2}
    features.update([good], validate_only=True)
    assert features.level("group.version") == 2
    assert tree.exists(znodes.FEATURES_PATH) is None


def test_a_level_beyond_this_build_counts_as_its_last(tree, caplog):
    tree.create(
        znodes.FEATURES_PATH, znodes.encode_features(FeatureLevels({"group.version": 9, "x": 1}))
    )
    assert features_on(tree).finalized() == {"metadata.version": 30, "group.version": 2}
    assert "group.version has level 9" in caplog.text


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":2,"features":{"group.version":7}}'])
def test_a_node_that_cannot_be_read_is_said_and_left_out(tree, caplog, data):
    tree.create(znodes.FEATURES_PATH, data)
    features = features_on(tree)
    assert features.level("group.version") == 2
    assert "ignoring /feature" in caplog.text
    features.update([FeatureUpdate("group.version", 1, SAFE_DOWNGRADE)])
    assert features_on(tree).level("group.version") == 1


def test_the_node_is_kafkas():
    data = znodes.encode_features(FeatureLevels({"group.version": 1}))
    assert data == b'{"version":2,"status":1,"features":{"group.version":{"max_version_level":1}}}'
    old = b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    assert znodes.decode_features(data) == ({"group.version": 1}, False)
    assert znodes.decode_features(old) == ({"f": 3}, False)


def test_the_table_is_sound():
    assert len({feature.name for feature in FEATURES}) == len(FEATURES)
    for row in FEATURES:
        assert 0 <= row.version_min <= row.unfinalized <= row.version_max > 0


def state(**features_by_broker):
    """Brokers with the levels of group.version that they support; None: Apache Kafka."""
    address = Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT")
    brokers = {}
    for name, level in features_by_broker.items():
        features = {} if level is None else {"group.version": (1, level)}
        broker_id = int(name[1:])
        version = 5 if level is not None else 4
        registration = BrokerRegistration((address,), 0, features=features, version=version)
        brokers[broker_id] = Broker(broker_id, registration, 100 + broker_id)
    return ClusterState(brokers=brokers, is_shared=True)


def test_no_level_is_higher_than_every_registered_broker_supports(tree, caplog):
    tree.create(znodes.FEATURES_PATH, znodes.NO_FEATURES)
    features = features_on(tree)
    heard = []
    features.on_change.append(lambda: heard.append(features.level("group.version")))
    features.apply(state(b1=2))
    epoch = features.epoch
    assert features.level("group.version") == 2
    features.apply(state(b1=2, b2=1))
    assert features.level("group.version") == 1
    features.apply(state(b1=2, b2=1, b7=None))
    assert features.finalized() == {"metadata.version": 30}
    assert "group.version: at level 0 while broker 7 is registered" in caplog.text
    assert "broker 7 runs with an inter.broker.protocol.version below 2.8" in caplog.text
    refused = r"brokers were found to have incompatible versions"
    with pytest.raises(InvalidUpdateVersion, match=refused):
        features.update([FeatureUpdate("group.version", 1, UPGRADE)])
    assert [level for level, _ in itertools.groupby(heard)] == [2, 1, 0]
    soon(lambda: features.epoch >= epoch + 2)  # clients take levels of a later epoch only


def test_levels_stay_at_0_after_a_broker_of_kafka_has_left(tree, caplog):
    """Else transactions would be stored in a version that Kafka 2.8, when it comes back, cannot
    load."""
    tree.create(znodes.FEATURES_PATH, znodes.NO_FEATURES)
    features, other = features_on(tree), features_on(tree)
    for one in (features, other):
        one.apply(state(b1=2, b7=None))
    soon(lambda: tree.get(znodes.FEATURES_PATH)[0] != znodes.NO_FEATURES)
    data = tree.get(znodes.FEATURES_PATH)[0]
    assert json.loads(data) == {**json.loads(znodes.NO_FEATURES), "barnabas_held": True}
    soon(lambda: features.level("group.version") == 0)
    features.apply(state(b1=2))
    assert features.finalized() == {"metadata.version": 30}
    assert "still at level 0" in caplog.text and "cluster features group.version=2" in caplog.text
    again = features_on(tree)
    again.apply(state(b1=2))
    assert again.finalized() == {"metadata.version": 30}
    again.update([FeatureUpdate("group.version", 1, UPGRADE)])
    soon(lambda: features.level("group.version") == 1)
    assert znodes.decode_features(tree.get(znodes.FEATURES_PATH)[0]) == ({"group.version": 1}, True)


def test_another_writer_of_the_node_does_not_lift_the_hold(tree):
    """A controller of Kafka 3.9 writes the node without fields that it does not know."""
    tree.create(znodes.FEATURES_PATH, znodes.NO_FEATURES)
    features = features_on(tree)
    features.apply(state(b1=2, b7=None))
    soon(lambda: b"held" in tree.get(znodes.FEATURES_PATH)[0])
    tree.set(znodes.FEATURES_PATH, znodes.encode_features(FeatureLevels({})))
    soon(lambda: b"held" in tree.get(znodes.FEATURES_PATH)[0])
    assert b'"version":2' in tree.get(znodes.FEATURES_PATH)[0]


def test_kafka_2_8_can_read_what_a_broker_registers():
    """It refuses a range that begins at 0."""
    registered = registered_features()
    assert registered["group.version"] == (1, 1) and "metadata.version" not in registered
    assert all(low >= 1 and high >= low for low, high in registered.values())
