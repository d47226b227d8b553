"""Commits that network threads take: the same answers, records and offsets as Python's, and none
after a group has changed. Damage, limits and what is not plain go to Python."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from compat.support import Wire, create_topic
from groups.native_broker import (
    ENTRIES_MAX,
    PATIENCE_S,
    Member,
    batches,
    body,
    commit,
    fetched,
    journal_of,
    native_of,
    records,
    settled,
    started,
    table_of,
)

from barnabas.coordinator.groups.group_records import read_record
from barnabas.wire import request
from barnabas.wire.batches import decode_batches
from barnabas.wire.headers import encode_request
from barnabas.wire.internal import CONSUMER_OFFSETS


@pytest.fixture(params=["fsync", "os"])
def broker(tmp_path, request):
    with started(tmp_path, {"log.durability": request.param}) as broker:
        yield broker


ROWS = [(0, 5, "", -1), (2, 7, "note", 3)]


@pytest.mark.parametrize("version", range(2, 11))
def test_answers_and_records_are_those_of_python(broker, version):
    native = native_of(broker)
    by_id = broker.node.loaded.replicas.partition("t", 0).topic_id
    asked = body(ROWS if version >= 6 else [(*row[:3], -1) for row in ROWS], by_id=by_id)
    frame = encode_request(8, version, 77, "compat", asked)
    with closing(Wire(broker.bootstrap_servers)) as wire:
        by_python = wire.call_raw(frame)
        assert native.served == 0
        assert wire.call_raw(frame) == by_python
        assert native.served == 1
    first, second = records(broker)[:2], records(broker)[2:]
    assert [row.committed.offset for row in first] == [5, 7]
    for mine, theirs in zip(second, first, strict=True):
        assert mine[:3] == theirs[:3]
        assert mine.committed._replace(commit_ms=0) == theirs.committed._replace(commit_ms=0)
        assert abs(mine.committed.commit_ms - time.time() * 1000) < 60_000
    epoch = 3 if version >= 6 else -1
    assert fetched(broker) == [(5, "", -1), (-1, "", -1), (7, "note", epoch)]


def test_what_was_answered_is_seen_at_once_and_after_a_restart(broker):
    with closing(Wire(broker.bootstrap_servers)) as wire:
        for offset in range(50):
            assert commit(wire, [(1, offset, "", -1)]) == [0]
            assert fetched(broker)[1][0] == offset
    assert native_of(broker).served == 49
    broker.restart()
    deadline = time.monotonic() + PATIENCE_S
    while fetched(broker)[1][0] == -1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert fetched(broker)[1][0] == 49


@pytest.mark.parametrize(
    ("rows", "version", "more", "codes"),
    [
        ([(0, 1, "", -1)], 3, {"retentionTimeMs": 60_000}, [0]),
        ([(0, 1, "né", -1)], 8, {}, [0]),
        ([(0, 1, "m" * 5000, -1)], 8, {}, [12]),
        ([(0, 1, "", -1), (9, 1, "", -1)], 8, {}, [0, 3]),
        ([(0, 1, "", -1)], 1, {}, [0]),
        ([(0, 1, "", -1)], 8, {"group": "another"}, [0]),
        ([(0, 1, "", -1)], 8, {"generation": 4}, [25]),
        ([(i % 3, i, "", -1) for i in range(200)], 8, {}, [0] * 200),
    ],
)
def test_what_is_not_plain_goes_to_python(broker, rows, version, more, codes):
    with closing(Wire(broker.bootstrap_servers)) as wire:
        assert commit(wire, [(0, 0, "", -1)]) == [0]
        assert commit(wire, rows, version=version, **more) == codes
        assert native_of(broker).served == 0
        assert commit(wire, [(0, 2, "", -1)]) == [0]
        assert native_of(broker).served == 1 and fetched(broker)[0][0] == 2


@pytest.mark.parametrize("version", [2, 7, 8, 10])
def test_damage_closes_the_connection_and_journals_nothing(tmp_path, version):
    with started(tmp_path) as broker:
        whole = encode_request(8, version, 1, "c", body(ROWS))[4:]
        with closing(Wire(broker.bootstrap_servers)) as wire:
            assert commit(wire, ROWS) == [0, 0]
        head = len(encode_request(8, version, 1, "c", body([]))) - 4
        damaged = [whole[:at] for at in range(len(whole) - 1, 12, -3)]
        before = len(records(broker))
        for frame in damaged:
            with closing(Wire(broker.bootstrap_servers)) as wire, suppress(ConnectionError):
                wire.call_raw(len(frame).to_bytes(4, "big") + frame)
                assert len(frame) < head, frame
        assert len(records(broker)) == before and native_of(broker).served == 0
        with closing(Wire(broker.bootstrap_servers)) as wire, suppress(ConnectionError):
            surplus = whole + b"\0"  # what becomes of it is Python's to say
            wire.call_raw(len(surplus).to_bytes(4, "big") + surplus)
        assert native_of(broker).served == 0


def test_what_was_committed_again_makes_room(broker):
    """However many commits of the same keys: Python is not asked to take them over."""
    native = native_of(broker)
    with closing(Wire(broker.bootstrap_servers)) as wire:
        for offset in range(4 * ENTRIES_MAX):
            index = 2 if offset < 100 and offset % 5 == 0 else 0
            assert commit(wire, [(index, offset, f"m{offset}", -1)]) == [0]
            assert native.waiting <= ENTRIES_MAX
    assert native.served == 4 * ENTRIES_MAX - 1
    last = 4 * ENTRIES_MAX - 1
    assert fetched(broker) == [(last, f"m{last}", -1), (-1, "", -1), (95, "m95", -1)]
    assert native.waiting == 0
    assert [row.committed.offset for row in records(broker)] == list(range(4 * ENTRIES_MAX))


def test_more_keys_than_the_native_handler_keeps_are_taken_over(broker):
    create_topic(broker.bootstrap_servers, "u", ENTRIES_MAX)
    native = native_of(broker)
    with closing(Wire(broker.bootstrap_servers)) as wire:
        for topic in "tuuu":
            for index in range(3 if topic == "t" else ENTRIES_MAX):
                asked = body([(index, index, "", -1)])
                asked.topics[0].name = topic
                told = wire.call(8, 8, asked)
                assert told.topics[0].partitions[0].errorCode == 0
                assert native.waiting <= ENTRIES_MAX
    assert 3 * ENTRIES_MAX - 10 < native.served < 3 * ENTRIES_MAX + 2
    known = broker.node.serving.coordinators.groups.offsets.of("g")
    assert {index: row.offset for index, row in known["u"].items()} == {
        index: index for index in range(ENTRIES_MAX)
    }
    assert len(known["t"]) == 3 and native.waiting == 0


@pytest.mark.parametrize("instance", [None, "one"])
def test_a_member_commits_in_its_generation_alone(broker, instance):
    native = native_of(broker)
    member = settled(broker, instance=instance)
    assert member.commit(1) == 0 and member.commit(2) == 0 and native.served == 2
    assert member.commit(3, generation=member.generation + 1) == 22
    assert member.commit(3, generation=-1, member="") in (25, 82)
    assert member.commit(3, member="stranger") in (25, 82)
    assert native.served == 2
    other = Member(broker)
    joining = threading.Thread(target=other.join)
    joining.start()
    deadline = time.monotonic() + PATIENCE_S
    while broker.node.serving.coordinators.groups.groups["g"].state != "PreparingRebalance":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert member.commit(4) == 0 and native.served == 3
    old = member.generation
    member.join()
    joining.join(PATIENCE_S)
    assert member.commit(5, generation=old) == 22 and native.served == 3
    assert member.commit(5) == 27  # it does not know yet what it owns
    member.sync()
    assert member.commit(6) == 0 and member.commit(7) == 0 and native.served == 5
    assert fetched(broker)[0][0] == 7


def test_commits_alone_keep_a_member_alive(tmp_path):
    with started(tmp_path, {"group.min.session.timeout.ms": "1000"}) as broker:
        member = settled(broker, session_ms=20_000)
        for offset in range(6):
            assert member.commit(offset) == 0
            broker.clock.advance(seconds=15)
        assert native_of(broker).served == 6
        group = broker.node.serving.coordinators.groups.groups["g"]
        assert list(group.members) == [member.id]
        broker.clock.advance(seconds=21)
        deadline = time.monotonic() + PATIENCE_S
        while group.members and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not group.members and member.commit(9) in (22, 25)


def test_what_is_heard_before_a_rebalance_counts_in_it(tmp_path):
    with started(tmp_path) as broker:
        member = settled(broker, session_ms=20_000)
        assert member.commit(0) == 0
        broker.clock.advance(seconds=15)
        assert member.commit(1) == 0 and native_of(broker).served == 2
        groups = broker.node.serving.coordinators.groups
        group, before_ms = groups.groups["g"], groups.groups["g"].members[member.id].deadline_ms
        with groups.lock:
            groups.rebalance(group)
            group.listen(group.members[member.id])
        assert group.members[member.id].deadline_ms > before_ms + 10_000


def test_a_group_that_is_deleted_takes_its_commits_along(broker):
    with closing(Wire(broker.bootstrap_servers)) as wire:
        for offset in range(5):
            assert commit(wire, [(0, offset, "", -1)]) == [0]
        assert wire.call(42, 1, request(42).cls(groupsNames=["g"])).results[0].errorCode == 0
        assert table_of(broker).count == 0 and fetched(broker)[0][0] == -1
        assert commit(wire, [(0, 9, "", -1)]) == [0]
        assert native_of(broker).served == 4 and fetched(broker)[0][0] == 9


def test_a_commit_waits_no_longer_than_the_timeout_and_is_not_seen_before_it_is_durable(tmp_path):
    with started(tmp_path, {"offsets.commit.timeout.ms": "200"}) as broker:
        with closing(Wire(broker.bootstrap_servers)) as wire:
            assert commit(wire, [(0, 1, "", -1)]) == [0]
            system = broker.node.system
            system.fault("fdatasync", "delay", delay_ms=2000, path_contains=CONSUMER_OFFSETS)
            assert commit(wire, [(0, 2, "", -1)]) == [15]
            assert native_of(broker).served == 1 and fetched(broker)[0][0] == 1
            system.clear_faults()
            deadline = time.monotonic() + PATIENCE_S
            while fetched(broker)[0][0] == 1 and time.monotonic() < deadline:
                time.sleep(0.05)
        assert fetched(broker)[0][0] == 2


def test_offsets_do_not_expire_while_a_commit_is_being_written(tmp_path):
    settings = {"offsets.retention.minutes": "5"}
    with started(tmp_path, settings) as broker, closing(Wire(broker.bootstrap_servers)) as wire:
        native, system = native_of(broker), broker.node.system
        assert commit(wire, [(0, 1, "", -1)]) == [0] and not native.has_waiting("g")
        broker.node.clock.move(6 * 60_000)
        rule = system.fault("fdatasync", "delay", delay_ms=1000, path_contains=CONSUMER_OFFSETS)
        with ThreadPoolExecutor(1) as other:
            new = other.submit(commit, wire, [(0, 2, "", -1)])
            deadline = time.monotonic() + PATIENCE_S
            while not native.has_waiting("g") and time.monotonic() < deadline:
                time.sleep(0.001)
            assert not native.has_waiting("h")
            assert (
                broker.node.serving.coordinators.group_administration.expire() == 0
                and not new.done()
            )
            assert new.result(PATIENCE_S) == [0]
        assert system.fired(rule) == 1 and native.served == 1
        assert broker.node.serving.coordinators.group_administration.expire() == 0
        assert fetched(broker)[0][0] == 2 and not native.has_waiting("g")
        broker.restart()
        deadline = time.monotonic() + PATIENCE_S
        while fetched(broker)[0][0] == -1 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert fetched(broker)[0][0] == 2


def test_a_log_that_fails_is_told_as_such(tmp_path):
    with started(tmp_path) as broker:
        with closing(Wire(broker.bootstrap_servers)) as wire:
            assert commit(wire, [(0, 1, "", -1)]) == [0]
            broker.node.system.fault("fdatasync", "error", errno=5, path_contains=CONSUMER_OFFSETS)
            assert commit(wire, [(0, 2, "", -1)]) == [16]
            assert native_of(broker).served == 1


def test_compressed_journals_have_no_native_handler(tmp_path):
    with started(tmp_path, {"offsets.topic.compression.codec": "1"}) as broker:
        assert broker.node.serving.coordinators.groups._native is None
        with closing(Wire(broker.bootstrap_servers)) as wire:
            assert commit(wire, [(0, 1, "", -1)]) == [0] and commit(wire, [(0, 2, "", -1)]) == [0]
        assert [batch.codec for batch in batches(broker)] == [1, 1]
        assert fetched(broker)[0][0] == 2


def test_offsets_load_buffer_size(tmp_path):
    """The same journal, loaded in small reads and in one."""
    reads = []
    for size_bytes in ("256", "1000000"):
        with started(tmp_path / size_bytes, {"offsets.load.buffer.size": size_bytes}) as broker:
            with closing(Wire(broker.bootstrap_servers)) as wire:
                for offset in range(60):
                    assert commit(wire, [(0, offset, "", -1)]) == [0]
            system = broker.node.system
            rule = system.fault(
                "pread", "delay", delay_ms=1, count=1 << 30, path_contains=CONSUMER_OFFSETS
            )
            broker.restart()
            deadline = time.monotonic() + PATIENCE_S
            while fetched(broker)[0][0] != 59 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert fetched(broker)[0][0] == 59
            reads.append(system.fired(rule))
    assert reads[0] > reads[1] + 15


def test_forgotten_partitions_leave_nothing(broker):
    native, table = native_of(broker), table_of(broker)
    with closing(Wire(broker.bootstrap_servers)) as wire:
        for offset in range(5):
            assert commit(wire, [(0, offset, "", -1)]) == [0]
    partition = broker.node.serving.coordinators.groups.journal.partition_of("g")
    assert (table.count, native.waiting) == (1, 4)
    native.forget((partition + 1) % 50)
    assert (table.count, native.waiting) == (1, 4)
    native.forget(partition)
    assert (table.count, native.waiting, native.take()) == (0, 0, [])


ROUNDS = 400


def test_memory_and_log_agree_on_who_came_last(broker):
    """Two clients commit the same partition at about the same time, one of them through Python."""
    log = journal_of(broker)
    coordinator = broker.node.serving.coordinators.groups
    rng = random.Random(7)
    together, told = threading.Barrier(2), []

    def through_python():
        with closing(Wire(broker.bootstrap_servers)) as wire:
            for at in range(ROUNDS):
                together.wait(PATIENCE_S)
                told.append(commit(wire, [(0, 2 * at, "\u00fc", -1)]))
                together.wait(PATIENCE_S)

    other = threading.Thread(target=through_python, daemon=True)
    with closing(Wire(broker.bootstrap_servers)) as wire:
        assert commit(wire, [(0, 0, "", -1)]) == [0]
        other.start()
        for at in range(ROUNDS):
            before = log.end_offset
            together.wait(PATIENCE_S)
            time.sleep(rng.random() * 0.001)
            assert commit(wire, [(0, 2 * at + 1, "", -1)]) == [0]
            together.wait(PATIENCE_S)
            read = decode_batches(log.read(before, 1 << 20), size_max=1 << 20)
            last = [record for batch in read for record in batch.records][-1]
            with coordinator.lock:
                known = coordinator.offsets.get("g", "t", 0)
            assert known.offset == read_record(last).committed.offset, at
    other.join(PATIENCE_S)
    assert told == [[0]] * ROUNDS and native_of(broker).served > 5
