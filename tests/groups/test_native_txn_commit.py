"""Offsets of transactions: responses, batches and offsets in every version. When the log does not
know the transaction, Python asks the transaction coordinator, and the network thread continues."""

import random
import threading
import time
from contextlib import closing

import pytest
from compat.support import Wire, create_topic
from groups.native_broker import (
    ENTRIES_MAX,
    PATIENCE_S,
    answer,
    batches,
    body,
    commit,
    journal_of,
    native_of,
    passed_to_python,
    settled,
    started,
    table_of,
)
from transactions.dialogue import Talk

from barnabas.coordinator.groups.group_records import OffsetRecord, read_record
from barnabas.wire.headers import encode_request
from barnabas.wire.internal import CONSUMER_OFFSETS

ROWS = [(0, 5, "", -1), (2, 7, "note", 3)]
UNSTABLE = 88


pytestmark = pytest.mark.one_of("fsync", "os")


@pytest.fixture(params=["fsync", "os"])
def broker(tmp_path, request):
    with started(tmp_path, {"log.durability": request.param}) as broker:
        yield broker


class Writer(Talk):
    """A transactional producer on a connection of its own, whose group is g."""

    def __init__(self, broker, name="w", init=True):
        super().__init__(broker.bootstrap_servers, name, again=True)
        self.topic, self.group = "t", "g"
        self.coordinator(self.group, 0)
        if init:
            self.producer = self.begun()

    def asked(self, rows, version=3, **more):
        given = dict(transactionalId=self.txn, producerId=self.producer[0])
        given |= dict(producerEpoch=self.producer[1], key=28)
        if version < 2:
            rows = [(*row[:3], -1) for row in rows]
        return body(rows, **{**given, **more})

    def commit(self, rows, version=3, **more):
        told = self.wire.call(28, version, self.asked(rows, version, **more))
        return [row.errorCode for topic in told.topics for row in topic.partitions]

    def ends(self, committed=True):
        """Sends EndTxn and waits for the response and the markers."""
        assert self.end(self.producer, committed) == 0
        assert self.state() == ("CompleteCommit" if committed else "CompleteAbort")

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.wire.close()


@pytest.fixture
def writer(broker):
    """Its group exists already."""
    with Writer(broker) as writer:
        make_group(broker)
        yield writer


def make_group(broker):
    with closing(Wire(broker.bootstrap_servers)) as wire:
        assert commit(wire, [(1, 1, "", -1)]) == [0]
    assert table_of(broker).count == 1 and native_of(broker).served == 1


def stored(broker):
    """(header fields, records) of the batches of the group's partition, markers included."""
    return [
        (
            (batch.magic, batch.codec, batch.timestamp_type, batch.transactional, batch.control),
            (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.leader_epoch),
            batch.last_offset - batch.base_offset,
            [read_record(record) for record in batch.records] if not batch.control else [],
            [(record.headers, record.timestamp - batch.max_timestamp) for record in batch.records],
        )
        for batch in batches(broker)
    ]


def without_times(found):
    *head, records, tail = found
    return (
        *head,
        [row._replace(committed=row.committed._replace(commit_ms=0)) for row in records],
        tail,
    )


def replayed(broker, group="g"):
    """Applies Kafka's rules to the log: committed offsets, and producers with pending ones. Of
    two commits for a partition the later one in the log counts."""
    counted, pending = {}, {}
    for batch in batches(broker, group):
        for record in batch.records:
            if batch.control:
                waited = pending.pop(batch.producer_id, {})
                if record.key[3] == 1:
                    for at, (place, offset) in waited.items():
                        if counted.get(at, (-1,))[0] < place:
                            counted[at] = place, offset
                continue
            row = read_record(record)
            if not isinstance(row, OffsetRecord) or row.group_id != group:
                continue
            rows = pending.setdefault(batch.producer_id, {}) if batch.transactional else counted
            rows[row.topic, row.partition] = record.offset, row.committed.offset
    return {at: offset for at, (_, offset) in counted.items()}, {
        (producer, at) for producer, rows in pending.items() for at in rows
    }


