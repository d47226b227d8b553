"""What readers of committed records get, compared with a simple list of a log's contents.

A history of transactional and plain batches and markers is written into a log of small segments.
A client that reads it from any offset, in pieces of any size, and skips what the responses list as
aborted, gets exactly the committed records below the last stable offset.
"""

import struct
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native.fetch_broker import FetchBroker, decoded
from oracle.fetch_scenarios import part, step

from barnabas.cext.fetch.fetch import ParkedFetch
from barnabas.cext.log.log_handle import BUMPING_MARKER, LogError, LogHandle, LogSettings
from barnabas.cext.log.segment import SegmentCache
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.record.records import Record, encode_batch
from barnabas.wire.batches import decode_batches

SMALL = LogSettings(segment_bytes=700, index_interval_bytes=80, segment_index_bytes=4096)
TRANSACTIONAL, CONTROL = 0x10, 0x20
EXPECTED_MAX = 256  # the limit of one log: cext/log/log_transactions.pyx


def data(producer, sequence, count=1, *, transactional=True, epoch=0):
    records = [Record(b"%d:%d" % (producer, sequence + i)) for i in range(count)]
    return encode_batch(
        records,
        attributes=TRANSACTIONAL if transactional else 0,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def marker(producer, commit, epoch=0):
    record = Record(struct.pack(">hi", 0, 0), struct.pack(">hh", 0, int(commit)))
    attributes = TRANSACTIONAL | CONTROL
    return encode_batch([record], attributes=attributes, producer_id=producer, producer_epoch=epoch)


class Account:
    """The log as a list: (producer, record, transactional), a marker, in order."""

    def __init__(self):
        self.rows = []  # for each offset: (producer or None, value or None, outcome)
        self.open = {}  # producer -> offsets
        self.aborted = []  # (producer, first offset, marker offset)
        self.sequences = {}

    def write(self, producer, count, transactional):
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + count
        for i in range(count):
            if transactional:
                self.open.setdefault(producer, []).append(len(self.rows))
            value = b"%d:%d" % (producer, sequence + i)
            self.rows.append([producer, value, None if transactional else True, None])
        return data(producer, sequence, count, transactional=transactional)

    def end(self, producer, commit):
        offsets = self.open.pop(producer, [])
        for offset in offsets:
            self.rows[offset][2:] = commit, len(self.rows)
        if offsets and not commit:
            self.aborted.append((producer, offsets[0], len(self.rows)))
        self.rows.append([producer, None, None, None])
        return marker(producer, commit)

    def cut(self, end):
        """Truncates the log: transactions that ended later are open again."""
        self.rows = self.rows[:end]
        self.open = {}
        for offset, row in enumerate(self.rows):
            if row[2] is not None and row[3] is not None and row[3] >= end:
                row[2] = row[3] = None
            if row[1] is not None and row[2] is None:
                self.open.setdefault(row[0], []).append(offset)
        self.aborted = [row for row in self.aborted if row[2] < end]

    def stable(self):
        return min((rows[0] for rows in self.open.values()), default=len(self.rows))

    def committed(self, start):
        rows = list(enumerate(self.rows))[start : self.stable()]
        return [(offset, row[1]) for offset, row in rows if row[2]]


STEP = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 4), st.integers(1, 3), st.just(True)),
    st.tuples(st.just("write"), st.integers(5, 6), st.integers(1, 3), st.just(False)),
    st.tuples(st.just("end"), st.integers(1, 4), st.booleans()),
)
# Without this minimum, hypothesis makes histories that fit into one segment.
HISTORY = st.one_of(st.lists(STEP, max_size=8), st.lists(STEP, min_size=30, max_size=60))


def fetched(broker, offset, size):
    told = broker.start(
        step(
            "s",
            version=11,
            isolation=1,
            max_wait_ms=0,
            max_bytes=1 << 20,
            topics=[("t", [part(0, offset, max_bytes=size)])],
        )  # fmt: skip
    )
    answer = told[1].wait() if isinstance(told[1], ParkedFetch) else told[1]
    row = decoded(answer, told[0]).responses[0].partitions[0]
    assert row.errorCode == 0
    return row


