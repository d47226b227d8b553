"""What a follower asks a leader for, and what each answer changes: its logs, or an event."""

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from fetch_broker import LEADER_EPOCH, FetchBroker
from oracle.follower import MS, Follower, answer, diverging, forgotten, part, wanted
from oracle.log_builder import batch

from barnabas.cext.log.log_handle import LogSettings
from barnabas.cext.replica.fetches import VERSION_MAX, VERSION_MIN, MalformedFetchAnswer
from barnabas.wire import response

T_ID, U_ID = bytes(range(1, 17)), bytes(range(101, 117))
TOPIC = {"t": (T_ID, 1)}
CONSUMER = -1  # the leader's table has no followers: it answers as it answers consumers
VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)


def placed(offset: int, epoch: int = 2, *values: bytes) -> bytes:
    made = bytearray(batch(*(values or (b"v",))))
    struct.pack_into(">q", made, 0, offset)
    struct.pack_into(">i", made, 12, epoch)
    return bytes(made)


@pytest.fixture
def made(tmp_path: Path) -> Iterator:
    """Makes followers, and closes them."""
    followers = []

    def make(topics=TOPIC, **options) -> Follower:
        followers.append(Follower(tmp_path / f"f{len(followers)}", topics, **options))
        return followers[-1]

    yield make
    for follower in followers:
        follower.close()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[FetchBroker]:
    (tmp_path / "leader").mkdir()
    broker = FetchBroker(tmp_path / "leader", {"t": 2, "u": 1})
    yield broker
    broker.close()


def of(leader: FetchBroker) -> dict[str, tuple[bytes, int]]:
    return {"t": (leader.topic_ids["t"], 2), "u": (leader.topic_ids["u"], 1)}


# ---------------------------------------------------------------------------------------- requests


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_names_this_node_and_the_place_in_the_log(made, version):
    follower = made(version=version, max_bytes=1000, response_max_bytes=5000, min_bytes=3)
    log = follower.logs["t", 0]
    log.append_as_follower(placed(0, 1, b"a", b"b"))
    log.advance_log_start(1)
    asked = follower.asked()
    assert (asked.maxWaitMs, asked.minBytes, asked.maxBytes) == (0, 3, 5000)
    assert (asked.isolationLevel, asked.sessionId, asked.sessionEpoch) == (0, 0, 0)
    if version < 15:
        assert asked.replicaId == 2
    else:
        assert (asked.replicaState.replicaId, asked.replicaState.replicaEpoch) == (2, 77)
    assert wanted(asked) == [("t" if version < 13 else T_ID, 0)]
    (row,) = asked.topics[0].partitions
    assert (row.currentLeaderEpoch, row.fetchOffset, row.lastFetchedEpoch) == (2, 2, 1)
    assert (row.logStartOffset, row.partitionMaxBytes) == (1, 1000)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_follower_copies_its_leader(made, leader, version):
    """In sessions of the native Fetch handler, with several topics, until all logs are equal."""
    follower = made(of(leader), version=version, max_bytes=3000, fetches_as=CONSUMER)
    for number in range(60):
        leader.append("t", number % 2, batch(os.urandom(number * 20)))
        leader.append("u", 0, batch(b"u" * number), epoch=LEADER_EPOCH)
    rounds = 0
    while any(follower.logs[key].end_offset < log.end_offset for key, log in leader.logs.items()):
        assert follower.round(leader) == []
        rounds += 1
    assert rounds > 5
    for (name, index), log in leader.logs.items():
        copy = follower.logs[name, index]
        assert copy.read(0) == log.read(0)
        assert copy.leader_epochs() == log.leader_epochs()
        assert follower.high_watermark(name, index) == log.end_offset
    asked = follower.asked()
    assert asked.sessionEpoch == rounds
    follower.fetches.take_response(response(1).encode(answer(session=asked.sessionId), version), 0)
    assert wanted(follower.asked()) == []
    assert {row[3] for row in follower.fetches.partitions()} == {0}
    counters = follower.fetches.counters()
    assert counters["bytes"] == sum(len(log.read(0)) for log in leader.logs.values())
    assert counters["batches"] == 120


