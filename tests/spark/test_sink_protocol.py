"""The sink's protocol step by step, without Spark: aborts, fencing, lost rows."""

import sys
import time
import types
from dataclasses import replace

import pyarrow as pa
import pytest

from barnabas.client import LATEST, Cluster, Producer, Reader, list_offsets, transactional_id
from barnabas.client.offsets import COMMITTED
from barnabas.client.transactional_id import Prepared, TransactionalId, end_transaction
from barnabas.client.transactions import list_transactions
from barnabas.errors import InvalidTransactionTimeout
from barnabas.hooks import Option, hookimpl
from barnabas.spark import sink_tasks
from barnabas.spark.failures import LostRows, SinkError
from barnabas.spark.options import BadOption
from barnabas.spark.sink_commit import (
    abort_batch,
    commit_batch,
    finish_abandoned,
    finish_decided,
    now_ms,
)
from barnabas.spark.sink_encoding import Encoding
from barnabas.spark.sink_ledger import (
    DECIDED,
    DONE,
    WITHDRAWN,
    Entry,
    LedgerHolder,
    decode_entry,
    encode_entry,
    latest,
    open_ledger,
    transaction_name,
)
from barnabas.spark.sink_options import parse_sink_options
from barnabas.spark.sink_tasks import IdPool, TaskPlace, write_task

KEY = "stream/q"


def wait_until(condition, what):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


class Died(BaseException):
    """Raised at the step where a driver dies."""


class Query:
    def __init__(self, broker, topic, **options):
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
        given |= {name.replace("__", "."): str(value) for name, value in options.items()}
        self.options = parse_sink_options(given)
        self.broker, self.topic = broker, topic
        self.cluster = Cluster(broker.bootstrap_servers)
        open_ledger(self.cluster, self.options.ledger)

    def task(self, batch, values, *, run="r1", planned_ms=None):
        began = now_ms() if planned_ms is None else planned_ms
        place = TaskPlace(KEY, run, batch, began, is_stream=True)
        return write_task(self.options, place, iter([pa.record_batch({"value": values})]))

    def commit(self, *written, dies_at=None):
        def reached(step):
            if step == dies_at:
                raise Died

        if dies_at is None:
            return commit_batch(self.options, written)
        with pytest.raises(Died):
            commit_batch(self.options, written, reached=reached)

    def newest(self):
        return latest(self.cluster, self.options.ledger, KEY)

    def ledger_tells(self, entry):
        """Waits, because its marker comes after the response."""
        wait_until(lambda: self.newest() == entry, self.newest)

    def shows(self, values, is_open):
        """Waits, because markers come after the response."""
        wait_until(lambda: self.seen() == (values, is_open), lambda: self.seen())

    def seen(self):
        """Values that a reader of committed records gets, and whether something is open."""
        reader = Reader(self.cluster, self.topic, {0: 0}, to_end=True, isolation=COMMITTED)
        rows = sorted(record.value.decode() for _, record in reader)
        ends = [
            list_offsets(self.cluster, self.topic, {0: LATEST}, isolation=level)[0].offset
            for level in (0, 1)
        ]
        return rows, ends[0] > ends[1]


@pytest.fixture
def query(session_broker, topic, monkeypatch):
    """A query with its own ledger, and without ids of other tests."""
    monkeypatch.setattr(sink_tasks, "_pool", IdPool())
    made = []

    def make(**options):
        made.append(Query(session_broker, topic, ledgerTopic=f"ledger-{topic}", **options))
        return made[-1]

    yield make
    for one in made:
        one.cluster.close()
    session_broker.delete_topic(f"ledger-{topic}")


@pytest.fixture(params=["epochs are bumped", "the first version"])
def version(request, monkeypatch):
    """The version of the transaction protocol that this client uses."""
    if request.param == "the first version":
        monkeypatch.setattr(transactional_id, "bumps_epochs", lambda connection: False)


def test_a_batch_is_seen_when_it_is_decided_and_ended(query, version):
    q = query()
    first, second = q.task(0, ["a", "b"]), q.task(0, ["c"])
    q.shows([], True)
    q.commit(first, second)
    q.shows(["a", "b", "c"], False)
    q.ledger_tells(Entry(0, DONE, "r1"))
    q.commit(q.task(1, ["d"]))
    q.shows(["a", "b", "c", "d"], False)


@pytest.mark.parametrize("step", ["decided", "ended 1", "ended 2", "done"])
def test_a_decided_batch_is_finished_by_the_next_run_which_writes_nothing(query, version, step):
    q = query()
    q.commit(q.task(0, ["a"]), q.task(0, ["b"]), dies_at=step)
    again = [q.task(0, [value], run="r2") for value in ("a", "b")]
    assert [(one.prepared, one.was_decided) for one in again] == [(None, True)] * 2
    q.commit(*again)
    q.shows(["a", "b"], False)


@pytest.mark.parametrize("step", ["claimed", "decision written"])
def test_an_undecided_batch_is_aborted_by_the_next_run(query, version, step):
    q = query()
    q.commit(q.task(0, ["a"]), dies_at=step)
    again = q.task(0, ["a"], run="r2")
    assert again.prepared is not None
    q.commit(again)
    q.shows(["a"], False)