def known(broker, group="g"):
    """The same, from the coordinator's memory."""
    groups = broker.node.serving.coordinators.groups
    with groups.lock:
        rows = groups.offsets.of(group)
        counted = {(topic, at): row.offset for topic in rows for at, row in rows[topic].items()}
        pending = groups.offsets._pending.get(group, {})
        return counted, {(producer, at) for producer, rows in pending.items() for at in rows}


@pytest.mark.parametrize("version", range(7))
def test_answers_and_batches_of_each_version(broker, version):
    native = native_of(broker)
    by_id = broker.node.loaded.replicas.partition("t", 0).topic_id
    with Writer(broker) as writer:
        assert writer.add_offsets(writer.producer) == 0
        asked = writer.asked(ROWS, version, by_id=by_id)
        frame = encode_request(28, version, 77, "compat", asked)
        assert writer.wire.call_raw(frame) == answer(28, version, asked, [0, 0])
        assert (native.served, table_of(broker).count) == (1, 1)
        assert writer.wire.call_raw(frame) == answer(28, version, asked, [0, 0])
        first, second = stored(broker)
        assert without_times(first) == without_times(second)
        assert [row.committed.offset for row in second[3]] == [5, 7]
        assert second[1][:3] == (*writer.producer, -1)
        assert second[0] == (2, 0, 0, True, False) and second[2] == 1
        epoch = 3 if version >= 2 else -1
        for row in second[3]:
            assert abs(row.committed.commit_ms - time.time() * 1000) < 60_000
        assert second[3][1].committed.leader_epoch == epoch
        assert second[3][1].committed.metadata == "note"
        assert [headers for headers, _ in second[4]] == [()] * 2
        writer.ends()
        assert known(broker) == replayed(broker) == ({("t", 0): 5, ("t", 2): 7}, set())


@pytest.mark.parametrize(
    ("rows", "version", "more", "codes"),
    [
        ([(0, 1, "né", -1)], 3, {}, [0]),
        ([(0, 1, "m" * 5000, -1)], 3, {}, [12]),
        ([(0, 1, "", -1), (9, 1, "", -1)], 3, {}, [0, 3]),
        ([(9, 1, "", -1)], 3, {"producerId": 77}, [3]),
        ([(i % 3, i, "", -1) for i in range(200)], 3, {}, [0] * 200),
        ([(0, 1, "", -1)], 3, {"generation": 4, "member": "m"}, [25]),
        ([(0, 1, "", -1)], 3, {"group": "another", "generation": 4, "member": "m"}, [22]),
        ([(0, 1, "", -1)], 3, {"group": ""}, [24]),
        ([(0, 1, "", -1)], 3, {"transactionalId": ""}, [42]),
        ([(0, 1, "", -1)], 3, {"producerEpoch": 1}, [47]),
        ([(0, 1, "", -1)], 3, {"producerEpoch": -1}, [47]),
        ([(0, 1, "", -1)], 3, {"producerId": 77}, [49]),
        ([(0, 1, "", -1)], 3, {"producerId": -1}, [49]),
        ([(0, 1, "", -1)], 5, {"producerId": 77}, [49]),
    ],
)
def test_rows_and_producers_of_all_kinds(broker, writer, rows, version, more, codes):
    assert writer.add_offsets(writer.producer) == 0
    if "group" in more and more["group"]:
        writer.group = more["group"]
        assert writer.add_offsets(writer.producer) == 0
    passed_on = passed_to_python(broker)
    assert writer.commit(rows, version, **more) == codes
    assert passed_on == []
    assert native_of(broker).served == 1 + (0 in codes)
    assert writer.commit([(0, 2, "", -1)]) == [0] and passed_on == []
    assert native_of(broker).served == 2 + (0 in codes)
    writer.ends()
    assert known(broker)[0]["t", 0] == 2 and known(broker) == replayed(broker)


def test_fields_that_are_unknown_are_passed_over(broker, writer):
    assert writer.add_offsets(writer.producer) == 0
    frame = encode_request(28, 3, 77, "c", writer.asked(ROWS))
    plain = writer.wire.call_raw(frame)
    tagged = frame[4:-1] + b"\1\7\1x"
    assert writer.wire.call_raw(len(tagged).to_bytes(4, "big") + tagged) == plain
    assert native_of(broker).served == 3
    assert len(batches(broker)) == 3


