"""Followers of a partition that this node leads: what they read, what they hold back, and what
waits for them. Kafka 3.9: Partition, Replica, DelayedFetch and DelayedProduce."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from native.fetch_broker import decoded
from native.led import EPOCH, LONG_MS, RECORDS, Led, answered, part_of
from native.test_fetch_committed import data, marker
from oracle.produce import batch

from barnabas.wire import request as message_of
from barnabas.wire.batches import decode_batches
from barnabas.wire.headers import encode_request

FENCED, UNKNOWN_EPOCH, NOT_LEADER, OUT_OF_RANGE = 74, 75, 6, 1


@pytest.fixture(params=["os", "fsync"])
def durability(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def led(make_broker: Callable[..., Any], durability: str) -> Iterator[Led]:
    made = Led(make_broker(durability))
    yield made
    made.fetches.stop()


def in_time(call: Callable[[], Any]) -> Any:
    """The result of a call on another thread, which must not wait for its deadline."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(LONG_MS / 4000)
    assert found, "it still waits"
    return found[0]


# -- the high watermark


def test_high_watermark_is_the_smallest_log_end_in_the_isr(led: Led) -> None:
    led.lead(replicas=(1, 2, 3, 4), isr=(1, 2, 3))
    led.append(3)
    for replica, offset, expected in [(2, 6, 0), (3, 3, 3), (4, 0, 3), (3, 9, 6), (2, 9, 9)]:
        assert led.fetch(replica, offset).highWatermark == expected
    led.append()
    assert led.high_watermark == 9
    assert led.fetch(2, 6).highWatermark == 9  # it never decreases


def test_high_watermark_waits_for_the_leaders_own_flush(led: Led) -> None:
    led.lead(isr=(1, 2))
    assert led.produce(acks=1).errorCode == 0
    is_fsync = led.table.durability == "fsync"
    assert led.fetch(2, RECORDS).highWatermark == (0 if is_fsync else RECORDS)
    led.log.flush()
    assert led.fetch(2, RECORDS).highWatermark == RECORDS


def test_a_leader_alone_in_the_isr_waits_for_no_follower(led: Led) -> None:
    led.lead(isr=(1,))
    waiting = led.produce(acks=-1)
    if led.table.durability == "fsync":
        waiting = in_time(lambda: answered(waiting.resume()))
    assert waiting.errorCode == 0
    assert led.high_watermark == RECORDS


def test_high_watermark_waits_while_the_isr_is_too_small(led: Led) -> None:
    led.lead(isr=(1,))
    led.table.set_policy("orders", min_insync_replicas=2)
    led.append()
    assert led.fetch(2, RECORDS).highWatermark == 0
    assert led.table.set_isr("orders", 0, (1, 2), is_pending=False)
    assert led.high_watermark == RECORDS


def test_a_shrink_raises_the_high_watermark(led: Led) -> None:
    led.lead()
    led.append()
    led.fetch(2, RECORDS)
    assert led.high_watermark == 0
    assert led.table.set_isr("orders", 0, (1, 2), is_pending=False)
    assert led.high_watermark == RECORDS
    led.append()
    led.table.set_leader("orders", 0, leader_id=1, leader_epoch=EPOCH, replicas=(1, 2, 3), isr=(1,))
    assert led.high_watermark == 2 * RECORDS


def test_offsets_of_a_former_leader_epoch_do_not_count(led: Led) -> None:
    led.lead()
    led.append()
    for replica in (2, 3):
        led.fetch(replica, RECORDS)
    led.append()
    led.fetch(2, 2 * RECORDS)
    led.table.set_leader(
        "orders", 0, leader_id=1, leader_epoch=EPOCH + 1, replicas=(1, 2, 3), isr=(1, 2, 3)
    )
    led.fetch(3, 2 * RECORDS, epoch=EPOCH + 1)
    assert led.high_watermark == RECORDS
    assert led.states()[2].log_end_offset == -1
    led.fetch(2, 2 * RECORDS, epoch=EPOCH + 1)
    assert led.high_watermark == 2 * RECORDS


def test_the_same_leader_epoch_keeps_what_is_known(led: Led) -> None:
    led.lead()
    led.append()
    led.fetch(2, RECORDS)
    led.table.set_leader(
        "orders", 0, leader_id=1, leader_epoch=EPOCH, replicas=(1, 2, 4), isr=(1, 2)
    )
    assert led.high_watermark == RECORDS
    assert {n: s.log_end_offset for n, s in led.states().items()} == {2: RECORDS, 4: -1}