def test_attempts_that_lose_are_aborted(query, version):
    q = query()
    lost = q.task(0, ["a"])
    q.commit(q.task(0, ["a"]))
    q.shows(["a"], False)
    assert not end_transaction(q.cluster, lost.prepared, commit=True)


def test_abort_takes_back_what_was_handed_over_unless_it_was_decided(query, version):
    q = query()
    written = [q.task(0, ["a"]), None, q.task(0, ["b"])]
    abort_batch(q.options, written)
    q.shows([], False)
    mine = [q.task(0, ["a"]), q.task(0, ["b"])]
    q.commit(*mine, dies_at="ended 1")
    abort_batch(q.options, mine)  # Spark calls abort after a failed commit
    q.shows(["a", "b"], False)
    abort_batch(q.options, mine)
    q.ledger_tells(Entry(0, DONE, "r1"))
    q.shows(["a", "b"], False)


def test_a_driver_that_was_overtaken_decides_nothing(query, version):
    q = query()
    with LedgerHolder(q.cluster, q.options.ledger, KEY) as late:
        written, mine = q.task(0, ["a"]), q.task(0, ["a"], run="r2")
        q.commit(mine)
        with pytest.raises(SinkError, match="another driver also writes stream/q and has taken"):
            late.write(Entry(0, DECIDED, "r1", (written.prepared,)))
    q.ledger_tells(Entry(0, DONE, "r2"))
    q.shows(["a"], False)
    q.commit(written)  # starts again, and finds the decision
    q.shows(["a"], False)


def test_a_driver_that_was_overtaken_after_its_first_record_writes_no_second(query, version):
    q = query()
    with LedgerHolder(q.cluster, q.options.ledger, KEY) as held:
        held.write(Entry(0, DECIDED, "r1"))
        with LedgerHolder(q.cluster, q.options.ledger, KEY):
            pass
        with pytest.raises(SinkError, match="has taken over"):
            held.write(Entry(0, DONE, "r1"))


def test_ids_are_used_again_only_when_their_batch_is_over(query):
    q = query()
    first = q.task(0, ["a"])
    other = q.task(0, ["b"])
    assert first.prepared.name != other.prepared.name
    q.commit(first, other)
    names = {q.task(1, [value]).prepared.name for value in ("c", "d", "e")}
    assert names > {first.prepared.name, other.prepared.name}
    again = q.task(1, ["c"], run="r2")
    assert again.prepared.name not in names
    start = transaction_name(KEY)
    known = [row.transactionalId for row in list_transactions(q.cluster)]
    assert sum(name.startswith(start) for name in known) >= len(names)


# ------------------------------------------------------------------------------ timeouts


@pytest.fixture
def quick(broker, monkeypatch):
    """A broker whose clock the test moves."""
    monkeypatch.setattr(sink_tasks, "_pool", IdPool())
    broker.create_topic("t")
    return broker


def let_time_out(q):
    q.broker.clock.advance(seconds=3600)
    wait_until(lambda: not q.seen()[1], lambda: "the coordinator does not abort")


def test_a_decision_whose_transactions_all_timed_out_is_withdrawn(quick, version):
    q = Query(quick, "t")
    q.commit(q.task(0, ["a"]), q.task(0, ["b"]), dies_at="decided")
    let_time_out(q)
    again = [q.task(0, [value], run="r2") for value in ("a", "b")]
    with pytest.raises(LostRows, match="nothing of it was committed: start the query again"):
        q.commit(*again)
    q.ledger_tells(Entry(0, WITHDRAWN, "r1"))
    q.commit(*[q.task(0, [value], run="r3") for value in ("a", "b")])
    q.shows(["a", "b"], False)


def test_rows_that_were_lost_in_part_stop_the_query_until_that_is_allowed(quick, version):
    q = Query(quick, "t")
    q.commit(q.task(0, ["a"]), q.task(0, ["b"]), dies_at="ended 1")
    let_time_out(q)
    for _ in range(2):
        with pytest.raises(LostRows, match="aborted 1 of its 2 transactions .* are lost"):
            q.commit(q.task(0, ["a"], run="r2"))
    q.options = replace(q.options, fail_on_lost_rows=False)
    q.commit(q.task(0, ["a"], run="r3"))
    q.ledger_tells(Entry(0, DONE, "r1"))
    q.shows(["a"], False)


def test_a_batch_beyond_its_limit_fails_before_it_is_decided(query):
    q = query(kafka__transaction__timeout__ms=60_000, batchLimitMs=30_000)
    slow = q.task(0, ["a"], planned_ms=now_ms() - 31_000)
    with pytest.raises(SinkError, match=r"has taken 3\d{4} ms, more than batchLimitMs=30000"):
        q.commit(slow)
    abort_batch(q.options, [slow])
    assert q.newest() is None
    q.shows([], False)
    q.options = replace(q.options, batch_limit_ms=1)
    with pytest.raises(SinkError, match="more than batchLimitMs=1"):
        q.task(0, ["x" * 1000] * 50_000)
    q.shows([], False)


