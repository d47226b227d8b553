"""A leader flushes its log before the ISR becomes small, and resigns when it cannot write. It adds
only replicas of the present assignment."""

import pytest
from simulation.zookeeper_model import Server, Session

from barnabas.cext.log.log_handle import LogError
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.tree import CreateNode, SetData
from barnabas.metadata.znodes import BrokerRegistration, Endpoint, PartitionState, TopicAssignment
from barnabas.server.isr import IsrChanges

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
STATE_PATH = znodes.partition_state_path("t", 0)
FEATURES = {"group.version": (0, 1)}
OWN, END = 1, 40


class OneLog:
    """The log of t-0, as its leader has it, and the table that holds it."""

    def __init__(self, tree, leaving=(), coming=()):
        self.log, self._tree, self._leaving, self._coming = self, tree, leaving, coming
        self.end_offset, self.flushed_offset, self.fails = END, 0, False
        self.offline = False
        self.isr_at_flush = ()

    def flush(self):
        if self.fails:
            raise LogError(56, "no such device")
        self.flushed_offset = self.end_offset
        self.isr_at_flush = state(self._tree).isr

    def partition(self, _topic, _index):
        return self

    def lagging(self):
        return [("t", 0, list(self._leaving))]

    def caught_up(self):
        return [("t", 0, list(self._coming))]

    def set_isr(self, *_place, **_more):
        return True


def state(tree):
    return PartitionState.decode(tree.get(STATE_PATH)[0])


@pytest.fixture
def tree():
    made = Session(Server(lambda: 1_700_000_000_000))
    made.ensure_paths([znodes.BROKER_IDS_PATH, znodes.ISR_CHANGES_PATH, znodes.CONFIG_CHANGES_PATH])
    made.ensure_paths([znodes.DELETE_TOPICS_PATH, f"{znodes.TOPICS_PATH}/t/partitions/0"])
    for broker_id in (1, 2, 3):
        register(made, broker_id, FEATURES)
    made.multi(
        [SetData(znodes.topic_path("t"), TopicAssignment({0: (1, 2, 3)}, TOPIC_ID).encode())]
    )
    made.multi([CreateNode(STATE_PATH, PartitionState(OWN, 5, (1, 2, 3), 1).encode())])
    return made


def register(tree, broker_id, features):
    endpoint = Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT")
    data = BrokerRegistration((endpoint,), 0, features=features).encode()
    tree.multi([CreateNode(znodes.broker_path(broker_id), data)])


def changes(tree, table, isr_size_min=2):
    """`isr_size_min` None: log.durability=fsync."""
    given = None if isr_size_min is None else lambda _topic: isr_size_min
    return IsrChanges(table, tree, ClusterStateReader(tree), OWN, given)


@pytest.mark.parametrize("leaving", [(2, 3), (2,)])
@pytest.mark.parametrize("isr_size_min", [1, 2, 3])
def test_the_log_is_flushed_before_the_isr_becomes_small(tree, leaving, isr_size_min):
    table = OneLog(tree, leaving)
    changes(tree, table, isr_size_min).shrink()
    left = 3 - len(leaving)
    assert len(state(tree).isr) == left
    is_small = left < max(isr_size_min, 2)
    assert table.flushed_offset == (END if is_small else 0)
    assert table.isr_at_flush == ((1, 2, 3) if is_small else ())


def test_the_isr_stays_when_the_log_cannot_be_flushed(tree):
    table = OneLog(tree, (2, 3))
    table.fails = True
    changes(tree, table).shrink()
    assert state(tree).isr == (1, 2, 3)


def test_no_flush_where_acknowledged_records_are_on_disk_anyway(tree):
    table = OneLog(tree, (2, 3))
    changes(tree, table, isr_size_min=None).shrink()
    assert state(tree).isr == (1,) and table.flushed_offset == 0


@pytest.mark.parametrize("leader", [1, 2])
def test_the_leader_flushes_when_another_one_has_made_the_isr_small(tree, leader):
    table = OneLog(tree)
    small = changes(tree, table)
    small.flush_small()
    assert table.flushed_offset == 0
    tree.multi([SetData(STATE_PATH, PartitionState(leader, 6, (leader,), 1).encode())])
    small._reader.refresh_topics(["t"])
    small.flush_small()
    assert table.flushed_offset == (END if leader == OWN else 0)


def test_a_leader_that_cannot_write_leaves_the_partition_to_the_rest_of_the_isr(tree):
    resigning = changes(tree, OneLog(tree))
    resigning.resign([("t", 0)])
    assert state(tree) == PartitionState(-1, 6, (2, 3), 1)
    resigning.resign([("t", 0)])
    assert state(tree) == PartitionState(-1, 6, (2, 3), 1)


def test_it_stays_when_no_other_member_of_the_isr_is_alive(tree):
    for broker_id in (2, 3):
        tree.delete(znodes.broker_path(broker_id))
    changes(tree, OneLog(tree)).resign([("t", 0)])
    assert state(tree) == PartitionState(OWN, 5, (1, 2, 3), 1)


def test_it_stays_with_an_offline_log_which_is_reported(tree):
    table = OneLog(tree)
    table.offline = True
    changes(tree, table).resign([("t", 0)])
    assert state(tree) == PartitionState(OWN, 5, (1, 2, 3), 1)


def test_it_stays_beside_a_kafka_broker(tree):
    """Which would elect nobody, if it were the controller."""
    register(tree, 4, {})
    changes(tree, OneLog(tree)).resign([("t", 0)])
    assert state(tree) == PartitionState(OWN, 5, (1, 2, 3), 1)


def test_a_caught_up_follower_is_added(tree):
    tree.multi([SetData(STATE_PATH, PartitionState(OWN, 6, (1, 2), 1).encode())])
    changes(tree, OneLog(tree, coming=(3,))).grow()
    assert state(tree) == PartitionState(OWN, 6, (1, 2, 3), 1)


def test_a_leader_with_the_replicas_before_a_move_adds_none_of_them(tree):
    """A note of another change made it read the state that the end of the move has written, and
    the watch of the assignment has not fired yet. The former replica would stay in the ISR."""
    growing = changes(tree, OneLog(tree, coming=(3,)))
    tree.multi([
        SetData(STATE_PATH, PartitionState(OWN, 6, (1, 2), 1).encode()),
        SetData(znodes.topic_path("t"), TopicAssignment({0: (1, 2)}, TOPIC_ID).encode()),
    ])  # fmt: skip
    growing._reader.refresh_partitions([("t", 0)])
    growing.grow()
    assert state(tree) == PartitionState(OWN, 6, (1, 2), 1)