@pytest.mark.parametrize(("given", "expected"), [(None, 0), (3, 3), (100, 6), (-4, 0)])
def test_a_replicated_partition_begins_with_the_known_high_watermark(
    led: Led, given: int | None, expected: int
) -> None:
    led.lead()
    led.append(2)
    led.table.remove_partition("orders", 0)
    led.broker.logs["orders", 0].close(clean=True)
    handle = led.broker.partition(
        "orders", 0, leader_epoch=EPOCH, replicas=(1, 2), isr=(1, 2), high_watermark=given
    )
    assert handle.high_watermark == expected
    led.fetch(2, 6)
    assert handle.high_watermark == 6


def test_a_new_leader_begins_where_it_followed(led: Led) -> None:
    led.lead(leader_id=2, high_watermark=0)
    led.log.append(bytearray(batch(RECORDS)), leader_epoch=EPOCH)
    led.table.set_leader(
        "orders", 0, leader_id=1, leader_epoch=EPOCH + 1, replicas=(1, 2), isr=(1, 2),
        high_watermark=2,
    )  # fmt: skip
    assert led.high_watermark == 2
    led.fetch(2, RECORDS, epoch=EPOCH + 1)
    led.log.flush()
    assert led.fetch(2, RECORDS, epoch=EPOCH + 1).highWatermark == RECORDS


def test_a_follower_does_not_raise_the_high_watermark_itself(led: Led) -> None:
    handle = led.lead(leader_id=2)
    led.log.append(bytearray(batch(RECORDS)), leader_epoch=EPOCH)
    handle.appended(True)
    led.log.flush()
    assert not handle.commit(300)
    assert handle.high_watermark == 0


# -- what a follower reads


def test_a_follower_reads_to_the_logs_end_and_a_consumer_to_the_high_watermark(led: Led) -> None:
    led.lead()
    led.append(2)
    for isolation in (0, 1):
        part = led.fetch(2, 0, isolation=isolation)
        assert len(part.records) == 2 * len(batch(RECORDS))
        assert (part.highWatermark, part.logStartOffset, part.abortedTransactions) == (0, 0, None)
        assert not led.consume(0, isolation=isolation).records
    for replica in (2, 3):
        led.fetch(replica, RECORDS)
    assert len(led.consume(0).records) == len(batch(RECORDS))


def test_min_bytes_count_for_a_follower(led: Led) -> None:
    led.lead()
    led.append()
    enough = 2 * len(batch(RECORDS))
    waiting = led.fetch(2, 0, min_bytes=enough, max_wait_ms=LONG_MS)
    assert waiting.resume() is None
    led.append()
    assert len(part_of(in_time(waiting.wait)).records) == enough


def test_an_append_wakes_a_waiting_follower(led: Led) -> None:
    led.lead()
    waiting = led.fetch(2, 0, max_wait_ms=LONG_MS)
    threading.Timer(0.1, led.produce).start()
    assert len(part_of(in_time(waiting.wait)).records) == len(batch(RECORDS))
    assert led.high_watermark == 0


def test_only_the_first_look_of_a_fetch_is_a_fetch(led: Led) -> None:
    led.lead(isr=(1, 2))
    waiting = led.fetch(2, 0, max_wait_ms=LONG_MS)
    led.broker.system.move_monotonic(5000)
    assert waiting.resume() is None
    assert led.states()[2].caught_up_ms_ago >= 5000


def test_a_follower_with_a_session_is_seen_at_each_fetch(led: Led) -> None:
    led.lead(isr=(1, 2))
    led.append()
    message = message_of(1)

    def ask(session: int, epoch: int, topics: list[Any]) -> Any:
        body = message.cls(
            maxWaitMs=0, minBytes=1, maxBytes=1 << 20, sessionId=session, sessionEpoch=epoch,
            topics=topics, replicaState=message.struct("replicaState")(replicaId=2),
        )  # fmt: skip
        frame = led.fetches.handle_frame(encode_request(1, 17, 7, "tests", body, framed=False))
        return decoded(frame, 17)

    part = message.struct("topics.partitions")(
        partition=0, currentLeaderEpoch=EPOCH, fetchOffset=RECORDS, partitionMaxBytes=1 << 20,
        logStartOffset=1,
    )  # fmt: skip
    topic = message.struct("topics")(topicId=led.broker.ids["orders"], partitions=[part])
    session = ask(0, 0, [topic]).sessionId
    assert led.states()[2].log_start_offset == 1
    led.broker.system.move_monotonic(4000)
    assert led.states()[2].caught_up_ms_ago >= 4000
    assert ask(session, 1, []).errorCode == 0
    assert led.states()[2].caught_up_ms_ago < 1000
    assert led.states()[2].log_start_offset == 1


