"""The built-in assignors: fair shares, each partition exactly once, and few moves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.hooks import GroupMemberView, GroupTopicView, GroupView
from barnabas.hooks.registry import Registry
from barnabas.plugins.assignor_range import AssignorRange
from barnabas.plugins.assignor_uniform import AssignorUniform

REGISTRY = Registry()
REGISTRY.register(AssignorRange(), "assignor_range")
REGISTRY.register(AssignorUniform(), "assignor_uniform")


def view(topics, members):
    """Topics with their numbers of partitions; members with (topics, owned partitions,
    instance)."""
    rows = {}
    for name, (wanted, had, instance) in members.items():
        assigned = {t: frozenset(p) for t, p in had.items() if p}
        rows[name] = GroupMemberView(name, instance, None, frozenset(wanted), assigned)
    there = {name: GroupTopicView(name.decode(), count, ()) for name, count in topics.items()}
    return GroupView("g", rows, there)


def assign(name, group):
    told = REGISTRY.assign_partitions(name, group)
    return {m: {t: set(p) for t, p in rows.items() if len(p)} for m, rows in told.items()}


def flat(told):
    return [(t, p) for rows in told.values() for t, partitions in rows.items() for p in partitions]


TOPICS = st.dictionaries(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(1, 9), min_size=1)


@st.composite
def groups(draw, same_subscription):
    topics = draw(TOPICS)
    names = [f"m{at}" for at in range(draw(st.integers(1, 6)))]
    everything = sorted(topics)
    members = {}
    free = {(t, p) for t, count in topics.items() for p in range(count)}
    for name in names:
        wanted = everything
        if not same_subscription:
            wanted = draw(st.lists(st.sampled_from(everything), unique=True))
        had = {}
        mine = draw(st.sets(st.sampled_from(sorted(free)), max_size=6)) if free else set()
        free -= mine
        for topic, partition in mine:
            had.setdefault(topic, set()).add(partition)
        instance = draw(st.sampled_from([None, None, f"i-{name}"]))
        members[name] = (wanted, had, instance)
    return view(topics, members)


@pytest.mark.parametrize("name", ["range", "uniform"])
@pytest.mark.parametrize("same", [True, False])
def test_every_wanted_partition_has_one_reader(name, same):
    @settings(max_examples=60, deadline=None)
    @given(groups(same))
    def holds(group):
        told = assign(name, group)
        given_out = flat(told)
        assert len(given_out) == len(set(given_out))
        wanted = set().union(*(member.topics for member in group.members.values()))
        assert set(given_out) == {
            (t, p) for t in wanted for p in range(group.topics[t].partition_count)
        }
        for member, rows in told.items():
            assert rows.keys() <= group.members[member].topics

    holds()


@settings(max_examples=60, deadline=None)
@given(groups(True))
def test_uniform_shares_differ_by_one_and_everybody_keeps_what_fits(group):
    told = assign("uniform", group)
    counts = {m: sum(map(len, rows.values())) for m, rows in told.items()}
    assert max(counts.values()) - min(counts.values()) <= 1
    for name, member in group.members.items():
        had = {(t, p) for t, rows in member.assigned.items() for p in rows}
        has = {(t, p) for t, rows in told[name].items() for p in rows}
        assert len(had & has) == min(len(had), counts[name])
    assert assign("uniform", after(group, told)) == told  # no partition moves without a reason


@settings(max_examples=60, deadline=None)
@given(groups(False))
def test_uniform_with_different_subscriptions_cannot_be_made_more_even_by_one_move(group):
    told = assign("uniform", group)
    counts = {m: sum(map(len, rows.values())) for m, rows in told.items()}
    for holder, rows in told.items():
        for topic in rows:
            for other, member in group.members.items():
                if topic in member.topics:
                    assert counts[holder] - counts[other] < 2


def after(group, told):
    members = {
        name: member._replace(assigned={t: frozenset(p) for t, p in told[name].items()})
        for name, member in group.members.items()
    }
    return group._replace(members=members)


def test_range_gives_runs_and_the_same_of_each_topic():
    everybody = {f"m{at}": ([b"a", b"b"], {}, None) for at in range(3)}
    told = assign("range", view({b"a": 7, b"b": 7}, everybody))
    assert told["m0"] == {b"a": {0, 1, 2}, b"b": {0, 1, 2}}
    assert told["m2"] == {b"a": {5, 6}, b"b": {5, 6}}


def test_range_puts_static_members_first_by_their_instance():
    members = {"z": ([b"a"], {}, "1"), "y": ([b"a"], {}, "2"), "a": ([b"a"], {}, None)}
    told = assign("range", view({b"a": 3}, members))
    assert told == {"z": {b"a": {0}}, "y": {b"a": {1}}, "a": {b"a": {2}}}


def test_an_unknown_name():
    with pytest.raises(ValueError, match="no plugin implements the assignor other"):
        assign("other", view({b"a": 1}, {"m": ([b"a"], {}, None)}))
