"""Steps of native handlers with log.durability=fsync: a state is visible after its flush,
whatever happens to the request in between."""

import errno
import socket
import struct
import threading
import time

import pytest
from compat.support import Wire
from transactions.native_twins import (
    ADD,
    END,
    Writer,
    known,
    native_of,
    records_of,
    side_by_side,
    started,
)

from barnabas.wire import response
from barnabas.wire.headers import decode_response_header
from barnabas.wire.internal import TRANSACTION_STATE

FLUSH_MS = 700
TIMEOUT_MS = 300  # the timeout of a wait for a flush, if a test sets it


@pytest.fixture
def broker(tmp_path):
    with started(tmp_path, "fsync") as broker:
        yield broker


def slow_flush(broker, delay_ms=FLUSH_MS):
    """Delays the next flush of __transaction_state."""
    return broker.node.system.fault(
        "fdatasync", "delay", delay_ms=delay_ms, path_contains=f"{TRANSACTION_STATE}-"
    )


def states(broker, name):
    return [int(row.state) for _, _, row in records_of(broker, name)]


def sent(writer, frame):
    """Sends a request; `answer()` waits for the response."""
    writer.wire._socket.sendall(frame)
    return writer.wire._frame


def until_pending(broker, name):
    deadline = time.monotonic() + 10
    while not known(broker, name).is_pending:
        assert time.monotonic() < deadline, "no step is under way"
        time.sleep(0.001)


@pytest.mark.parametrize("what", ["partitions", "offsets"])
def test_a_partition_belongs_to_the_transaction_from_the_flush_on(broker, what):
    writer, other = Writer(broker, "grows"), Writer(broker, "grows", init=False)
    slow_flush(broker)
    frame = writer.add_frame([("a", [1])], 3) if what == "partitions" else writer.offsets_frame(3)
    answer = sent(writer, frame)
    until_pending(broker, "grows")
    assert known(broker, "grows").now.partitions == frozenset()
    assert other.state() == "Empty"
    assert other.add(writer.producer, 2, topic="a", settle=False) == [51]
    assert other.end(writer.producer, True, settle=False) == 51
    assert other.init(settle=False)[0] == 51
    assert native_of(broker).served == 2  # the two refused requests
    answer()
    assert native_of(broker).served == 3
    assert other.state() == "Ongoing" and len(known(broker, "grows").now.partitions) == 1
    assert writer.end(writer.producer, True) == 0 and native_of(broker).served == 4
    writer.settle()
    assert states(broker, "grows") == [0, 1, 2, 4]
    for one in (writer, other):
        one.wire.close()


def test_an_end_is_decided_from_the_flush_on(broker):
    writer = Writer(broker, "ends")
    writer.topic = "a"
    assert writer.add(writer.producer, 0, topic="a") == [0]
    assert writer.produce(writer.producer, 0, settle=False)[0] == 0
    slow_flush(broker)
    answer = sent(writer, writer.end_frame(True))
    until_pending(broker, "ends")
    other = Writer(broker, "ends", init=False)
    assert other.state() == "Ongoing"
    other.wire.close()
    answer()
    writer.settle()
    assert states(broker, "ends") == [0, 1, 2, 4]
    found = writer.fetch()
    assert found["last stable offset"] == found["high watermark"] == 2
    writer.wire.close()


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_an_end_whose_connection_is_lost_is_carried_out(broker, how):
    """No request and no sweep reads the id meanwhile; the test reads the log only."""
    writer = Writer(broker, "lost")
    assert writer.add(writer.producer, 0, topic="a") == [0]
    slow_flush(broker)
    sent(writer, writer.end_frame(True))
    until_logged(broker, "lost", [0, 1, 2])
    if how == "reset":
        linger = struct.pack("ii", 1, 0)
        writer.wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.wire.close()
    until_logged(broker, "lost", [0, 1, 2, 4])
    other = Writer(broker, "lost", init=False)
    other.settle()
    assert other.state() == "CompleteCommit"
    other.wire.close()