# -- errors


@pytest.mark.parametrize("version", [11, 12, 15, 17])
def test_errors_of_a_followers_fetch(led: Led, version: int) -> None:
    led.lead()
    led.append()

    def code(replica: int, offset: int, **fields: Any) -> int:
        return led.fetch(replica, offset, version=version, **fields).errorCode

    assert code(9, 0) == UNKNOWN_EPOCH  # not assigned
    assert code(9, 0, epoch=-1) == NOT_LEADER
    assert code(2, 0, epoch=EPOCH - 1) == FENCED
    assert code(2, 0, epoch=EPOCH + 1) == UNKNOWN_EPOCH
    assert code(2, RECORDS + 1) == OUT_OF_RANGE
    assert code(2, -1) == OUT_OF_RANGE
    assert {s.log_end_offset for s in led.states().values()} == {-1}
    assert code(2, RECORDS) == 0
    led.table.set_leader(
        "orders", 0, leader_id=2, leader_epoch=EPOCH + 1, replicas=(1, 2, 3), isr=(1, 2, 3)
    )
    assert code(3, 0, epoch=EPOCH + 1) == NOT_LEADER


def test_a_follower_below_the_log_start_is_out_of_range(led: Led) -> None:
    led.lead(isr=(1,))
    led.append(2)
    led.log.advance_log_start(RECORDS)
    assert led.fetch(2, 0).errorCode == OUT_OF_RANGE
    assert led.fetch(2, RECORDS, log_start=1).logStartOffset == RECORDS
    assert led.states()[2].log_start_offset == 1


def test_a_follower_that_has_truncated_gets_the_high_watermark(led: Led) -> None:
    """It takes none from the answer that told it to truncate, which the session may not count."""
    led.lead(isr=(1,), leader_epoch=EPOCH)
    led.log.append(bytearray(batch(RECORDS)), leader_epoch=2)
    led.log.assign_epoch(EPOCH)
    led.log.flush()
    led.fetch(3, RECORDS, fetched=2)
    assert led.high_watermark == RECORDS
    asked = led.frame(2, RECORDS + 1, fetched=3, session=(0, 0))
    answer = decoded(led.fetches.handle_frame(asked), 17)
    (part,) = answer.responses[0].partitions
    assert (part.divergingEpoch.epoch, part.divergingEpoch.endOffset) == (2, RECORDS)
    part = led.fetch(2, RECORDS, fetched=2, session=(answer.sessionId, 1))
    assert part.highWatermark == led.high_watermark


def test_a_follower_that_begins_anew_at_its_offset_gets_the_high_watermark(led: Led) -> None:
    """It may have dropped the answer with that high watermark, when it stopped to follow."""
    led.lead(isr=(1,))
    led.append()
    asked = led.frame(2, RECORDS, fetched=EPOCH, session=(0, 0))
    answer = decoded(led.fetches.handle_frame(asked), 17)
    again = led.frame(2, RECORDS, fetched=EPOCH, session=(answer.sessionId, 1))
    (part,) = decoded(led.fetches.handle_frame(again), 17).responses[0].partitions
    assert part.highWatermark == led.high_watermark