def test_a_session_names_only_what_has_changed(made):
    follower = made({"t": (T_ID, 3), "u": (U_ID, 1)})
    assert len(wanted(follower.asked())) == 4
    assert follower.take(answer(part(1, records=placed(0)), topicId=T_ID)) == []
    asked = follower.asked()
    assert (asked.sessionId, asked.sessionEpoch) == (5, 1)
    assert wanted(asked) == [(T_ID, 1)]
    follower.take(answer())
    follower.fetches.remove("t", 0)
    follower.fetches.remove("u", 0)
    asked = follower.asked()
    assert (asked.sessionEpoch, wanted(asked)) == (2, [])
    assert sorted(forgotten(asked)) == [(T_ID, 0), (U_ID, 0)]
    follower.take(answer())
    assert forgotten(follower.asked()) == []


@pytest.mark.parametrize("version", [12, 17])
def test_a_partition_that_comes_back_is_not_forgotten(made, version):
    """The leader applies what is forgotten after what is wanted."""
    follower = made(version=version)
    follower.asked()
    follower.take(answer())
    follower.fetches.remove("t", 0)
    follower.fetches.add("t", 0, T_ID, 3)
    asked = follower.asked()
    assert len(wanted(asked)) == 1
    assert asked.topics[0].partitions[0].currentLeaderEpoch == 3
    assert forgotten(asked) == []


def test_a_topic_made_anew_replaces_the_old_one(made):
    for version, gone in ((12, []), (13, [(T_ID, 0)])):
        follower = made(version=version)
        follower.asked()
        follower.take(answer())
        follower.table.remove_topic("t")
        follower.table.add_topic("t", U_ID)
        for path in sorted((follower.directory / "t-0").iterdir(), reverse=True):
            path.unlink()
        (follower.directory / "t-0").rmdir()
        follower.host("t", 0)
        follower.fetches.add("t", 0, U_ID, 0)
        asked = follower.asked()
        assert len(wanted(asked)) == 1
        assert forgotten(asked) == gone


def test_without_a_session_each_request_begins_with_another_partition(made):
    follower = made({"t": (T_ID, 3)})
    first = []
    for _ in range(3):
        asked = follower.asked()
        assert (asked.sessionId, asked.sessionEpoch, len(wanted(asked))) == (0, 0, 3)
        first.append(wanted(asked)[0][1])
        follower.take(answer(session=0))
    assert sorted(first) == [0, 1, 2]


@pytest.mark.parametrize(("code", "session"), [(70, 0), (71, 5)])
def test_a_session_error_begins_a_new_session_at_once(made, code, session):
    follower = made()
    follower.asked()
    follower.take(answer())
    assert wanted(follower.asked()) == []
    assert follower.take(answer(error=code, session=0)) == []
    asked = follower.asked()
    assert (asked.sessionId, asked.sessionEpoch) == (session, 0)
    assert wanted(asked) == [(T_ID, 0)]


def test_a_lost_connection_begins_a_new_session(made):
    follower = made({"t": (T_ID, 2)})
    follower.asked()
    follower.take(answer())
    follower.fetches.remove("t", 1)
    follower.asked()
    follower.fetches.disconnected()
    asked = follower.asked()
    assert (asked.sessionId, asked.sessionEpoch) == (5, 0)
    assert (wanted(asked), forgotten(asked)) == ([(T_ID, 0)], [])


def test_a_refused_request_delays_all(made):
    follower = made(backoff_ms=100)
    follower.asked()
    assert follower.take(answer(error=31, session=0)) == [("", -1, "refused", 31)]
    assert follower.asked() is None
    assert follower.fetches.delay_ns(0) == 100 * MS
    follower.now_ns = 100 * MS
    assert wanted(follower.asked()) == [(T_ID, 0)]


# ----------------------------------------------------------------------------------------- answers


def test_the_high_watermark_is_the_leaders_but_not_above_the_logs_end(made):
    follower = made()
    follower.table.partition("t", 0)
    for leaders, expected in ((0, 0), (1, 1), (9, 3), (2, 3)):
        follower.asked()
        end = follower.logs["t", 0].end_offset
        follower.take(answer(part(records=placed(end), highWatermark=leaders), topicId=T_ID))
        assert follower.high_watermark("t") == expected


