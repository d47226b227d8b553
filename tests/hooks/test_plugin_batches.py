"""The view of a batch that interceptors get, and the effect of their return values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cext.record.records import Record
from barnabas.hooks.child_values import decode, encode
from barnabas.hooks.registry import FetchRefused, Registry
from barnabas.hooks.specs import hookimpl
from barnabas.hooks.views import (
    GroupMemberView,
    GroupTopicView,
    GroupView,
    LogView,
    RecordBatch,
    Reject,
    Replace,
    SegmentView,
)
from barnabas.testing.plugins import batch_of
from barnabas.wire.batches import batch_at, encode_batch
from barnabas.wire.compression import CODECS

BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3)
RECORDS = st.lists(
    st.builds(
        Record, BYTES, BYTES, timestamp=st.integers(0, 2**40), headers=HEADERS
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


def fields(record):
    return record.key, record.value, record.timestamp, record.headers


@given(RECORDS, st.data(), st.sampled_from(sorted(CODECS)), st.integers(0, 2**40))
def test_a_rewritten_batch_keeps_its_places_and_its_producer(records, data, codec, base_offset):
    kept = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    raw = encode_batch(
        records,
        base_offset=base_offset,
        codec=CODECS[codec],
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        transactional=True,
    )
    batch = RecordBatch("t", 0, raw, 1 << 20)
    places = [row if keep else None for row, keep in zip(batch.records, kept, strict=True)]
    made = batch_at(memoryview(batch.rewritten(places)), 0, 1 << 20)
    assert made.base_offset == base_offset
    assert made.last_offset == base_offset + len(records) - 1
    assert (made.producer_id, made.producer_epoch, made.base_sequence) == (7, 3, 11)
    assert made.last_sequence == 11 + len(records) - 1
    assert made.transactional and not made.control
    expected = [(base_offset + i, fields(r)) for i, r in enumerate(records) if kept[i]]
    assert [(r.offset, fields(r)) for r in made.records] == expected


@given(RECORDS, st.sampled_from(sorted(CODECS)))
def test_columns_and_records_say_the_same(records, codec):
    batch = batch_of(records, codec=codec, base_offset=5)
    assert len(batch.columns) == len(batch.records) == len(records)
    buffers = batch.columns.buffers()
    offsets = memoryview(buffers["offsets"]).cast("B").cast("q")
    assert list(offsets) == list(range(5, 5 + len(records)))


@pytest.mark.parametrize("places", [[], [None, None, None], ["text", None]])
def test_other_places_than_the_batch_has_are_refused(places):
    with pytest.raises(ValueError):
        batch_of([b"a", b"b"]).rewritten(places)


def interceptor(answer, hook="intercept_produce"):
    def function(self, batch):
        return answer(batch) if callable(answer) else answer

    function.__name__ = hook
    return type("Made", (), {hook: hookimpl(function)})()


def registry_of(**answers):
    registry = Registry()
    for name, answer in answers.items():
        registry.register(interceptor(answer), name)
    return registry


def upper(batch):
    return Replace([Record(r.value.upper(), r.key, timestamp=r.timestamp) for r in batch.records])


def hide_last(batch):
    return Replace([*batch.records[:-1], None])


def values(raw):
    return [record.value for record in batch_at(memoryview(raw), 0, 1 << 20).records]


def test_interceptors_are_asked_in_order_each_with_what_the_one_before_made():
    registry = registry_of(upper=upper, hide=hide_last, none=None)
    made = registry.intercept_produce(["upper", "none", "hide"], batch_of([b"a", b"b", b"c"]))
    assert values(made) == [b"A", b"B"]
    assert registry.intercept_produce(["none"], batch_of([b"a"])) is None
    assert registry.intercept_produce([], batch_of([b"a"])) is None


def test_the_first_refusal_ends_it():
    def never(batch):
        raise AssertionError

    registry = registry_of(no=Reject("not so"), never=never)
    assert registry.intercept_produce(["no", "never"], batch_of([b"a"])) == Reject("not so")
    assert registry.failures["never"] == 0


@pytest.mark.parametrize(
    "answer", [1, "no", b"", Replace([]), Replace([1]), Reject(5), RuntimeError("broken")]
)
def test_a_broken_interceptor_fails_closed_or_open_as_configured(answer):
    def broken(batch):
        if isinstance(answer, Exception):
            raise answer
        return answer

    registry = registry_of(broken=broken)
    batch = batch_of([b"a"])
    found = registry.intercept_produce(["broken"], batch)
    assert isinstance(found, Reject) and "broken failed for" in found.message
    registry.plugin("broken").common["on.failure"] = "open"
    assert registry.intercept_produce(["broken"], batch) is None
    assert registry.failures["broken"] == 2


def test_an_interceptor_that_does_not_run_lets_nothing_through():
    registry = Registry()
    found = registry.intercept_produce(["gone"], batch_of([b"a"]))
    assert isinstance(found, Reject) and "gone does not run" in found.message
    with pytest.raises(FetchRefused, match="gone does not run"):
        registry.intercept_fetch(["gone"], batch_of([b"a"]))


def test_a_fetch_interceptor_hides_and_masks_and_may_not_reject():
    registry = Registry()
    registry.register(interceptor(hide_last, "intercept_fetch"), "hide")
    registry.register(interceptor(upper, "intercept_fetch"), "upper")
    registry.register(interceptor(Reject("no"), "intercept_fetch"), "reject")
    batch = batch_of([b"a", b"b"], base_offset=40)
    assert values(registry.intercept_fetch(["hide"], batch)) == [b"a"]
    assert values(registry.intercept_fetch(["upper"], batch)) == [b"A", b"B"]
    with pytest.raises(FetchRefused, match="reject failed for"):
        registry.intercept_fetch(["reject"], batch)


@given(RECORDS)
def test_values_come_back_from_another_process_as_they_went(records):
    batch = batch_of(records)
    member = GroupMemberView("m", None, "r", frozenset({b"1" * 16}), {b"1" * 16: frozenset({3})})
    group = GroupView("g", {"m": member}, {b"1" * 16: GroupTopicView("t", 4, ())})
    assert decode(encode(group)[4:]) == group and decode(encode(range(2, 4))[4:]) == (2, 3)
    view = LogView("t", 1, (SegmentView(0, 5, 9, 7, True),), 5, -1, -1, {"g": 4})
    for value in (None, True, 3, 2.5, "x", b"\x00\xff", (1, (b"a",)), {"k": b"v"}, view):
        frame = encode(value)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert decode(frame[4:]) == value
    again = decode(encode({"batch": batch})[4:])["batch"]
    assert (again.topic, again.partition, again.data) == ("topic", 0, batch.data)
    replaced = decode(encode(Replace([batch.records[0], None]))[4:])
    assert fields(replaced.records[0]) == fields(records[0]) and replaced.records[1] is None
    assert decode(encode(Reject("no"))[4:]) == Reject("no")


@given(st.binary(max_size=200))
def test_invalid_bytes_from_another_process_are_a_value_error(frame):
    try:
        decode(frame)
    except ValueError:
        pass


def test_what_cannot_go_to_another_process_is_refused():
    with pytest.raises(ValueError):
        encode(object())
