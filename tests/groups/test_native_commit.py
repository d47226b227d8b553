"""Commits on network threads: responses, records and offsets in every version, errors,
limits and malformed requests. No commit is written after a change of its group that refuses it."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from compat.support import Wire, create_topic
from groups.native_broker import (
    ENTRIES_MAX,
    OFFSETS_PARTITIONS,
    PATIENCE_S,
    Member,
    answer,
    batches,
    body,
    commit,
    fetched,
    native_of,
    passed_to_python,
    records,
    settled,
    started,
    states_of,
    table_of,
)

from barnabas.coordinator.groups.group_records import Committed
from barnabas.wire import request
from barnabas.wire.headers import encode_request
from barnabas.wire.internal import CONSUMER_OFFSETS

pytestmark = pytest.mark.one_of("fsync", "os")


@pytest.fixture(params=["fsync", "os"])
def broker(tmp_path, request):
    with started(tmp_path, {"log.durability": request.param}) as broker:
        yield broker


ROWS = [(0, 5, "", -1), (2, 7, "note", 3)]


@pytest.mark.parametrize("version", range(1, 11))
def test_answers_and_records_of_each_version(broker, version):
    by_id = broker.node.loaded.replicas.partition("t", 0).topic_id
    asked = body(ROWS if version >= 6 else [(*row[:3], -1) for row in ROWS], by_id=by_id)
    frame = encode_request(8, version, 77, "compat", asked)
    with closing(Wire(broker.bootstrap_servers)) as wire:
        for _ in range(2):
            assert wire.call_raw(frame) == answer(8, version, asked, [0, 0])
    assert native_of(broker).served == 2 and [len(row.records) for row in batches(broker)] == [2, 2]
    epoch = 3 if version >= 6 else -1
    wanted = [("g", "t", 0, Committed(5, -1, "", 0)), ("g", "t", 2, Committed(7, epoch, "note", 0))]
    for found, row in zip(records(broker), wanted * 2, strict=True):
        assert found._replace(committed=found.committed._replace(commit_ms=0)) == row
        assert abs(found.committed.commit_ms - time.time() * 1000) < 60_000
    assert fetched(broker) == [(5, "", -1), (-1, "", -1), (7, "note", epoch)]


@pytest.mark.parametrize(
    ("version", "commit_ms", "retention_ms", "wanted"),
    [
        (1, 1234, -1, (1234, -1)),
        (1, -5, -1, (0, -1)),
        (2, -1, 60_000, (0, 60_000)),
        (4, -1, 0, (0, 0)),
        (4, -1, -1, (0, -1)),
        (3, -1, (1 << 63) - 1, (0, (1 << 63) - 1)),
    ],
)
def test_times_that_old_clients_send(broker, version, commit_ms, retention_ms, wanted):
    """In the log, in memory, and loaded from the log: (commit, expiry), relative to now."""
    asked = body([(0, 5, "m", -1)])
    asked.topics[0].partitions[0].commitTimestamp = commit_ms
    asked.retentionTimeMs = retention_ms
    began_ms = int(time.time() * 1000)
    with closing(Wire(broker.bootstrap_servers)) as wire:
        told = wire.call(8, version, asked)
        assert told.topics[0].partitions[0].errorCode == 0
    (record,) = records(broker)
    groups = broker.node.serving.coordinators.groups
    with groups.lock:
        held = groups.offsets.get("g", "t", 0)
    assert record.committed == held and (held.offset, held.metadata) == (5, "m")
    base_ms = 0 if wanted[0] else held.commit_ms
    if base_ms:
        assert began_ms <= base_ms < began_ms + 60_000
    assert held.commit_ms == base_ms + wanted[0]
    assert held.expire_ms in (wanted[1], base_ms + wanted[1])


def test_what_was_answered_is_seen_at_once_and_after_a_restart(broker):
    with closing(Wire(broker.bootstrap_servers)) as wire:
        for offset in range(50):
            assert commit(wire, [(1, offset, "", -1)]) == [0]
            assert fetched(broker)[1][0] == offset
    assert native_of(broker).served == 50
    broker.restart()
    deadline = time.monotonic() + PATIENCE_S
    while fetched(broker)[1][0] == -1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert fetched(broker)[1][0] == 49


@pytest.mark.parametrize(
    ("rows", "version", "more", "codes"),
    [
        ([(0, 1, "n\u00e9\u20ac\U0001f600", -1)], 8, {}, [0]),
        ([(0, 1, "", -1)], 8, {"group": "gr\u00fc\u00df \U0001f600"}, [0]),
        ([(0, 1, "", -1)], 8, {"group": ""}, [0]),
        ([(0, 1, None, -1)], 10, {}, [0]),
        ([(0, 1, "m" * 5000, -1)], 8, {}, [12]),
        ([(0, 1, "", -1), (9, 1, "", -1)], 8, {}, [0, 3]),
        ([(0, 1, "m" * 5000, -1), (-1, 1, "", -1), (2, 1, "", -1)], 8, {}, [12, 3, 0]),
        ([(0, 1, "", -1), (9, 1, "", -1)], 10, {"by_id": bytes([7]) * 16}, [100, 100]),
        ([(0, 1, "", -1)], 8, {"group": "another"}, [0]),
        ([(0, 1, "", -1)], 8, {"generation": 4}, [25]),
        ([(0, 1, "m" * 5000, -1), (9, 1, "", -1)], 8, {"generation": 4}, [25, 3]),
        ([(9, 1, "", -1)], 8, {"generation": 4}, [3]),
        ([(0, 1, "", -1)], 8, {"group": "another", "generation": 4}, [22]),
        ([(0, 1, "", -1)], 9, {"group": "another", "generation": 4, "member": "m"}, [69]),
        ([(i % 3, i, "", -1) for i in range(200)], 8, {}, [0] * 200),
        ([(i % 3, i, "m" * 4000, -1) for i in range(300)], 8, {}, [28] * 300),
        ([], 8, {}, []),
    ],
)
def test_rows_and_groups_of_all_kinds(broker, rows, version, more, codes):
    passed_on = passed_to_python(broker)
    if version == 10 and "by_id" not in more:
        more = {**more, "by_id": broker.node.loaded.replicas.partition("t", 0).topic_id}
    with closing(Wire(broker.bootstrap_servers)) as wire:
        assert commit(wire, [(0, 0, "", -1)]) == [0]
        assert commit(wire, rows, version=version, **more) == codes
        assert native_of(broker).served == 1 + (0 in codes)
        if 0 in codes:
            group = more.get("group", "g")
            kept = {row[0]: row[1:3] for row, code in zip(rows, codes, strict=True) if not code}
            for index, row in kept.items():
                assert fetched(broker, group)[index][:2] == (row[0], row[1] or "")
        assert commit(wire, [(0, 2, "", -1)]) == [0]
        assert fetched(broker)[0][0] == 2 and not passed_on


def test_the_state_of_the_partition_of_offsets(broker):
    states, led = states_of(broker), 2
    at = broker.node.serving.coordinators.groups.journal.partition_of("g")
    rows = [(0, 1, "", -1), (9, 1, "", -1)]
    with closing(Wire(broker.bootstrap_servers)) as wire:
        for make_first in (False, True):
            if make_first:
                assert commit(wire, rows) == [0, 3]
            for state, code in ((1, 14), (0, 16)):
                states.set(at, state)
                assert commit(wire, rows) == [code, 3]
                assert commit(wire, rows, generation=4, member="m") == [code, 3]
            states.set(at, led)
        assert commit(wire, rows) == [0, 3] and native_of(broker).served == 2
        table_of(broker).close()
        assert commit(wire, rows) == [15, 3]


def test_ids_of_share_groups(broker):
    table = table_of(broker)
    table.put("g", broker.node.serving.coordinators.groups.journal.partition_of("g"), kind="share")
    with closing(Wire(broker.bootstrap_servers)) as wire:
        assert commit(wire, ROWS) == [69, 69] == commit(wire, ROWS, generation=1, member="m")
        table.remove("g")
        assert commit(wire, ROWS) == [0, 0]


def test_text_that_is_not_utf8_closes_the_connection(broker):
    frame = encode_request(8, 8, 77, "compat", body([(0, 5, "MMMM", -1)], group="GGGG"))
    for bad in (b"\xffabc", b"ab\xc3(", b"\xed\xa0\x80x", b"\xf4\x90\x80\x80", b"abc\xe2"):
        for good in (b"MMMM", b"GGGG"):
            with closing(Wire(broker.bootstrap_servers)) as wire, pytest.raises(ConnectionError):
                wire.call_raw(frame.replace(good, bad))
    assert native_of(broker).served == 0


def test_groups_that_commits_make_are_known_to_every_request(broker):
    """ListGroups, DescribeGroups, DeleteGroups, a member that joins, and a restart."""
    with closing(Wire(broker.bootstrap_servers)) as wire:
        assert commit(wire, ROWS) == [0, 0] and commit(wire, ROWS, group="h") == [0, 0]
        ask = request(16)
        assert sorted(row.groupId for row in wire.call(16, 1, ask.cls()).groups) == ["g", "h"]
        told = wire.call(15, 0, request(15).cls(groups=["g", "i"])).groups
        assert [row.groupState for row in told] == ["Empty", "Dead"]
        assert commit(wire, ROWS, group="i") == [0, 0]
        assert wire.call(42, 1, request(42).cls(groupsNames=["i"])).results[0].errorCode == 0
        member = settled(broker)
        assert commit(wire, ROWS) == [25, 25] and member.commit(9) == 0
        broker.restart()
    deadline = time.monotonic() + PATIENCE_S
    while fetched(broker)[0][0] != 9 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert set(broker.node.serving.coordinators.groups.groups) == {"g", "h"}


def test_commits_of_a_group_on_hold_wait(broker):
    table, native = table_of(broker), native_of(broker)
    at = broker.node.serving.coordinators.groups.journal.partition_of("g")
    with closing(Wire(broker.bootstrap_servers)) as wire, ThreadPoolExecutor(4) as others:
        table.hold("g")
        table.hold("g")
        made = []
        for offset in range(3):
            other = Wire(broker.bootstrap_servers)
            made.append(others.submit(commit, other, [(0, offset, "", -1)]))
        assert commit(wire, ROWS, group="h") == [0, 0]
        table.release("g", at)
        time.sleep(0.2)
        assert not any(row.done() for row in made) and native.served == 1
        table.release("g", at)
        assert [row.result(PATIENCE_S) for row in made] == [[0]] * 3 and native.served == 4


def test_a_commit_waits_for_the_end_of_a_hold_no_longer_than_the_timeout(tmp_path):
    with started(tmp_path, {"offsets.commit.timeout.ms": "200"}) as broker:
        with closing(Wire(broker.bootstrap_servers)) as wire:
            table_of(broker).hold("g")
            assert commit(wire, [(0, 2, "", -1), (9, 1, "", -1)]) == [15, 3]
            table_of(broker).release("g")
            assert commit(wire, [(0, 2, "", -1)]) == [0] and len(records(broker)) == 1


@pytest.mark.parametrize("version", [2, 7, 8, 10])
def test_damage_closes_the_connection_and_journals_nothing(tmp_path, version):
    with started(tmp_path) as broker:
        by_id = broker.node.loaded.replicas.partition("t", 0).topic_id
        whole = encode_request(8, version, 1, "c", body(ROWS, by_id=by_id))[4:]
        with closing(Wire(broker.bootstrap_servers)) as wire:
            assert commit(wire, ROWS) == [0, 0]
        head = len(encode_request(8, version, 1, "c", body([]))) - 4
        damaged = [whole[:at] for at in range(len(whole) - 1, 12, -3)]
        before, served = len(records(broker)), native_of(broker).served
        for frame in damaged:
            with closing(Wire(broker.bootstrap_servers)) as wire, suppress(ConnectionError):
                wire.call_raw(len(frame).to_bytes(4, "big") + frame)
                assert len(frame) < head, frame
        assert len(records(broker)) == before and native_of(broker).served == served
        with closing(Wire(broker.bootstrap_servers)) as wire:
            surplus = whole + b"\0"  # ignored, as Kafka does
            wire.call_raw(len(surplus).to_bytes(4, "big") + surplus)
        assert native_of(broker).served == served + 1


def test_repeated_commits_free_entries(broker):
    """Any number of commits of the same keys do not make Python take them over."""
    native = native_of(broker)
    with closing(Wire(broker.bootstrap_servers)) as wire:
        for offset in range(4 * ENTRIES_MAX):
            index = 2 if offset < 100 and offset % 5 == 0 else 0
            assert commit(wire, [(index, offset, f"m{offset}", -1)]) == [0]
            assert native.waiting <= ENTRIES_MAX
    assert native.served == 4 * ENTRIES_MAX
    last = 4 * ENTRIES_MAX - 1
    assert fetched(broker) == [(last, f"m{last}", -1), (-1, "", -1), (95, "m95", -1)]
    assert native.waiting == 0
    assert [row.committed.offset for row in records(broker)] == list(range(4 * ENTRIES_MAX))


def test_more_keys_than_the_native_handler_keeps_are_taken_over(broker):
    create_topic(broker.bootstrap_servers, "u", ENTRIES_MAX)
    native, passed_on = native_of(broker), passed_to_python(broker)
    with closing(Wire(broker.bootstrap_servers)) as wire:
        for topic in "tuuu":
            for index in range(3 if topic == "t" else ENTRIES_MAX):
                asked = body([(index, index, "", -1)])
                asked.topics[0].name = topic
                told = wire.call(8, 8, asked)
                assert told.topics[0].partitions[0].errorCode == 0
                assert native.waiting <= ENTRIES_MAX
    assert native.served == 3 * ENTRIES_MAX + 3 and passed_on
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
    assert member.commit(5) == 27  # it does not have its assignment yet
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


def test_a_commit_before_a_rebalance_counts_as_a_heartbeat_in_it(tmp_path):
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
        assert native_of(broker).served == 6 and fetched(broker)[0][0] == 9


def test_a_commit_waits_no_longer_than_the_timeout_and_is_not_seen_before_it_is_durable(tmp_path):
    with started(tmp_path, {"offsets.commit.timeout.ms": "200"}) as broker:
        with closing(Wire(broker.bootstrap_servers)) as wire:
            assert commit(wire, [(0, 1, "", -1)]) == [0]
            system = broker.node.system
            system.fault("fdatasync", "delay", delay_ms=2000, path_contains=CONSUMER_OFFSETS)
            assert commit(wire, [(0, 2, "", -1)]) == [15]
            assert native_of(broker).served == 2 and fetched(broker)[0][0] == 1
            system.clear_faults()
            deadline = time.monotonic() + PATIENCE_S
            while fetched(broker)[0][0] == 1 and time.monotonic() < deadline:
                time.sleep(0.05)
        assert fetched(broker)[0][0] == 2


def test_offsets_do_not_expire_while_a_commit_is_being_written(tmp_path):
    settings = {"offsets.retention.minutes": "5"}
    with started(tmp_path, settings) as broker, closing(Wire(broker.bootstrap_servers)) as wire:
        native, system = native_of(broker), broker.node.system
        assert commit(wire, [(0, 1, "", -1)]) == [0] and fetched(broker)[0][0] == 1
        assert not native.has_waiting("g")
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
        assert system.fired(rule) == 1 and native.served == 2
        assert broker.node.serving.coordinators.group_administration.expire() == 0
        assert fetched(broker)[0][0] == 2 and not native.has_waiting("g")
        broker.restart()
        deadline = time.monotonic() + PATIENCE_S
        while fetched(broker)[0][0] == -1 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert fetched(broker)[0][0] == 2


def test_a_log_that_fails_is_reported_as_such(tmp_path):
    with started(tmp_path) as broker:
        with closing(Wire(broker.bootstrap_servers)) as wire:
            assert commit(wire, [(0, 1, "", -1)]) == [0]
            broker.node.system.fault("fdatasync", "error", errno=5, path_contains=CONSUMER_OFFSETS)
            assert commit(wire, [(0, 2, "", -1)]) == [16]
            assert native_of(broker).served == 2


def test_the_codec_of_the_topic_is_for_what_python_writes(tmp_path):
    """A commit is a separate, uncompressed batch; the records of groups are compressed."""
    with started(tmp_path, {"offsets.topic.compression.codec": "1"}) as broker:
        member = settled(broker)
        assert member.commit(1) == 0 and member.commit(2) == 0
        assert [batch.codec for batch in batches(broker)] == [1, 0, 0]
        assert fetched(broker)[0][0] == 2


def test_offsets_load_buffer_size(tmp_path):
    """The same journal is loaded with many small reads and with one large one."""
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
    assert (table.count, native.waiting) == (1, 5)
    native.forget((partition + 1) % OFFSETS_PARTITIONS)
    assert (table.count, native.waiting) == (1, 5)
    native.forget(partition)
    assert (table.count, native.waiting, native.take()) == (0, 0, [])


def test_commits_beside_deletions_of_their_groups(broker):
    """Commits create groups that another client deletes: memory equals the log, and a restart
    loads the same."""
    groups, rounds = [f"g{at}" for at in range(4)], 60

    def commit_all(seed):
        rng = random.Random(seed)
        with closing(Wire(broker.bootstrap_servers)) as wire:
            for offset in range(rounds):
                rows = [(rng.randrange(3), offset, "", -1)]
                assert commit(wire, rows, group=rng.choice(groups)) == [0]

    def delete_all():
        rng = random.Random(9)
        with closing(Wire(broker.bootstrap_servers)) as wire:
            for _ in range(rounds):
                told = wire.call(42, 1, request(42).cls(groupsNames=[rng.choice(groups)]))
                assert told.results[0].errorCode in (0, 69)

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(commit_all, seed) for seed in range(3)]
        running.append(threads.submit(delete_all))
        for one in running:
            one.result(4 * PATIENCE_S)

    def in_the_log(group):
        kept = {}
        for row in records(broker, group):
            kept[row.partition] = -1 if row.committed is None else row.committed.offset
        return [kept.get(index, -1) for index in range(3)]

    wanted = {group: in_the_log(group) for group in groups}
    assert {group: [row[0] for row in fetched(broker, group)] for group in groups} == wanted
    known = set(broker.node.serving.coordinators.groups.groups)
    assert known >= {group for group in groups if max(wanted[group]) >= 0}
    broker.restart()
    journal = broker.node.serving.coordinators.groups.journal
    deadline = time.monotonic() + PATIENCE_S
    while not all(journal.led_partitions().values()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert {group: [row[0] for row in fetched(broker, group)] for group in groups} == wanted


@pytest.mark.parametrize(("between", "code"), [(None, 0), (2, 16)])
def test_a_later_leader_epoch_refuses_a_commit_only_if_another_broker_led(tmp_path, between, code):
    """The controller raises the epoch when a follower dies; the record stays in the log."""
    with started(tmp_path, {"log.durability": "os"}) as broker:
        native, own = native_of(broker), broker.node.node_id
        table = broker.node.loaded.replicas._table
        index = broker.node.serving.coordinators.groups.journal.partition_of("g")

        def lead(leader, epoch, isr):
            table.set_leader(
                CONSUMER_OFFSETS, index, leader_id=leader, leader_epoch=epoch,
                replicas=(own, own + 1), isr=isr,
            )  # fmt: skip

        lead(own, 1, (own, own + 1))
        with closing(Wire(broker.bootstrap_servers)) as wire, ThreadPoolExecutor(1) as other:
            waiting = other.submit(commit, wire, [(0, 1, "", -1)])
            deadline = time.monotonic() + PATIENCE_S
            while not native.has_waiting("g") and time.monotonic() < deadline:
                time.sleep(0.001)
            if between is not None:
                lead(between, 2, (between,))
            lead(own, 3, (own,))
            assert waiting.result(PATIENCE_S) == [code]