def test_the_log_start_follows_the_leaders(made):
    follower = made()
    follower.asked()
    records = b"".join(placed(offset) for offset in range(5))
    follower.take(answer(part(records=records, highWatermark=5, logStartOffset=3), topicId=T_ID))
    assert follower.logs["t", 0].start_offset == 3
    assert follower.asked().topics[0].partitions[0].logStartOffset == 3


def test_an_answer_to_an_earlier_request_changes_nothing(made):
    late = answer(part(records=placed(0), highWatermark=1), topicId=T_ID)
    follower = made()
    follower.asked()
    log = follower.logs["t", 0]
    for change in (
        lambda: follower.fetches.remove("t", 0),
        lambda: follower.fetches.add("t", 0, T_ID, 2),  # added again: asked for anew
        lambda: follower.fetches.add("t", 0, T_ID, 3),  # of a later epoch
    ):
        change()
        assert follower.take(late) == []
        assert (log.end_offset, follower.high_watermark("t")) == (0, 0)
        follower.asked()
    log.append_as_follower(placed(0))
    assert follower.take(answer(part(errorCode=1), topicId=T_ID)) == []
    assert wanted(follower.asked()) == [(T_ID, 0)]


def test_a_partition_that_this_node_leads_is_left_alone(made):
    follower = made()
    follower.asked()
    follower.table.set_leader("t", 0, leader_id=2, leader_epoch=3)
    assert follower.take(answer(part(records=placed(0)), topicId=T_ID)) == []
    assert follower.logs["t", 0].end_offset == 0


def test_an_answer_about_others_is_ignored(made):
    follower = made()
    follower.asked()
    assert follower.take(answer(part(9, records=placed(0)), topicId=T_ID)) == []
    follower.asked()
    assert follower.take(answer(part(0, records=placed(0)), topicId=U_ID)) == []


WAITING = [
    ({"divergingEpoch": diverging(1, 4)}, "diverged", (1, 4)),
    ({"errorCode": 1}, "out of range", 0),
    ({"errorCode": 74}, "fenced", 2),
]


@pytest.mark.parametrize(("fields", "kind", "detail"), WAITING)
def test_a_partition_waits_until_it_is_restarted(made, fields, kind, detail):
    follower = made()
    follower.asked()
    assert follower.take(answer(part(**fields), topicId=T_ID)) == [("t", 0, kind, detail)]
    assert follower.fetches.waits("t", 0)
    assert follower.asked() is None
    assert follower.fetches.delay_ns(0) is None
    follower.fetches.restart("t", 0)
    asked = follower.asked()
    assert (wanted(asked), forgotten(asked)) == ([], [])  # the session has it still


DELAYED = [(75, "unknown epoch"), (6, "not leader"), (3, "unknown topic"), (100, "unknown topic")]


@pytest.mark.parametrize(("code", "kind"), [*DELAYED, (56, "error"), (-1, "error")])
def test_a_partition_with_an_error_is_delayed_and_forgotten_meanwhile(made, code, kind):
    follower = made({"t": (T_ID, 2)}, backoff_ms=50)
    follower.asked()
    assert follower.take(answer(part(errorCode=code), topicId=T_ID)) == [("t", 0, kind, code)]
    asked = follower.asked()
    assert (wanted(asked), forgotten(asked)) == ([], [(T_ID, 0)])
    follower.take(answer())
    follower.now_ns = 50 * MS
    assert wanted(follower.asked()) == [(T_ID, 0)]


