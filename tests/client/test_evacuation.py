"""Where the replicas of a drained broker go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.evacuation import NoOtherBroker, evacuated


def test_a_replica_goes_to_an_unused_rack_first_and_keeps_its_place():
    racks = {1: "a", 2: "a", 3: "b", 4: "c"}
    assert evacuated({("t", 0): (1, 3)}, 3, racks) == {("t", 0): (1, 4)}
    assert evacuated({("t", 0): (3, 1)}, 3, {1: "a", 2: "a", 3: "b"}) == {("t", 0): (2, 1)}


def test_replicas_are_spread_over_the_others():
    rows = {("t", index): (3,) for index in range(6)}
    found = evacuated(rows, 3, dict.fromkeys((1, 2, 3)))
    assert sorted(row[0] for row in found.values()) == [1, 1, 1, 2, 2, 2]


def test_a_partition_on_every_broker_has_nowhere_to_go():
    with pytest.raises(NoOtherBroker, match="t-0 has 2 replicas"):
        evacuated({("t", 0): (1, 2)}, 2, {1: None, 2: None})


@given(
    st.dictionaries(
        st.tuples(st.just("t"), st.integers(0, 50)),
        st.lists(st.integers(0, 6), unique=True, min_size=1, max_size=4).map(tuple),
    ),
    st.lists(st.sampled_from("abc"), min_size=7, max_size=7),
)
def test_only_the_drained_replica_changes(rows, names):
    racks = dict(enumerate(names))
    found = evacuated(rows, 0, racks)
    assert found.keys() == {place for place, row in rows.items() if 0 in row}
    for place, after in found.items():
        before = rows[place]
        assert 0 not in after and len(set(after)) == len(before)
        assert [a for a, b in zip(after, before, strict=True) if b != 0] == [b for b in before if b]