def kept(row, start):
    """The records that a client keeps from one response, and its next offset."""
    waiting = sorted((one.firstOffset, one.producerId) for one in row.abortedTransactions)
    aborting, found, after = set(), [], start
    for batch in decode_batches(bytes(row.records), size_max=1 << 20, partial_tail=True):
        while waiting and waiting[0][0] <= batch.last_offset:
            aborting.add(waiting.pop(0)[1])
        after = batch.last_offset + 1
        if batch.control:
            aborting.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in aborting):
            found += [(r.offset, r.value) for r in batch.records if r.offset >= start]
    return found, after


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=HISTORY, seed=st.randoms(use_true_random=False), cut=st.floats(0, 1))
def test_exactly_the_committed_records_are_kept(tmp_path_factory, history, seed, cut):
    broker = FetchBroker(tmp_path_factory.mktemp("log"), {"t": 1})
    log = broker.logs["t", 0]
    log.set_config(SMALL)
    account = Account()
    try:
        for kind, producer, *rest in history:
            batch = getattr(account, kind)(producer, *rest)
            broker.append("t", 0, batch)
        assert log.first_open_offset == (account.stable() if account.open else -1)
        assert broker.parts["t", 0].last_stable_offset == account.stable()
        for _ in range(4):
            start = seed.randrange(len(account.rows) + 1)
            found, at = [], start
            while at < account.stable():
                row = fetched(broker, at, seed.choice([1, 150, 400, 100_000]))
                assert (row.highWatermark, row.lastStableOffset) == (
                    len(account.rows),
                    account.stable(),
                )
                told = [(one.producerId, one.firstOffset) for one in row.abortedTransactions]
                assert len(told) == len(set(told))
                some, after = kept(row, at)
                assert after > at
                reach = [(p, f) for p, f, last in account.aborted if last >= at]
                assert set(told) <= set(reach)  # no transaction that ended earlier is listed
                found, at = found + some, after
            assert found == account.committed(start)
        if account.rows:  # truncation also removes transactions from the index
            log.truncate_to(batch_start(log, int(cut * len(account.rows))))
            account.cut(log.end_offset)
            assert log.first_open_offset == (account.stable() if account.open else -1)
            found, at = [], 0
            while at < account.stable():
                some, at = kept(fetched(broker, at, 300), at)
                found += some
            assert found == account.committed(0)
    finally:
        broker.close()
        log.close(clean=True)


@pytest.mark.parametrize("size", [1, 300, 100_000])
def test_an_abort_reaches_from_the_first_to_the_last_record_of_its_transaction(tmp_path, size):
    """Earlier versions listed an abort only for the segment of its marker, or only from the
    fetched offset on. Here one spans many segments, with committed transactions in between."""
    broker = FetchBroker(tmp_path, {"t": 1})
    log, account = broker.logs["t", 0], Account()
    log.set_config(SMALL)
    try:
        for at in range(40):
            broker.append("t", 0, account.write(1, 2, True))
            if at % 5 == 0:
                broker.append("t", 0, account.write(2, 1, True))
                broker.append("t", 0, account.end(2, at % 10 == 0))
            broker.append("t", 0, account.write(5, 1, False))
        broker.append("t", 0, account.end(1, False))
        broker.append("t", 0, account.write(1, 1, True))
        broker.append("t", 0, account.end(1, True))
        assert len(log.segments()) > 10
        for start in range(len(account.rows)):
            found, at = [], start
            while at < account.stable():
                some, at = kept(fetched(broker, at, size), at)
                found += some
            assert found == account.committed(start)
    finally:
        broker.close()
        log.close(clean=True)


def batch_start(log, offset):
    """The beginning of the batch that holds an offset, or the end."""
    for batch in decode_batches(log.read(0, 1 << 20), size_max=1 << 20, partial_tail=True):
        if batch.last_offset >= offset:
            return batch.base_offset
    return log.end_offset


@pytest.mark.parametrize("clean", [True, False])
def test_aborts_are_known_after_a_restart(tmp_path, clean):
    broker = FetchBroker(tmp_path, {"t": 1})
    account = Account()
    for producer in (1, 2, 3):
        broker.append("t", 0, account.write(producer, 2, True))
    broker.append("t", 0, account.end(2, False))
    broker.append("t", 0, account.end(1, True))
    broker.close()
    broker.logs["t", 0].close(clean=clean)
    log = LogHandle.open(
        tmp_path / "t-0",
        system=SystemCalls(),
        epochs=Epochs(),
        cache=SegmentCache(open_segments_max=10),
        clean=clean,
    )
    assert log.first_open_offset == 4  # of producer 3
    assert (tmp_path / "t-0" / f"{0:020}.txnindex").stat().st_size == 34
    log.close(clean=False)


def test_a_reader_at_an_open_transaction_is_woken_by_its_marker(tmp_path):
    for durability in ("os", "fsync"):
        (tmp_path / durability).mkdir()
        broker = FetchBroker(tmp_path / durability, {"t": 1}, durability=durability)
        try:
            broker.append("t", 0, data(1, 0))
            wanted = step(
                "s", version=11, isolation=1, max_wait_ms=20_000, topics=[("t", [part(0, 0)])]
            )
            waiting = broker.start(wanted)[1]
            assert isinstance(waiting, ParkedFetch)
            broker.append("t", 0, data(2, 0))  # wakes it, but the transaction is open
            began = time.monotonic()
            broker.append("t", 0, marker(1, True))
            row = decoded(waiting.wait(), 11).responses[0].partitions[0]
            assert time.monotonic() - began < 5
            assert row.lastStableOffset == 1 and len(row.records) > 0
        finally:
            broker.close()


