"""Elections: each case is a partition, its brokers, and the state that the controller must write.

`brokers` maps ids to the commit that registered them; the states were written by commit 10.
"""

import random

import pytest
from controller.test_reassignments import Moved
from long_form import pick

from barnabas.config import BrokerConfig, DynamicConfig, TopicConfig
from barnabas.controller.elections import (
    Elections,
    after_failures,
    preferred,
    reassigned,
    with_replicas,
    without_leaving,
    without_restarted,
)
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import Broker, ClusterState, Partition
from barnabas.metadata.znodes import BrokerRegistration, PartitionState

WRITTEN = 10


def partition(leader, isr, replicas=(1, 2, 3)):
    state = PartitionState(leader, 5, tuple(isr), 1)
    return Partition(tuple(replicas), state, 0, WRITTEN)


def alive(**epochs):
    """`b1=3`: broker 1 was registered by commit 3."""
    return {
        int(name[1:]): Broker(int(name[1:]), BrokerRegistration((), 0), epoch)
        for name, epoch in epochs.items()
    }


def found(state):
    if state is None:
        return None
    assert state.leader_epoch == 6 and state.controller_epoch == 9
    return state.leader, state.isr


@pytest.mark.parametrize(
    ("leader", "isr", "brokers", "unclean", "wanted"),
    [
        (1, [1, 2, 3], alive(b1=1, b2=2, b3=3), False, None),
        # a follower, the leader, or both end
        (1, [1, 2, 3], alive(b1=1, b3=3), False, (1, (1, 3))),
        (1, [1, 2, 3], alive(b2=2, b3=3), False, (2, (2, 3))),
        (1, [1, 2, 3], alive(b3=3), False, (3, (3,))),
        # the assignment's order decides, not that of the ISR
        (1, [3, 1, 2], alive(b2=2, b3=3), False, (2, (3, 2))),
        # a broker outside the ISR ends, or is all that is left
        (1, [1, 2], alive(b1=1, b2=2), False, None),
        (1, [1, 2], alive(b3=3), False, (-1, (1, 2))),
        (1, [1, 2], alive(b3=3), True, (3, (3,))),
        # nobody is left; a partition without a leader waits
        (1, [1, 2], alive(), True, (-1, (1, 2))),
        (-1, [1, 2], alive(b3=3), False, None),
        (-1, [1, 2], alive(b2=20), False, (2, (2,))),
        # brokers that restarted after the state was written
        (1, [1, 2, 3], alive(b1=11, b2=2, b3=3), False, (2, (2, 3))),
        (1, [1, 2, 3], alive(b1=1, b2=11, b3=3), False, (1, (1, 3))),
        (1, [1, 2, 3], alive(b1=11, b2=12, b3=13), False, (1, (1,))),
        (2, [2], alive(b1=1, b2=11, b3=3), True, (2, (2,))),
    ],
)
def test_after_failures(leader, isr, brokers, unclean, wanted):
    assert found(after_failures(partition(leader, isr), brokers, 9, unclean)) == wanted


def test_no_decision_keeps_a_broker_that_has_restarted():
    """Broker 1 leads, has restarted, and may have lost records."""
    cluster = ClusterState(brokers=alive(b1=11, b2=2, b3=3, b4=4), is_shared=True)
    known = without_restarted(partition(1, [1, 2, 3]), cluster)
    assert found(with_replicas(known, (1, 2, 3, 4), cluster.brokers, 9)) == (2, (2, 3))
    assert found(without_leaving(known, {1, 3}, {2}, 9)) == (-1, (3,))
    assert preferred(known, {1, 2, 3}, 9) is None
    assert reassigned(known, (1, 2), cluster.brokers, 9) is None
    assert found(reassigned(known, (3, 2), cluster.brokers, 9)) == (3, (2, 3))
    alone = ClusterState(brokers=alive(b1=11), is_shared=False)
    assert without_restarted(partition(1, [1]), alone) == partition(1, [1])


def test_a_partition_without_a_state_is_left_alone():
    bare = Partition((1, 2))
    assert after_failures(bare, alive(b1=1), 9, True) is None
    assert preferred(bare, {1}, 9) is None
    assert without_leaving(bare, {1}, {1}, 9) is None