@pytest.mark.parametrize("version", [0, 2, 3, 6])
def test_damage_closes_the_connection_and_journals_nothing(tmp_path, version):
    with started(tmp_path) as broker, Writer(broker) as writer:
        make_group(broker)
        assert writer.add_offsets(writer.producer) == 0
        by_id = broker.node.loaded.replicas.partition("t", 0).topic_id
        whole = encode_request(28, version, 1, "c", writer.asked(ROWS, version, by_id=by_id))[4:]
        before = journal_of(broker).end_offset
        for at in range(len(whole) - 1, 16, -3):
            with closing(Wire(broker.bootstrap_servers)) as wire, pytest.raises(ConnectionError):
                wire.call_raw(at.to_bytes(4, "big") + whole[:at])
        assert journal_of(broker).end_offset == before and native_of(broker).served == 1
        writer.wire.call_raw(len(whole).to_bytes(4, "big") + whole)
        assert native_of(broker).served == 2


def test_offsets_of_transactions_that_the_log_does_not_know_are_asked_for(broker, writer):
    """Before the first commit in a version that adds the partition itself, after the end, and
    with another epoch: the coordinator decides, and no refused commit is in the log."""
    native, log = native_of(broker), journal_of(broker)
    before, waiting = log.end_offset, native.waiting
    assert [writer.commit(ROWS, version) for version in (0, 3, 4)] == [[48] * 2] * 2 + [[120] * 2]
    assert (log.end_offset, native.served, native.waiting) == (before, 1, waiting)
    assert writer.commit(ROWS, 5) == [0, 0] and native.served == 2
    assert writer.commit(ROWS, 5) == [0, 0] and native.served == 3  # the transaction is open
    assert writer.commit(ROWS, 3) == [0, 0] and native.served == 4
    writer.ends()
    before = log.end_offset
    assert writer.commit(ROWS, 3) == [48, 48]
    assert (log.end_offset, native.served) == (before, 4)
    assert writer.add_offsets(writer.producer) == 0
    assert writer.commit(ROWS, 3) == [0, 0] and native.served == 5  # the log expects it
    zombie, (_, *writer.producer) = writer.producer, writer.init()
    assert writer.commit(ROWS, 3, producerEpoch=zombie[1]) == [47, 47]
    assert native.served == 5 and known(broker) == replayed(broker)
    assert known(broker)[0] == {("t", 0): 5, ("t", 1): 1, ("t", 2): 7}


def test_readers_see_them_when_the_transaction_commits_and_never_when_it_aborts(broker, writer):
    native = native_of(broker)
    assert writer.commit_plainly(1) == [0]
    at = 10
    for committed in (True, False, True):
        before = writer.settled()[1][0][1]
        assert writer.add_offsets(writer.producer) == 0
        served = native.served
        assert writer.commit([(0, at, "", -1)]) == [0] and native.served == served + 1
        assert writer.committed() == (0, [(UNSTABLE, -1)])
        assert writer.committed(stable=False) == (0, [(0, before)])
        writer.ends(committed)
        assert writer.committed() == (0, [(0, at if committed else before)])
        at += 10
    assert native.served == 5 and known(broker) == replayed(broker)


def test_the_end_of_a_transaction_alone_takes_them_over(broker, writer):
    """No request reads the offsets between the commit and the marker."""
    for offset in range(5):
        assert writer.add_offsets(writer.producer) == 0
        assert writer.commit([(0, offset, "", -1)]) == [0]
        writer.ends(offset != 3)
    assert native_of(broker).served == 6 and known(broker)[1] == set()
    assert known(broker) == replayed(broker) and known(broker)[0]["t", 0] == 4


def test_a_reader_of_pending_offsets_finds_the_acknowledged_ones(broker, writer):
    groups = broker.node.serving.coordinators.groups
    for asked in (
        lambda: groups.offsets.is_pending("g", "t", 0),
        lambda: groups.offsets.has_pending("g"),
    ):
        assert writer.add_offsets(writer.producer) == 0
        with groups.lock:
            assert not asked()
        assert writer.commit([(0, 1, "", -1)]) == [0]
        with groups.lock:
            assert asked()
        writer.ends()
    assert native_of(broker).served == 3