# ------------------------------------------------------------------------------------ verification


def test_a_marker_overtakes_a_verification(tmp_path):
    """A batch that was verified before its transaction ended would leave a hanging transaction."""
    broker = FetchBroker(tmp_path, {"t": 1})
    log = broker.logs["t", 0]
    try:
        with pytest.raises(LogError) as error:
            log.append(bytearray(data(1, 0)), verification=0)
        assert error.value.code == 48
        number = log.begin_verification(1)
        log.append(bytearray(marker(1, False)))
        with pytest.raises(LogError) as error:
            log.append(bytearray(data(1, 0)), verification=number)
        assert error.value.code == 48
        log.end_verification(number)
        with pytest.raises(LogError):
            log.append(bytearray(data(1, 0)), verification=number)
        number = log.begin_verification(1)
        other = log.begin_verification(2)
        log.append(bytearray(marker(2, False)))  # of another producer
        log.append(bytearray(data(1, 0)), verification=number)
        for done in (number, other):
            log.end_verification(done)
        log.append(bytearray(data(1, 1)), verification=0)  # the transaction is open here
        assert log.first_open_offset == 2
    finally:
        broker.close()


def refused(log, batch):
    with pytest.raises(LogError) as error:
        log.append(bytearray(batch), verification=0)
    assert error.value.code == 48


def test_an_expected_transaction_needs_no_verification(tmp_path):
    """The coordinator has answered in advance; the answer holds until the marker."""
    broker = FetchBroker(tmp_path, {"t": 1, "u": 1})
    log = broker.logs["t", 0]
    try:
        broker.logs["u", 0].expect_transaction(1, 0)  # another partition
        refused(log, data(1, 0))
        for _ in range(2):  # the same request again
            log.expect_transaction(1, 0)
        refused(log, data(2, 0))
        refused(log, data(1, 0, epoch=1))
        log.append(bytearray(data(1, 0)), verification=0)
        log.append(bytearray(data(1, 1)), verification=0)
        log.append(bytearray(marker(1, True)))
        refused(log, data(1, 2))
        log.expect_transaction(1, 0)
        log.append(bytearray(marker(1, False)))  # this one has no records
        refused(log, data(1, 2))
    finally:
        broker.close()


def test_the_number_of_expected_transactions_is_limited(tmp_path):
    broker = FetchBroker(tmp_path, {"t": 1})
    log = broker.logs["t", 0]
    try:
        for producer in range(EXPECTED_MAX + 1):
            log.expect_transaction(producer, 0)
        log.append(bytearray(data(0, 0)), verification=0)
        log.append(bytearray(data(EXPECTED_MAX - 1, 0)), verification=0)
        refused(log, data(EXPECTED_MAX, 0))
        log.append(bytearray(marker(0, True)))
        log.expect_transaction(EXPECTED_MAX, 0)
        log.append(bytearray(data(EXPECTED_MAX, 0)), verification=0)
    finally:
        broker.close()


def test_a_late_marker_with_its_transactions_epoch_does_not_end_the_next_one(tmp_path):
    broker = FetchBroker(tmp_path, {"t": 1})
    log = broker.logs["t", 0]
    try:
        log.append(bytearray(data(1, 0, epoch=5)))
        log.append(bytearray(marker(1, True, epoch=6)), verification=BUMPING_MARKER)
        log.append(bytearray(marker(1, True, epoch=6)), verification=BUMPING_MARKER)  # again
        log.append(bytearray(data(1, 0, epoch=6)))
        with pytest.raises(LogError) as error:
            log.append(bytearray(marker(1, True, epoch=6)), verification=BUMPING_MARKER)
        assert error.value.code == 47
        assert log.first_open_offset == 3
    finally:
        broker.close()


def test_many_open_transactions_cost_an_append_nothing_more(tmp_path):
    """The earliest one is found without a search, however many there are."""
    broker = FetchBroker(tmp_path, {"t": 1})
    log = broker.logs["t", 0]
    count = 20_000

    def took(producers):
        began = time.thread_time()  # other programs of the machine take none of it
        for producer in producers:
            log.append(bytearray(data(producer, 0)))
        return time.thread_time() - began

    try:
        few = min(took(range(at, at + 1000)) for at in range(0, 3000, 1000))
        took(range(10_000, 10_000 + count))
        many = min(took(range(at, at + 1000)) for at in range(100_000, 103_000, 1000))
        assert many < 4 * few, (few, many)  # 20 times as many producers
        for producer in reversed(range(10_000, 10_000 + count)):
            log.append(bytearray(marker(producer, False)))
        assert log.first_open_offset == 0
    finally:
        broker.close()