def test_a_diverging_follower_is_answered_and_not_counted(led: Led) -> None:
    led.lead(isr=(1, 2), leader_epoch=EPOCH)
    led.log.append(bytearray(batch(RECORDS)), leader_epoch=2)
    led.log.append(bytearray(batch(RECORDS)), leader_epoch=EPOCH)
    led.log.flush()
    part = led.fetch(2, RECORDS + 1, fetched=2)
    assert (part.errorCode, part.divergingEpoch.epoch, part.divergingEpoch.endOffset) == (
        0, 2, RECORDS,
    )  # fmt: skip
    part = led.fetch(2, 2 * RECORDS, fetched=EPOCH - 1)
    assert (part.divergingEpoch.epoch, part.divergingEpoch.endOffset) == (2, RECORDS)
    assert led.fetch(2, RECORDS, fetched=EPOCH + 1).errorCode == OUT_OF_RANGE
    assert (led.states()[2].log_end_offset, led.high_watermark) == (-1, 0)
    led.fetch(2, RECORDS, fetched=2)
    assert led.high_watermark == RECORDS


# -- acks=all


def test_acks_all_waits_for_the_isr(led: Led) -> None:
    led.lead()
    reader = led.consume(0, max_wait_ms=LONG_MS)
    waiting = led.produce(acks=-1)
    led.log.flush()
    assert waiting.resume(0) is waiting
    led.fetch(2, RECORDS)
    assert waiting.resume(0) is waiting
    threading.Timer(0.1, lambda: led.fetch(3, RECORDS)).start()
    assert in_time(lambda: answered(waiting.resume())).errorCode == 0
    assert len(part_of(in_time(reader.wait)).records) == len(batch(RECORDS))


def test_acks_all_needs_enough_replicas_before_the_append(led: Led) -> None:
    led.lead(isr=(1,))
    led.table.set_policy("orders", min_insync_replicas=2)
    assert led.produce(acks=-1).errorCode == 19
    assert led.log.end_offset == 0
    assert led.produce(acks=1).errorCode == 0
    assert led.table.set_isr("orders", 0, (1, 2), is_pending=False)
    assert led.produce(acks=-1).resume(0) is not None  # appended; it waits
    assert led.log.end_offset == 2 * RECORDS


def test_an_isr_that_became_too_small_is_an_error_after_the_append(led: Led) -> None:
    led.lead()
    led.table.set_policy("orders", min_insync_replicas=2)
    waiting = led.produce(acks=-1)
    led.log.flush()
    for replica in (2, 3):
        led.fetch(replica, RECORDS)
    assert led.high_watermark == RECORDS
    led.table.set_isr("orders", 0, (1,), is_pending=False)
    answer = answered(waiting.resume())
    assert (answer.errorCode, answer.baseOffset) == (20, 0)


def test_acks_all_times_out_while_a_follower_is_behind(led: Led) -> None:
    led.lead()
    waiting = led.produce(acks=-1, timeout_ms=1000)
    led.broker.system.move_monotonic(1001)
    assert answered(waiting.resume()).errorCode == 7


def test_a_commit_of_python_waits_for_the_isr(led: Led) -> None:
    handle = led.lead(isr=(1, 2))
    led.log.append(bytearray(batch(RECORDS)), leader_epoch=EPOCH)
    assert not handle.commit(50)
    led.log.flush()
    threading.Timer(0.1, lambda: led.fetch(2, RECORDS)).start()
    assert in_time(lambda: handle.commit(LONG_MS))


# -- losing leadership


def test_losing_leadership_ends_all_waits_and_frees_the_followers(led: Led) -> None:
    led.lead()
    with_followers = led.table.memory_bytes()
    follower = led.fetch(2, 0, max_wait_ms=LONG_MS)
    reader = led.fetch(-1, 0, max_wait_ms=LONG_MS)
    of_leaders = led.consume(0, version=10, max_wait_ms=LONG_MS)
    waiting = led.produce(acks=-1, timeout_ms=LONG_MS)
    handle = led.table.partition("orders", 0)
    threading.Timer(
        0.1, lambda: led.table.set_leader(
            "orders", 0, leader_id=2, leader_epoch=EPOCH + 1, replicas=(1, 2, 3), isr=(2, 3)
        ),
    ).start()  # fmt: skip
    assert in_time(lambda: handle.commit(LONG_MS)) is False
    assert in_time(lambda: answered(waiting.resume())).errorCode == NOT_LEADER
    codes = [part_of(in_time(wait.wait)) for wait in (follower, reader)]
    assert [p.errorCode for p in codes] == [FENCED, FENCED]
    assert [(p.currentLeader.leaderId, p.currentLeader.leaderEpoch) for p in codes] == (
        [(2, EPOCH + 1)] * 2
    )
    assert part_of(in_time(of_leaders.wait), 10).errorCode == NOT_LEADER
    assert led.table.replica_states("orders", 0) == []
    assert led.table.memory_bytes() < with_followers
    assert led.produce().errorCode == NOT_LEADER