@pytest.mark.parametrize("ends", [(False, False), (False, True), (True, False)])
def test_waiting_for_markers_frees_no_entries(broker, writer, ends):
    """A plain commit and those of two producers for one partition; the transactions commit or
    abort. Python takes over the entries when there are too many."""
    native = native_of(broker)
    with Writer(broker, "other") as other:
        for one in (writer, other):
            assert one.add_offsets(one.producer) == 0
        assert writer.commit_plainly(5) == [0]
        assert writer.commit([(0, 6, "", -1)]) == [0] and other.commit([(0, 7, "", -1)]) == [0]
        for offset in range(2 * ENTRIES_MAX):
            assert writer.commit([(2, offset, "", -1)]) == [0]
        assert native.served == 2 * ENTRIES_MAX + 4 and native.waiting <= ENTRIES_MAX
        other.ends(ends[0])
        assert known(broker) == replayed(broker)
        writer.ends(ends[1])
        assert known(broker) == replayed(broker)
        assert known(broker)[0]["t", 0] == (7 if ends[0] else 6 if ends[1] else 5)


def test_of_a_pending_offset_and_a_plain_one_the_later_in_the_log_counts(broker, writer):
    native = native_of(broker)
    wanted = []
    for rows in ("pq", "qp", "pqp", "qpq", "ppqqp"):
        assert writer.add_offsets(writer.producer) == 0
        for kind in rows:
            wanted.append(len(wanted) + 100)
            if kind == "q":
                assert writer.commit_plainly(wanted[-1]) == [0]
            else:
                assert writer.commit([(0, wanted[-1], "", -1)]) == [0]
        writer.ends()
        assert writer.settled() == (0, [(0, wanted[-1])]), rows
    assert native.served == len(wanted) + 1 and known(broker) == replayed(broker)


def test_a_restart_finds_what_was_committed_and_what_is_pending(tmp_path):
    with started(tmp_path) as broker:
        with Writer(broker) as writer:
            make_group(broker)
            assert writer.add_offsets(writer.producer) == 0
            assert writer.commit([(0, 4, "m", 2)]) == [0]
            writer.ends()
            assert writer.add_offsets(writer.producer) == 0
            assert writer.commit([(0, 8, "n", 2)]) == [0] and native_of(broker).served == 3
            producer = writer.producer
        broker.restart()
        with Writer(broker, init=False) as writer:
            assert writer.committed() == (0, [(UNSTABLE, -1)])
            assert known(broker) == replayed(broker) == (
                {("t", 0): 4, ("t", 1): 1}, {(producer[0], ("t", 0))},
            )  # fmt: skip
            writer.producer = producer
            writer.ends()
            assert writer.settled() == (0, [(0, 8)])


@pytest.mark.parametrize("seed", range(3))
def test_memory_says_what_the_log_says_after_any_order(broker, seed):
    """Plain commits, those of three producers, and ends, until there are too many entries."""
    rng = random.Random(seed)
    native = native_of(broker)
    with closing(Wire(broker.bootstrap_servers)) as wire:
        make_group(broker)
        writers = [Writer(broker, f"w{at}") for at in range(3)]
        for one in writers:
            assert one.add_offsets(one.producer) == 0
        offset = 0
        for _ in range(4):
            for _ in range(rng.choice((3, 40, ENTRIES_MAX))):
                offset += 1
                rows = [
                    (index, offset, "", -1) for index in rng.sample(range(3), rng.randint(1, 2))
                ]
                one = rng.choice([None, *writers])
                told = commit(wire, rows) if one is None else one.commit(rows)
                assert set(told) == {0} and native.waiting <= ENTRIES_MAX + 1
            one = rng.choice(writers)
            one.ends(rng.random() < 0.7)
            assert known(broker) == replayed(broker)
            assert one.add_offsets(one.producer) == 0
        assert native.served == offset + 1
        for one in writers:
            one.ends()
            assert known(broker) == replayed(broker)
            one.wire.close()
        assert known(broker)[1] == set() and native.waiting == 0


def test_more_keys_than_the_native_handler_keeps_are_taken_over(broker, writer):
    create_topic(broker.bootstrap_servers, "u", ENTRIES_MAX + 50)
    native = native_of(broker)
    assert writer.add_offsets(writer.producer) == 0
    for index in range(ENTRIES_MAX + 50):
        asked = writer.asked([(index, index, "", -1)])
        asked.topics[0].name = "u"
        assert writer.wire.call(28, 3, asked).topics[0].partitions[0].errorCode == 0
        assert native.waiting <= ENTRIES_MAX
    assert native.served == ENTRIES_MAX + 51
    writer.ends()
    assert known(broker) == replayed(broker) and len(known(broker)[0]) == ENTRIES_MAX + 51


