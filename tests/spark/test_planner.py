"""Plans of batches and tasks: nothing is read twice or left out, limits hold, losses are
reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.planner import (
    DataLoss,
    MinOffsets,
    TaskRange,
    latest_within,
    latest_within_bytes,
    split,
    starting,
    task_ranges,
)

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def test_shares_are_in_proportion_to_what_waits():
    start, latest = {A: 0, B: 100, C: 7}, {A: 900, B: 200, C: 7}
    assert latest_within(start, latest, 100) == {A: 90, B: 110, C: 7}
    assert latest_within(start, latest, 10_000) == latest


def test_a_small_partition_is_not_starved():
    assert latest_within({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10) == {A: 9, B: 1}
    assert latest_within({A: 5}, {A: 5}, 10) == {A: 5}


SIZES = st.lists(st.integers(0, 10**6), min_size=1, max_size=8)


@given(SIZES, st.integers(1, 10**6))
def test_batches_come_to_the_end_and_keep_within_the_limit(sizes, offsets_max):
    start = {("t", i): i * 3 for i in range(len(sizes))}
    latest = {tp: start[tp] + size for tp, size in zip(start, sizes, strict=True)}
    for _ in range(3):
        ends = latest_within(start, latest, offsets_max)
        taken = {tp: ends[tp] - start[tp] for tp in ends}
        assert all(0 <= n <= latest[tp] - start[tp] for tp, n in taken.items())
        assert sum(taken.values()) <= offsets_max + len(sizes)  # a share below one becomes one
        assert sum(taken.values()) > 0 or start == latest
        start = ends


@given(SIZES, st.integers(1, 10**7), st.integers(1, 500))
def test_bytes_keep_within_the_limit(sizes, bytes_max, record_bytes):
    start = {("t", i): 5 for i in range(len(sizes))}
    latest = {("t", i): 5 + size for i, size in enumerate(sizes)}
    ends = latest_within_bytes(start, latest, bytes_max, lambda tp, a, b: (b - a) * record_bytes)
    taken = [ends[tp] - start[tp] for tp in start]
    assert all(n >= 1 for tp, n in zip(start, taken, strict=True) if latest[tp] > 5)
    assert sum(taken) * record_bytes <= bytes_max + len(sizes) * record_bytes
    if sum(sizes) * record_bytes <= bytes_max:
        assert ends == latest


def test_a_batch_waits_for_enough_records_or_for_the_delay():
    due = MinOffsets(100, delay_ms=1000)
    assert due.is_due({A: 0}, {A: 1}, now_ms=0)  # the first
    assert not due.is_due({A: 1}, {A: 50}, now_ms=500)
    assert due.is_due({A: 1}, {A: 101}, now_ms=600)
    assert not due.is_due({A: 101}, {A: 102}, now_ms=1500)
    assert due.is_due({A: 101}, {A: 102}, now_ms=1600)


def test_ranges_are_of_the_partitions_that_have_records():
    assert task_ranges({A: 0, B: 5, C: 9}, {C: 12, A: 0, B: 6}) == [
        TaskRange("t", 1, 5, 6),
        TaskRange("u", 0, 9, 12),
    ]


def test_tasks_as_spark_sql_kafka_cuts_them():
    """Examples of its own tests (KafkaOffsetRangeCalculator)."""

    def cut(sizes, tasks_min):
        ranges = [TaskRange("t", i, 1, 1 + size) for i, size in enumerate(sizes)]
        return [(r.partition, r.start, r.end) for r in split(ranges, tasks_min=tasks_min)]

    assert cut([4], 2) == [(0, 1, 3), (0, 3, 5)]
    assert cut([1], 4) == [(0, 1, 2)]
    assert cut([5], 3) == [(0, 1, 2), (0, 2, 4), (0, 4, 6)]
    assert cut([4, 20], 3) == [(0, 1, 5), (1, 1, 11), (1, 11, 21)]
    assert cut([1, 0, 3], 3) == [(0, 1, 2), (2, 1, 2), (2, 2, 4)]
    assert cut([10, 10], None) == cut([10, 10], 2) == [(0, 1, 11), (1, 1, 11)]
    # The partition with most records gets most tasks; the small ones get one each.
    assert len(cut([1_000, 10, 10, 10], 8)) == 8


def test_records_max_bounds_every_task():
    ranges = [TaskRange("t", 0, 0, 95), TaskRange("t", 1, 7, 17), TaskRange("t", 2, 3, 3)]
    found = split(ranges, records_max=20)
    assert [r.size for r in found] == [19] * 5 + [10]
    assert len(split(ranges, records_max=20, tasks_min=12)) >= 11


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10_000)), max_size=6),
    st.one_of(st.none(), st.integers(1, 50)),
    st.one_of(st.none(), st.integers(1, 3000)),
)
def test_tasks_cover_their_partitions_once(sizes, tasks_min, records_max):
    ranges = [TaskRange("t", i, at, at + size) for i, (at, size) in enumerate(sizes)]
    found = split(ranges, tasks_min=tasks_min, records_max=records_max)
    for one in ranges:
        parts = [r for r in found if r.partition == one.partition]
        assert all(r.size for r in parts)
        edges = [one.start, *(r.end for r in parts)]
        assert [r.start for r in parts] == edges[:-1] and (not parts or edges[-1] == one.end)
        assert bool(parts) == bool(one.size)
        if records_max is not None:
            assert all(r.size <= records_max for r in parts)


def test_missing_records_are_named_in_one_message():
    asked = {A: 5, B: 50, C: 7, ("gone", 3): 9}
    earliest = {A: 8, B: 0, C: 0, ("t", 2): 0}
    latest = {A: 20, B: 40, C: 10, ("t", 2): 4}
    with pytest.raises(DataLoss) as raised:
        starting(asked, earliest, latest)
    assert raised.value.reasons == [
        "partition 3 of topic gone was deleted (read to 9)",
        "partition 0 of topic t: offset 5 is wanted, but the log has offsets 8 to 20",
        "partition 1 of topic t: offset 50 is wanted, but the log has offsets 0 to 40",
    ]
    assert "failOnDataLoss" in str(raised.value)
    allowed = starting(asked, earliest, latest, fail_on_data_loss=False)
    assert allowed.offsets == {A: 8, B: 0, C: 7, ("t", 2): 0}
    assert allowed.lost == raised.value.reasons


def test_a_new_partition_begins_at_its_earliest_offset():
    assert starting({A: 5}, {A: 0, B: 0}, {A: 9, B: 3}).offsets == {A: 5, B: 0}
    with pytest.raises(DataLoss, match="is new and does not begin at offset 0"):
        starting({A: 5}, {A: 0, B: 2}, {A: 9, B: 3})
    assert starting({}, {B: 2}, {B: 3}).offsets == {B: 2}


def test_a_topic_made_anew_is_seen_by_its_id():
    """Its offsets exist in the new topic, too: only the id is different."""
    before, now = {"t": b"\1" * 16, "u": b"\3" * 16}, {"t": b"\2" * 16, "u": b"\3" * 16}
    asked, earliest, latest = {A: 5, C: 2}, {A: 0, C: 0}, {A: 9, C: 3}
    with pytest.raises(DataLoss) as raised:
        starting(asked, earliest, latest, ids_before=before, ids_now=now)
    assert raised.value.reasons == [
        "topic t was deleted and created again (its id was AQEBAQEBAQEBAQEBAQEBAQ and is"
        " AgICAgICAgICAgICAgICAg)",
        "partition 0 of topic t: offset 5 is wanted, but the log has offsets 0 to 9",
    ]
    found = starting(
        asked, earliest, latest, ids_before=before, ids_now=now, fail_on_data_loss=False
    )
    assert found.offsets == {A: 0, C: 2}
    assert starting(asked, earliest, latest, ids_now=now).offsets == asked
