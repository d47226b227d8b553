"""A group's cost grows with its members, not with their square."""

import time

import pytest
from oracle.group_rig import Client, Rig, settle

pytestmark = pytest.mark.alone(
    reason="compares CPU seconds, which a busy neighbour's use of the caches changes"
)


def seconds_of(count):
    rig = Rig(initial_delay_ms=50, members_max=10_000)
    made = [Client(rig, f"c{at}") for at in range(count)]
    began = time.process_time()
    for client in made:
        client.join()
    for client in made:
        client.join()
    rig.timers.advance(200)
    settle(*made)
    assert rig.group.generation == 1 and len(rig.group.members) == count
    return time.process_time() - began


def test_ten_times_the_members_cost_not_much_more_than_ten_times_the_time():
    seconds_of(50)
    few = min(seconds_of(200) for _ in range(3))
    many = min(seconds_of(2000) for _ in range(2))  # the better of two: others use the caches, too
    assert many < 30 * few
    assert many < 5


def test_counts_are_those_of_the_members():
    rig = Rig()
    made = [Client(rig, f"c{at}", protocols=("range", f"own-{at}")) for at in range(4)]
    settle(*made)
    made[0].leave()
    settle(*made[1:])
    group = rig.group
    assert group.joined_count == 0
    assert group.protocol_counts == {"range": 3, "own-1": 1, "own-2": 1, "own-3": 1}