def test_a_commit_is_not_answered_before_it_is_durable(tmp_path):
    with (
        started(tmp_path, {"offsets.commit.timeout.ms": "200"}) as broker,
        Writer(broker) as writer,
    ):
        make_group(broker)
        assert writer.add_offsets(writer.producer) == 0
        assert writer.commit([(0, 1, "", -1)]) == [0]
        system = broker.node.system
        system.fault("fdatasync", "delay", delay_ms=2000, path_contains=CONSUMER_OFFSETS)
        assert writer.commit([(2, 2, "", -1)]) == [15]
        assert native_of(broker).served == 3
        producer = writer.producer[0]
        assert known(broker)[1] == {(producer, ("t", 0))}
        system.clear_faults()
        deadline = time.monotonic() + PATIENCE_S
        while len(known(broker)[1]) == 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        writer.ends()
        assert known(broker) == replayed(broker) and known(broker)[0]["t", 2] == 2


def test_a_log_that_fails_is_reported_as_such(tmp_path):
    with started(tmp_path) as broker, Writer(broker) as writer:
        make_group(broker)
        assert writer.add_offsets(writer.producer) == 0
        broker.node.system.fault("fdatasync", "error", errno=5, path_contains=CONSUMER_OFFSETS)
        assert writer.commit([(0, 2, "", -1)]) == [16]
        assert native_of(broker).served == 2


def test_a_fetch_of_records_that_are_being_appended_waits(tmp_path):
    """The log may have a marker before the network thread has noted the commit that it appended."""
    with started(tmp_path, {"log.durability": "os"}) as broker, Writer(broker) as writer:
        make_group(broker)
        native = native_of(broker)
        assert known(broker)[0] and native.waiting == 0 and writer.add_offsets(writer.producer) == 0
        before, told = journal_of(broker).end_offset, []
        rule = broker.node.system.fault(
            "pwritev", "delay", delay_ms=1500, path_contains=CONSUMER_OFFSETS
        )
        thread = threading.Thread(target=lambda: told.append(writer.commit(ROWS)))
        thread.start()
        deadline = time.monotonic() + PATIENCE_S
        while native.waiting == 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert native.waiting == 2 and journal_of(broker).end_offset == before and not told
        began = time.monotonic()
        taken = native.take()
        assert time.monotonic() - began > 0.5  # the fetch waits for the append
        while len(taken) < 2 and time.monotonic() < deadline:
            taken += native.take()  # the high watermark moves a little later
        assert [row[3] for row in taken] == [5, 7]
        assert broker.node.system.fired(rule) == 1
        thread.join(PATIENCE_S)
        assert told == [[0, 0]] and native.waiting == 0


@pytest.mark.parametrize("rounds", [150])
def test_commits_beside_the_end_of_their_transaction(tmp_path, rounds):
    """Two threads of a producer send at about the same time: memory equals the log."""
    with started(tmp_path, {"log.durability": "os"}) as broker:
        make_group(broker)
        with Writer(broker) as writer, Writer(broker, init=False) as ending:
            ending.producer = writer.producer
            rng, together, told = random.Random(3), threading.Barrier(2), []

            def end_all():
                for at in range(rounds):
                    together.wait(PATIENCE_S)
                    time.sleep(rng.random() * 0.001)
                    ending.ends(at % 3 != 0)
                    together.wait(PATIENCE_S)

            thread = threading.Thread(target=end_all, daemon=True)
            thread.start()
            for at in range(rounds):
                assert writer.add_offsets(writer.producer) == 0
                assert writer.commit([(0, 2 * at, "", -1)]) == [0]
                together.wait(PATIENCE_S)
                told += writer.commit([(0, 2 * at + 1, "", -1)])
                together.wait(PATIENCE_S)
                assert known(broker) == replayed(broker) and known(broker)[1] == set(), at
            thread.join(PATIENCE_S)
            assert set(told) <= {0, 14, 48, 51} and 0 in told