@pytest.mark.parametrize("code", [code for code, _ in DELAYED])
def test_a_leader_that_does_not_lead_yet_is_asked_again_soon(made, code):
    """The controller asks all brokers at the same time, so a follower may be first. It waited 1 s,
    and with it every write with acks=all."""
    follower = made({"t": (T_ID, 2)}, backoff_ms=100, wait_max_ms=500)
    follower.asked()
    delays_ms = []
    for _ in range(6):
        follower.take(answer(part(errorCode=code), topicId=T_ID))
        asked = follower.asked()
        assert (wanted(asked), forgotten(asked)) == ([], [(T_ID, 0)])
        delays_ms.append(follower.fetches.delay_ns(follower.now_ns) // MS)
        # The other partition has no records: this request must not keep the first one back.
        assert asked.maxWaitMs == delays_ms[-1]
        follower.take(answer())
        follower.now_ns += delays_ms[-1] * MS
        assert wanted(follower.asked()) == [(T_ID, 0)]
    assert delays_ms == [10, 20, 40, 80, 100, 100]
    follower.take(answer(part(records=placed(0)), topicId=T_ID))
    assert follower.asked().maxWaitMs == 500
    follower.take(answer(part(errorCode=code), topicId=T_ID))
    assert follower.fetches.delay_ns(follower.now_ns) == 10 * MS
    follower.fetches.add("t", 0, T_ID, 3)
    assert wanted(follower.asked()) == [(T_ID, 0)]


@pytest.mark.parametrize(
    "records",
    [
        placed(0)[:-1] + b"\1",
        placed(0)[:40],  # the first batch must be whole
        placed(0) + placed(0),
        placed(0, 3),  # of a later epoch than the leader's
    ],
)
def test_damaged_records_delay_a_partition(made, records):
    follower = made()
    follower.asked()
    events = follower.take(answer(part(records=records, highWatermark=1), topicId=T_ID))
    assert events == [("t", 0, "corrupt", 0)]
    assert follower.asked() is None


def test_a_start_inside_a_batch_begins_the_log_at_the_batch(made):
    """DeleteRecords moved the leader's log start into a batch; this follower begins there."""
    follower = made()
    log = follower.logs["t", 0]
    log.truncate_fully_and_start_at(7)
    follower.asked()
    records = placed(5, 2, *[b"v"] * 4)
    data = answer(part(records=records, highWatermark=9, logStartOffset=7), topicId=T_ID)
    assert follower.take(data) == [("t", 0, "below start", 5)]
    log.truncate_fully_and_start_at(5)
    follower.fetches.restart("t", 0, read_from=7)
    assert follower.asked().topics[0].partitions[0].fetchOffset == 7
    assert follower.take(data) == []
    assert (log.start_offset, log.end_offset) == (7, 9)
    assert follower.asked().topics[0].partitions[0].fetchOffset == 9


def test_a_restart_moves_the_high_watermark_into_the_log(made):
    follower = made()
    follower.asked()
    records = b"".join(placed(offset) for offset in range(5))
    follower.take(answer(part(records=records, highWatermark=5), topicId=T_ID))
    follower.logs["t", 0].truncate_to(3)
    follower.fetches.restart("t", 0)
    assert follower.high_watermark("t") == 3


def test_a_full_disk_delays_and_a_lost_log_waits(made):
    follower = made(backoff_ms=10)
    follower.logs["t", 0].append_as_follower(placed(0))  # opens the indexes
    data = answer(part(records=placed(1), highWatermark=1), topicId=T_ID)
    follower.asked()
    follower.system.fault("pwritev", "error", errno=errno.ENOSPC)
    assert follower.take(data) == [("t", 0, "storage", 1)]
    follower.now_ns = 10 * MS
    assert follower.asked() is not None
    follower.system.fault("pwritev", "error", errno=errno.EIO)
    follower.system.fault("ftruncate", "error", errno=errno.EIO)
    assert follower.take(data) == [("t", 0, "offline", None)]
    assert follower.logs["t", 0].offline
    follower.now_ns = 99 * MS
    assert follower.asked() is None


def test_a_log_that_is_lost_between_answers_is_reported(made):
    follower = made({"t": (T_ID, 2)})
    follower.table.set_offline("t", 1)
    assert wanted(follower.asked()) == [(T_ID, 0)]
    assert follower.take(answer()) == [("t", 1, "offline", None)]


def test_each_cut_and_changed_answer_is_refused_or_harmless(made):
    follower = made()
    data = answer(
        part(records=placed(0), highWatermark=1, divergingEpoch=diverging(-1, -1)), topicId=T_ID
    )
    whole = response(1).encode(data, follower.version)
    follower.asked()
    for end in range(len(whole)):
        with pytest.raises(MalformedFetchAnswer):
            follower.fetches.take_response(whole[:end], 0)
    with pytest.raises(MalformedFetchAnswer):
        follower.fetches.take_response(whole + b"\0", 0)
    assert follower.logs["t", 0].end_offset == 0
    log = follower.logs["t", 0]
    base = whole.index(placed(0))  # the CRC covers neither a batch's offset nor its epoch
    for at in set(range(len(whole))) - set(range(base, base + 8)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            wrong = bytearray(whole)
            wrong[at] = value
            try:
                follower.fetches.take_response(bytes(wrong), 0)
            except MalformedFetchAnswer:
                pass
            assert log.end_offset in (0, 1)
            log.truncate_to(0)
            follower.fetches.add("t", 0, T_ID, 2)
            follower.asked()


def test_no_answer_is_taken_before_a_request(made):
    with pytest.raises(MalformedFetchAnswer):
        made().take(answer())


# ----------------------------------------------------------------------------------------- flushes


def test_with_fsync_a_partition_is_asked_for_when_its_records_are_durable(made):
    follower = made({"t": (T_ID, 2)}, durability="fsync")
    follower.group.held = True
    follower.asked()
    follower.take(answer(part(records=placed(0), highWatermark=0), topicId=T_ID))
    asked = follower.asked()
    assert (wanted(asked), forgotten(asked), asked.maxWaitMs) == ([], [(T_ID, 0)], 0)
    assert follower.fetches.wait_flushed(1) is False
    follower.group.held = False
    assert follower.fetches.wait_flushed(10_000) is True
    assert follower.logs["t", 0].flushed_offset == 1
    assert follower.high_watermark("t") == 0  # the leader says what is committed, not the flush
    follower.take(answer())
    asked = follower.asked()
    assert wanted(asked) == [(T_ID, 0)]
    assert asked.topics[0].partitions[0].fetchOffset == 1


def test_with_fsync_no_record_is_sent_twice(made, leader):
    follower = made(of(leader), durability="fsync", max_bytes=2000, fetches_as=CONSUMER)
    for number in range(40):
        leader.append("t", number % 2, batch(bytes(300)))
    total = sum(len(log.read(0)) for log in leader.logs.values())
    while sum(log.end_offset for log in follower.logs.values()) < 40:
        assert follower.fetches.wait_flushed(10_000)
        assert follower.round(leader) == []
    assert follower.fetches.counters()["bytes"] == total


def test_a_failed_flush_is_reported(made):
    follower = made(durability="fsync")
    follower.asked()
    follower.system.fault("fdatasync", "error", errno=errno.EIO)
    follower.take(answer(part(records=placed(0)), topicId=T_ID))
    assert follower.fetches.wait_flushed(10_000)
    assert follower.asked() is None
    assert follower.fetches.take_events() == [("t", 0, "offline", None)]


# ------------------------------------------------------------------------------------------ limits


def test_arguments_are_checked(made):
    follower = made()
    for version in (VERSION_MIN - 1, VERSION_MAX + 1):
        with pytest.raises(ValueError):
            follower.fetches.next_request(version, 0)
    with pytest.raises(ValueError):
        follower.fetches.add("t", 0, b"short", 0)
    assert follower.fetches.remove("nobody", 0) is False
    follower.fetches.restart("nobody", 0)


def test_many_partitions_come_and_go(made):
    """The map of partitions finds each one after others have moved to its place."""
    follower = made({"t": (T_ID, 200)}, log_settings=LogSettings(segment_index_bytes=24))
    for index in range(0, 200, 3):
        assert follower.fetches.remove("t", index)
    left = {index for index in range(200) if index % 3}
    assert {row[1] for row in follower.fetches.partitions()} == left
    assert {index for _, index in wanted(follower.asked())} == left
    parts = [part(index, records=placed(0), highWatermark=1) for index in range(200)]
    assert follower.take(answer(*parts, topicId=T_ID)) == []
    assert {key[1] for key, log in follower.logs.items() if log.end_offset} == left


@pytest.mark.parametrize("version", VERSIONS)
def test_a_follower_moves_the_high_watermark_of_its_leader(made, leader, version):
    """It reads to the end of the leader's log, and its next fetch says that it has the records."""
    leader.table.set_leader("t", 0, leader_id=1, leader_epoch=2, replicas=(1, 2), isr=(1, 2))
    follower = made({"t": (leader.topic_ids["t"], 1)}, version=version)
    for _ in range(5):
        leader.append_unseen("t", 0, batch(b"v"))
    handle = leader.parts["t", 0]
    assert follower.round(leader) == []
    assert (follower.logs["t", 0].end_offset, follower.high_watermark("t")) == (5, 0)
    assert handle.high_watermark == 0
    assert follower.round(leader) == []
    assert (handle.high_watermark, follower.high_watermark("t")) == (5, 5)