def test_a_leader_that_was_none_meanwhile_does_not_acknowledge(led: Led) -> None:
    led.lead()
    waiting = led.produce(acks=-1, timeout_ms=LONG_MS)
    for leader, epoch in ((2, EPOCH + 1), (1, EPOCH + 2)):
        led.table.set_leader(
            "orders", 0, leader_id=leader, leader_epoch=epoch, replicas=(1, 2), isr=(1, 2)
        )
    led.log.flush()
    led.fetch(2, RECORDS, epoch=EPOCH + 2)
    assert led.high_watermark == RECORDS
    assert answered(waiting.resume()).errorCode == NOT_LEADER


@pytest.mark.parametrize("isr", [(1, 2), (1,)])
def test_a_later_epoch_of_the_same_leader_acknowledges(led: Led, isr: tuple[int, ...]) -> None:
    """An error would make a producer without idempotence send the records twice."""
    led.lead(replicas=(1, 2), isr=(1, 2))
    waiting = led.produce(acks=-1, timeout_ms=LONG_MS)
    led.table.set_leader("orders", 0, leader_id=1, leader_epoch=EPOCH + 1, replicas=(1, 2), isr=isr)
    led.log.flush()
    if 2 in isr:
        assert led.high_watermark == 0
        led.fetch(2, RECORDS, epoch=EPOCH + 1)
    assert answered(waiting.resume()).errorCode == 0


def test_removing_the_partition_ends_a_followers_wait(led: Led) -> None:
    led.lead()
    follower = led.fetch(2, 0, max_wait_ms=LONG_MS)
    threading.Timer(0.1, lambda: led.table.remove_partition("orders", 0)).start()
    assert part_of(in_time(follower.wait)).errorCode == 3


def test_no_record_of_the_former_epoch_follows_the_begin_of_the_next(led: Led) -> None:
    """The replica manager notes the epoch in the log, and then sets it in the table. A record with
    the former epoch in between would be above the end that the log reports for that epoch."""
    led.lead(replicas=(1, 2), isr=(1,))
    led.append()
    led.log.assign_epoch(EPOCH + 1)
    assert led.produce(acks=1).errorCode == NOT_LEADER
    assert led.log.end_offset == RECORDS
    led.table.set_leader(
        "orders", 0, leader_id=1, leader_epoch=EPOCH + 1, replicas=(1, 2), isr=(1,)
    )
    assert led.produce(acks=1).errorCode == 0
    assert led.log.leader_epochs() == [(EPOCH, 0), (EPOCH + 1, RECORDS)]
    batches = decode_batches(led.log.read(0, 1 << 20), size_max=1 << 20)
    assert [row.leader_epoch for row in batches] == [EPOCH, EPOCH + 1]


@pytest.mark.parametrize("clean", [True, False])
def test_a_marker_counts_after_a_restart_when_the_high_watermark_has_passed_it(
    led: Led, clean: bool
) -> None:
    """Otherwise readers of committed records see a transaction that the next leader may abort."""
    led.lead(replicas=(1, 2), isr=(1, 2))
    for records in (data(7, 0), marker(7, True), data(8, 0, transactional=False)):
        led.log.append(records, leader_epoch=EPOCH)
    led.log.flush()
    handle = led.restart(1, clean=clean)
    assert (handle.high_watermark, handle.last_stable_offset) == (1, 0)
    assert led.consume(0, isolation=1).lastStableOffset == 0
    led.fetch(2, 3)
    assert handle.last_stable_offset == 3
    assert led.restart(2, clean=clean).last_stable_offset == 2


def test_a_marker_counts_after_a_truncation_when_the_high_watermark_has_passed_it(led: Led) -> None:
    led.lead(replicas=(1, 2), isr=(1, 2))
    for records in (data(7, 0), marker(7, True)):
        led.log.append(records, leader_epoch=EPOCH)
    handle = led.restart(1, clean=True)
    led.log.append(data(8, 0, transactional=False), leader_epoch=EPOCH)
    led.log.truncate_to(2, 1)
    assert (led.log.end_offset, handle.last_stable_offset) == (2, 0)
