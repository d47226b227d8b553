"""The high watermarks that the lag of a share group is counted from, while leaders move."""

from types import SimpleNamespace

import pytest
from share.moved_timers import MovedTimers

from barnabas.coordinator.share.partition_ends import TRIES, PartitionEnds
from barnabas.errors import NotLeaderOrFollower, UnknownServerError

END = 7


class Replicas:
    """Gives the outcomes one after the other, then the partition."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.count = 0

    def partition(self, _topic, _index):
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return SimpleNamespace(high_watermark=END)


def found_by(replicas, timers, connect):
    cluster = SimpleNamespace(brokers={}, partition=lambda topic, index: None)
    ends = PartitionEnds(replicas, lambda: cluster, connect, timers)
    found = []
    ends.find("t", 0, lambda *outcome: found.append(outcome))
    timers.run(60_000)
    ends.stop()
    return found


def no_connection(_broker_id):
    pytest.fail("no broker is asked")


def test_a_leader_that_has_not_heard_of_it_is_asked_again():
    replicas = Replicas(NotLeaderOrFollower(), NotLeaderOrFollower())
    assert found_by(replicas, MovedTimers(), no_connection) == [(None, END)]
    assert replicas.count == 3


def test_it_gives_up():
    replicas = Replicas(*[NotLeaderOrFollower() for _ in range(100)])
    [(error, end)] = found_by(replicas, MovedTimers(), no_connection)
    assert isinstance(error, NotLeaderOrFollower) and end == -1
    assert replicas.count == TRIES


@pytest.mark.parametrize(
    "connect, error", [(no_connection, UnknownServerError()), (None, NotLeaderOrFollower())]
)
def test_other_errors_and_those_of_a_single_node_are_told_at_once(connect, error):
    replicas = Replicas(error)
    assert found_by(replicas, MovedTimers(), connect) == [(error, -1)]
    assert replicas.count == 1