# ------------------------------------------------------------------------------ bad cases


def test_a_record_that_is_too_large_is_one_line_and_leaves_nothing(query):
    q = query(kafka__batch__size=1000)
    with pytest.raises(SinkError, match="a record is larger than topic .* takes"):
        q.task(0, ["small"] * 100 + ["x" * 2_000_000])
    q.shows([], False)


def test_a_timeout_that_the_broker_refuses_is_one_line(query):
    q = query(kafka__transaction__timeout__ms=999_999_999)
    with pytest.raises(InvalidTransactionTimeout, match=r"transaction\.max\.timeout\.ms"):
        q.task(0, ["a"])


class Backwards:
    """A partitioner that counts down from the last partition, and an encoder that reverses
    values."""

    OPTIONS = {"mark": Option("text", "what stands behind each value", "")}

    def __init__(self, given):
        self.mark = given["mark"]

    @hookimpl
    def choose_partitions(self, keys, partition_count):
        return [(partition_count - 1 - at) % partition_count for at in range(len(keys))]

    @hookimpl
    def encode(self, data):
        return [str(item)[::-1].encode() + self.mark.encode() for item in data]


@pytest.mark.topic(partitions=3)
def test_partitioner_and_encoders_are_plugins(query, session_broker, topic, monkeypatch):
    monkeypatch.setitem(sys.modules, "turned", types.SimpleNamespace(Backwards=Backwards))
    q = query(
        partitioner__class="turned:Backwards",
        serializer__class="turned:Backwards",
        key__serializer__class="json",
        **{"PLUGIN__BACKWARDS__MARK": "!"},
    )
    place = TaskPlace(KEY, "r1", 0, now_ms(), is_stream=True)
    rows = pa.record_batch(
        {
            "value": [12, 34, 56, 78],
            "key": [{"a": 1}, None, {"a": 2}, None],
            "partition": pa.array([None, None, None, 1], pa.int32()),
        }
    )
    q.commit(write_task(q.options, place, iter([rows])))
    found = sorted((r.partition, r.value, r.key) for r in session_broker.records(topic))
    assert found == [
        (0, b"65!", b'{"a":2}'),
        (1, b"43!", None),
        (1, b"87!", None),
        (2, b"21!", b'{"a":1}'),
    ]
    for wrong, words in [
        ({"partitioner__class": "json"}, "json does not implement choose_partitions"),
        ({"serializer__class": "nobodys"}, "nobodys"),
    ]:
        with pytest.raises(BadOption, match=words):
            Encoding(query(**wrong).options)


def test_what_a_driver_left_is_finished_by_name(query):
    q = query()
    q.commit(q.task(0, ["a"]), dies_at="decided")
    assert finish_decided(q.options, KEY)
    q.shows(["a"], False)
    assert not finish_decided(q.options, KEY)


def test_batch_writes_whose_driver_died_are_finished_by_the_next(query, monkeypatch):
    q = query()
    keys = [f"job/{name}" for name in ("b", "a")]
    for key in keys:
        place = TaskPlace(key, key[4:], 0, now_ms(), is_stream=False)
        written = write_task(q.options, place, iter([pa.record_batch({"value": [key]})]))
        q.commit(written, dies_at=None if key == keys[0] else "decided")
    q.shows(["job/b"], True)
    finish_abandoned(q.options)  # too early: the driver may still run
    q.shows(["job/b"], True)
    monkeypatch.setattr("barnabas.spark.sink_commit.ABANDONED_MS", -60_000)
    finish_abandoned(q.options)
    q.shows(["job/a", "job/b"], False)
    assert [latest(q.cluster, q.options.ledger, key) for key in keys] == [None, None]
    finish_abandoned(q.options)


def test_the_ledger_is_read_past_other_keys_and_open_transactions(query, monkeypatch):
    q = query()
    q.commit(q.task(0, ["a"]))
    other = TransactionalId(q.cluster, "somebody")
    other.claim()
    with Producer(q.cluster, q.options.ledger, transaction=other) as producer:
        for _ in range(5):  # stays open, so that the last stable offset is here
            producer.send(b"{}", b"stream/other")
            producer.flush()
    monkeypatch.setattr("barnabas.spark.sink_ledger.WINDOW_FIRST", 2)
    q.ledger_tells(Entry(0, DONE, "r1"))
    q.commit(q.task(1, ["b"]))
    q.ledger_tells(Entry(1, DONE, "r1"))
    other.end(commit=False)


def test_what_is_no_entry_is_a_clear_error():
    entry = Entry(7, DECIDED, "r", (Prepared(transaction_name(KEY, "r/x"), 5, 2),))
    value = encode_entry(KEY, entry)
    assert decode_entry(KEY, value) == entry
    for wrong in (b"", b"{}", b"[]", value.replace(b'"decided"', b'"maybe"'), value[:-3]):
        with pytest.raises(SinkError, match="cannot read the ledger's record of stream/q"):
            decode_entry(KEY, wrong)
    with pytest.raises(SinkError, match="has version 2"):
        decode_entry(KEY, value.replace(b'"version":1', b'"version":2'))