@pytest.mark.parametrize(
    ("leader", "isr", "brokers", "wanted"),
    [
        (2, [1, 2], {1, 2, 3}, (1, (1, 2))),
        (1, [1, 2], {1, 2, 3}, None),
        (2, [2, 3], {1, 2, 3}, None),  # not in the ISR
        (2, [1, 2], {2, 3}, None),  # not alive
    ],
)
def test_preferred(leader, isr, brokers, wanted):
    assert found(preferred(partition(leader, isr), brokers, 9)) == wanted


@pytest.mark.parametrize(
    ("leader", "isr", "leaving", "wanted"),
    [
        (1, [1, 2, 3], {1}, (2, (2, 3))),
        (1, [1, 2, 3], {2}, (1, (1, 3))),
        (1, [1, 2, 3], {1, 2}, (3, (3,))),
        (1, [1], {1}, None),  # no other can lead
        (1, [1, 3], {2}, None),
    ],
)
def test_without_leaving(leader, isr, leaving, wanted):
    assert found(without_leaving(partition(leader, isr), {1, 2, 3}, leaving, 9)) == wanted


@pytest.mark.parametrize(
    ("of_broker", "of_topic", "is_elected"),
    [
        ("false", None, False),
        ("true", None, True),
        ("false", "true", True),
        ("true", "false", False),
    ],
)
def test_unclean_elections_are_allowed_by_broker_and_topic_and_counted(
    tmp_path, of_broker, of_topic, is_elected
):
    setting = "unclean.leader.election.enable"
    made = Moved(tmp_path)
    dynamic = DynamicConfig(BrokerConfig({setting: of_broker}))
    overrides = {} if of_topic is None else {setting: of_topic}
    elections = Elections(made.tree, made.reader, lambda _topic: TopicConfig(overrides, dynamic))
    elections.run(())
    assert made.state()[0] == 1 and elections.unclean_count == 0
    before = PartitionState(1, 5, (1,), 1)
    made.tree.set(znodes.partition_state_path("t", 0), before.encode())
    made.tree.delete(znodes.broker_path(1))
    made.reader.load()
    elections.run(())
    assert made.state()[0] == (2 if is_elected else -1)
    assert elections.unclean_count == is_elected
    elections.run(())
    assert elections.unclean_count == is_elected
    made.tree.close()


def test_a_broker_whose_log_has_failed_counts_as_dead_for_that_partition(tmp_path):
    """KIP-112: for that partition only, and until its log can be used again."""
    made = Moved(tmp_path, partitions=2)
    config = TopicConfig({}, DynamicConfig(BrokerConfig({})))
    elections = Elections(made.tree, made.reader, lambda _topic: config)

    def states():
        return [made.state(index)[:2] for index in range(2)]

    elections.run(())
    assert states() == [(1, (1, 2)), (1, (1, 2))]
    elections.set_offline({("t", 1): frozenset({1})})
    elections.run(())
    assert states() == [(1, (1, 2)), (2, (2,))]
    elections.set_offline({("t", 1): frozenset({1, 2})})
    elections.run(())
    assert states() == [(1, (1, 2)), (-1, (2,))]
    assert elections.elect_any((), [("t", 1)])["t", 1] is not None
    elections.set_offline({("t", 1): frozenset({2})})
    assert elections.elect_any((), [("t", 1)])["t", 1] is None
    assert states() == [(1, (1, 2)), (1, (1,))]
    made.tree.close()


PARTITIONS = 40


@pytest.fixture
def led_by_1(tmp_path):
    """A topic with many partitions in a cluster, the elections, and the paths that they read."""
    made = Moved(tmp_path, PARTITIONS)
    made.tree.is_shared = True
    dynamic = DynamicConfig(BrokerConfig({}))
    made.elections = Elections(made.tree, made.reader, lambda _topic: TopicConfig({}, dynamic))
    made.read = []

    def noting(call):
        return lambda path, *rest: made.read.append(path) or call(path, *rest)

    for name in ("get", "exists", "children", "subtree"):
        setattr(made.tree, name, noting(getattr(made.tree, name)))
    yield made
    made.tree.close()


def states(made):
    return [
        (row.state.leader, row.state.isr)
        for row in made.reader.state.topic("t").partitions.values()
    ]


def test_what_an_election_writes_is_known_without_reading_it(led_by_1):
    """All brokers read all partitions of the topics while their leaders changed: with 1,000
    partitions that took longer than all else."""
    made = led_by_1
    assert made.elections.leave((), 1) == []
    assert made.read == []
    assert states(made) == [(2, (2,))] * PARTITIONS
    assert made.tree.children(znodes.ISR_CHANGES_PATH) == []
    for index, partition in made.reader.state.topic("t").partitions.items():
        stat = made.tree.exists(znodes.partition_state_path("t", index))
        assert (partition.state_version, partition.state_zxid) == (stat.version, stat.mzxid)
    made.reader.load()
    assert states(made) == [(2, (2,))] * PARTITIONS