def test_a_group_that_is_deleted_takes_its_pending_offsets_along(broker, writer):
    assert writer.add_offsets(writer.producer) == 0
    assert writer.commit([(0, 3, "", -1)]) == [0] and native_of(broker).served == 2
    assert writer.call(42, 1, groupsNames=["g"]).results[0].errorCode == 0
    assert table_of(broker).count == 0 and known(broker) == ({}, set())
    writer.ends()
    assert writer.committed() == (0, [(0, -1)])


def test_forgotten_partitions_leave_nothing(broker, writer):
    native = native_of(broker)
    assert writer.add_offsets(writer.producer) == 0
    assert writer.commit(ROWS) == [0, 0]
    partition = broker.node.serving.coordinators.groups.journal.partition_of("g")
    assert (table_of(broker).count, native.waiting) == (1, 3)
    native.forget(partition)
    assert (table_of(broker).count, native.waiting, native.take()) == (0, 0, [])
    assert writer.commit(ROWS) == [0, 0] and native.served == 3


def test_a_group_that_expires_meanwhile_keeps_what_a_transaction_commits(tmp_path):
    """The group is empty and has no offsets: its tombstone is being written when the commit
    arrives."""
    with started(tmp_path) as broker, Writer(broker) as writer:
        native = native_of(broker)
        assert writer.add_offsets(writer.producer) == 0
        assert writer.commit([(0, 1, "", -1)]) == [0] and table_of(broker).count == 1
        writer.ends(False)
        assert writer.add_offsets(writer.producer) == 0
        system = broker.node.system
        rule = system.fault("fdatasync", "delay", delay_ms=300, path_contains=CONSUMER_OFFSETS)
        assert broker.node.serving.coordinators.group_administration.expire() == 0
        assert writer.commit([(0, 2, "", -1)]) == [0]
        assert system.fired(rule) == 1 and native.served == 2
        writer.ends()
        assert known(broker) == ({("t", 0): 2}, set())


@pytest.mark.parametrize("instance", [None, "one"])
def test_members_commit_in_their_generation(broker, instance):
    native = native_of(broker)
    member = settled(broker, instance=instance)
    with Writer(broker) as writer:
        assert writer.add_offsets(writer.producer) == 0
        given = dict(generation=member.generation, member=member.id, groupInstanceId=instance)
        assert writer.commit(ROWS, **given) == [0, 0] and native.served == 1
        assert member.commit(3) == 0 and native.served == 2
        assert writer.commit(ROWS, **{**given, "generation": member.generation + 1}) == [22, 22]
        stranger = {**given, "member": "stranger"}
        assert writer.commit(ROWS, **stranger) == [82 if instance else 25] * 2
        # Without a member id a producer commits for a group with members.
        for version in (0, 2, 3):
            assert writer.commit(ROWS, version) == [0, 0]
        assert native.served == 5
        writer.ends()
        assert known(broker) == replayed(broker)
        assert known(broker)[0] == {("t", 0): 5, ("t", 2): 7}
    member.wire.close()


def test_librdkafka_commits_through_the_native_handler(broker):
    from confluent_kafka import Consumer, Producer, TopicPartition

    native = native_of(broker)
    address = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**address, "transactional.id": "librdkafka"})
    producer.init_transactions(PATIENCE_S)
    consumer = Consumer({**address, "group.id": "g", "enable.auto.commit": False})
    consumer.subscribe(["t"])
    deadline = time.monotonic() + PATIENCE_S
    while len(consumer.assignment()) < 3 and time.monotonic() < deadline:
        consumer.poll(0.1)
    for at in range(6):
        producer.begin_transaction()
        producer.produce("t", b"v", partition=0)
        offsets = [TopicPartition("t", index, 10 * at + index) for index in range(3)]
        producer.send_offsets_to_transaction(
            offsets, consumer.consumer_group_metadata(), PATIENCE_S
        )
        if at == 4:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
        found = consumer.committed([TopicPartition("t", index) for index in range(3)], PATIENCE_S)
        base = 30 if at == 4 else 10 * at
        assert [row.offset for row in found] == [base, base + 1, base + 2]
    assert native.served == 6
    assert known(broker) == replayed(broker)
    consumer.close()