def until_logged(broker, name, wanted):
    deadline = time.monotonic() + 10
    while (found := states(broker, name)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def test_a_request_that_waits_for_the_step_of_another_goes_on_after_the_flush(broker):
    writer, other = Writer(broker, "waits"), Writer(broker, "waits", init=False)
    # Such a request waits for up to 100 ms; a busy machine may take longer for the flush.
    broker.node.serving.coordinators.transactions.steps.retry_max_ms = 10_000
    slow_flush(broker, delay_ms=60)
    answer = sent(writer, writer.add_frame([("a", [1])], 3))
    until_pending(broker, "waits")
    began = time.monotonic()
    assert other.add(writer.producer, 2, topic="a", settle=False) == [0]
    assert time.monotonic() - began < 9, "it waited for its time to be over"
    answer()
    assert known(broker, "waits").now.partitions == {("a", 1), ("a", 2)}
    for one in (writer, other):
        one.wire.close()


def test_a_request_that_waits_for_the_markers_goes_on_when_the_transaction_is_complete(broker):
    writer, other = Writer(broker, "markers"), Writer(broker, "markers", init=False)
    broker.node.serving.coordinators.transactions.steps.retry_max_ms = 10_000
    assert writer.add(writer.producer, 0, topic="a") == [0]
    delayed = broker.node.system.fault(
        "fdatasync", "delay", delay_ms=FLUSH_MS, path_contains="/a-0/"
    )
    assert writer.end(writer.producer, True, settle=False) == 0
    began = time.monotonic()
    assert other.add(writer.producer, 2, topic="a", settle=False) == [0]
    assert broker.node.system.fired(delayed), "the marker was not delayed"
    assert time.monotonic() - began < 9, "it waited for its time to be over"
    for one in (writer, other):
        one.wire.close()


def test_how_long_and_how_often_a_request_waits_for_a_busy_id(tmp_path):
    """The native handler waits for the longest time. Python, which has requests for more than 32
    partitions, asks again after each pause."""
    settings = {
        "add.partitions.to.txn.retry.backoff.max.ms": "300",  # 100 by default
        "add.partitions.to.txn.retry.backoff.ms": "1000",  # 20 by default
    }
    with started(tmp_path, "fsync", settings) as broker:
        writer, other = Writer(broker, "busy"), Writer(broker, "busy", init=False)
        slow_flush(broker, delay_ms=2200)
        answer = sent(writer, writer.add_frame([("a", [1])], 3))
        until_pending(broker, "busy")

        def waited(*partitions):
            began = time.monotonic()
            codes = other.add(writer.producer, *partitions, topic="a", settle=False)
            assert set(codes) == {51}  # CONCURRENT_TRANSACTIONS
            return time.monotonic() - began

        assert 0.3 <= waited(2) < 0.9
        assert waited(*range(33)) >= 1.0
        answer()
        for one in (writer, other):
            one.wire.close()


def test_a_flush_that_takes_too_long_is_answered_and_its_step_counts_later(tmp_path):
    with started(tmp_path, "fsync", {"offsets.commit.timeout.ms": str(TIMEOUT_MS)}) as broker:
        writer = Writer(broker, "slow")
        assert writer.add(writer.producer, 0, topic="a") == [0]
        slow_flush(broker, delay_ms=4 * TIMEOUT_MS)
        assert writer.end(writer.producer, True, settle=False) == 15  # COORDINATOR_NOT_AVAILABLE
        assert writer.end(writer.producer, False, settle=False) == 51  # CONCURRENT_TRANSACTIONS
        assert known(broker, "slow").is_pending
        writer.settle()
        assert writer.end(writer.producer, True) == 0
        assert writer.end(writer.producer, False) == 48  # INVALID_TXN_STATE
        assert states(broker, "slow") == [0, 1, 2, 4]
        writer.wire.close()


@pytest.mark.parametrize("step", ["add", "end"])
def test_an_id_stays_usable_after_a_write_that_failed(broker, step):
    writer = Writer(broker, "full")
    if step == "end":
        assert writer.add(writer.producer, 0, topic="a") == [0]
    system = broker.node.system
    rule = system.fault(
        "pwritev", "error", errno=errno.ENOSPC, path_contains=f"{TRANSACTION_STATE}-"
    )
    if step == "add":
        assert writer.add(writer.producer, 0, topic="a", settle=False) == [16]  # NOT_COORDINATOR
        assert writer.add(writer.producer, 0, topic="a") == [0]
    else:
        assert writer.end(writer.producer, True, settle=False) == 16
    assert system.fired(rule) == 1
    assert writer.end(writer.producer, True) == 0
    writer.settle()
    assert states(broker, "full") == [0, 1, 2, 4]
    writer.wire.close()


@pytest.mark.parametrize("step", ["add", "end"])
def test_a_later_epoch_of_the_same_leader_answers_a_step(broker, step):
    writer = Writer(broker, "stays")
    if step == "end":
        assert writer.add(writer.producer, 0, topic="a") == [0]
    hold = broker.node.system.fault("fdatasync", "hold", path_contains=f"{TRANSACTION_STATE}-")
    frame = writer.end_frame(True) if step == "end" else writer.add_frame([("a", [1])], 3)
    answer = sent(writer, frame)
    until_pending(broker, "stays")
    journal = broker.node.serving.coordinators.transactions.journal
    index = journal.partition_of("stays")
    broker.node.loaded.replicas._table.set_leader(
        TRANSACTION_STATE, index, leader_id=broker.node.node_id, leader_epoch=7
    )
    broker.node.system.release(hold)
    told = answer()
    key = END if step == "end" else ADD
    _header, at = decode_response_header(told, key, 3)
    found = response(key).decode(told, 3, at)
    codes = (
        [found.errorCode]
        if step == "end"
        else [
            row.partitionErrorCode
            for one in found.resultsByTopicV3AndBelow
            for row in one.resultsByPartition
        ]
    )
    assert codes == [0]
    writer.wire.close()


def test_what_was_answered_is_there_after_a_restart(broker):
    writer = Writer(broker, "again")
    assert writer.ask(writer.add_frame([("a", [3]), ("b", [1])], 3))
    assert writer.ask(writer.offsets_frame(3))
    assert native_of(broker).served == 2
    before = known(broker, "again").now
    assert len(before.partitions) == 3
    writer.wire.close()
    broker.restart()
    writer = Writer(broker, "again", init=False)
    assert known(broker, "again").now == before and writer.state() == "Ongoing"
    writer.producer = before.producer_id, before.producer_epoch
    assert writer.end(writer.producer, False) == 0
    writer.settle()
    assert writer.state() == "CompleteAbort"
    writer.wire.close()


def test_batches_go_to_partitions_that_were_added(broker):
    writer = Writer(broker, "expected")
    writer.topic = "a"
    assert writer.ask(writer.add_frame([("a", [0])], 3)) and native_of(broker).served == 1
    assert writer.produce(writer.producer, 0, settle=False)[0] == 0
    assert writer.produce(writer.producer, 0, partition=1, settle=False)[0] == 48
    assert writer.end(writer.producer, True) == 0
    writer.settle()
    assert writer.produce(writer.producer, 1, settle=False)[0] == 48  # the marker removed it
    writer.wire.close()


def test_offsets_of_many_producers_while_others_look(broker):
    over = threading.Event()
    failures: list[str] = []
    counts, tries = [], [0] * 6

    def produce(at):
        writer = Writer(broker, f"many-{at}")
        writer.topic = "a"
        if writer.commit_plainly(0) != [0]:
            failures.append(f"{at}: not accepted")
        last, tried = 0, 0
        while not over.is_set():
            tried += 1
            tries[at] = tried
            committed = tried % 3 != 0
            told = [
                writer.add_offsets(writer.producer),
                *writer.commit_offsets(writer.producer, tried),
                writer.end(writer.producer, committed, settle=False),
            ]
            writer.settle()
            if any(told):
                failures.append(f"{at}: {told}")
            last = tried if committed else last
            if writer.committed() != (0, [(0, last)]):
                failures.append(f"{at}: {writer.committed()}, not {last}")
        counts.append(tried)
        writer.wire.close()

    def look():
        with Wire(broker.bootstrap_servers):
            while not over.is_set():
                for at in range(6):
                    known(broker, f"many-{at}")
                over.wait(0.001)

    looker = threading.Thread(target=look, daemon=True)
    looker.start()
    side_by_side(produce, over, lambda: sum(tries) > 10)
    looker.join(10)
    assert failures == [] and len(counts) == 6
    assert native_of(broker).served > sum(counts) > 10