def test_an_election_that_another_writer_overtook_decides_again(led_by_1):
    made = led_by_1
    path = znodes.partition_state_path("t", 7)
    made.tree.set(path, PartitionState(1, 9, (1,), 1).encode())
    assert made.elections.leave((), 1) == [("t", 7)]
    assert len(made.read) == PARTITIONS  # once, after the refused multi
    wanted = [(2, (2,))] * PARTITIONS
    wanted[7] = (1, (1,))
    assert states(made) == wanted


def test_a_failure_costs_the_partitions_of_its_broker_only(led_by_1, monkeypatch):
    made, judged = led_by_1, []
    made.elections.run(())

    def noting(partition, *rest):
        judged.append(partition)
        return after_failures(partition, *rest)

    monkeypatch.setattr("barnabas.controller.elections.after_failures", noting)
    path = znodes.partition_state_path("t", 7)
    made.tree.set(path, PartitionState(2, 6, (2,), 1).encode())
    made.reader.refresh_partitions([("t", 7)])
    made.tree.delete(znodes.broker_path(5))
    made.reader.refresh_brokers()
    made.elections.run(())
    assert judged == [made.reader.state.partition("t", 7)]
    made.tree.delete(znodes.broker_path(1))
    made.reader.refresh_brokers()
    made.elections.run(())
    assert states(made) == [(2, (2,))] * PARTITIONS


def test_a_partition_without_a_leader_is_judged_when_any_broker_ends(tmp_path):
    """Its configuration may allow an unclean election by now."""
    made, overrides = Moved(tmp_path), {}
    dynamic = DynamicConfig(BrokerConfig({}))
    elections = Elections(made.tree, made.reader, lambda _topic: TopicConfig(overrides, dynamic))
    made.in_isr(1)
    made.tree.delete(znodes.broker_path(1))
    made.reader.refresh_brokers()
    elections.run(())
    assert made.state()[0] == -1
    overrides["unclean.leader.election.enable"] = "true"
    made.tree.delete(znodes.broker_path(5))
    made.reader.refresh_brokers()
    elections.run(())
    assert made.state()[0] == 2
    made.tree.close()


STEPS = 12


@pytest.mark.parametrize("seed", range(pick(short=6, long=200)))
def test_no_partition_is_left_without_an_election_that_it_needs(tmp_path, seed):
    """Brokers end, restart and join; states change; logs fail. Elections that judge only what is
    new leave nothing to those that judge all."""
    chance, made = random.Random(seed), Moved(tmp_path, partitions=6)
    made.tree.is_shared = True
    config = TopicConfig({}, DynamicConfig(BrokerConfig({})))
    elections = Elections(made.tree, made.reader, lambda _topic: config)
    registration = made.tree.get(znodes.broker_path(1))[0]
    for _step in range(STEPS):
        for broker_id in chance.sample(range(1, 6), chance.choice([0, 1, 1, 2])):
            path = znodes.broker_path(broker_id)
            if made.tree.exists(path):
                made.tree.delete(path)
            if chance.random() < 0.6:
                made.tree.create(path, registration, ephemeral=True)
            if chance.random() < 0.5:
                made.reader.refresh_brokers()
        made.reader.refresh_brokers()
        places = [("t", chance.randrange(6)) for _ in range(chance.choice([0, 1, 3]))]
        for name, index in places:
            path = znodes.partition_state_path(name, index)
            isr = tuple(chance.sample([1, 2, 3], chance.randint(1, 2)))
            before = PartitionState.decode(made.tree.get(path)[0])
            now = PartitionState(isr[0], before.leader_epoch + 1, isr, 1)
            made.tree.set(path, now.encode())
        made.reader.refresh_partitions(places)
        offline = {}
        if chance.random() < 0.2:
            offline = {("t", chance.randrange(6)): frozenset({chance.choice([1, 2])})}
        elections.set_offline(offline)
        elections.run(())
        found = made.reader.state
        of_all = Elections(made.tree, made.reader, lambda _topic: config)
        of_all.set_offline(offline)
        of_all.run(())
        assert made.reader.state is found, seed  # nothing was written
    made.tree.close()
