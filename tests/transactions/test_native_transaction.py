"""Transactions that network threads begin, extend and end: responses, records and markers are the
same with log.durability=os and fsync. tests/transactions/dialogue.py and
tests/compat/answers compare them with those of Apache Kafka.
"""

import random
import threading

import pytest
from compat.support import Wire, create_topic
from transactions.native_twins import (
    PATIENCE_S,
    TOPICS,
    Writer,
    ids_of,
    known,
    log_of,
    native_of,
    records_of,
    side_by_side,
    transaction_value,
)

from barnabas.cext.coordinator import partition_states
from barnabas.cext.coordinator.partition_states import PartitionStates
from barnabas.cext.coordinator.transactional_ids import TransactionalIds
from barnabas.cext.record.records import Record
from barnabas.coordinator.journal import id_hash
from barnabas.coordinator.transactions.coordinator import LOADING
from barnabas.coordinator.transactions.transaction import State, Transaction
from barnabas.coordinator.transactions.transaction_records import read_transaction, value_version
from barnabas.wire import request
from barnabas.wire.internal import CONSUMER_OFFSETS, TRANSACTION_STATE

ENTRIES_MAX = 256  # cext/coordinator/commit_entries.pxd


@pytest.mark.parametrize("version", range(4))
def test_answers_and_records_are_the_same_with_both_durabilities(twins, version):
    name = f"same-{version}"
    told, served = [], []
    for broker in twins:
        writer = Writer(broker, name)
        before = native_of(broker).served
        answers = []
        for committed in (True, False, True):
            for rows in (
                [("b", [3])],
                [("b", [3])],  # it is already part of the transaction
                [("ab", [39, 0]), ("a", [7]), ("b", [2, 3, 11])],
                [("a", [7, 8])],
            ):
                answers.append(writer.ask(writer.add_frame(rows, version)))
            answers.append(writer.ask(writer.offsets_frame(version)))
            answers.append(writer.ask(writer.offsets_frame(min(version + 1, 4))))
            answers.append(writer.ask(writer.end_frame(committed)))
            writer.settle()
        logs = [log_of(broker, *row) for row in (("b", 3), ("a", 7), ("ab", 39))]
        logs.append(log_of(broker, CONSUMER_OFFSETS, id_hash(writer.group) % 4))
        told.append((answers, records_of(broker, name), logs))
        served.append(native_of(broker).served - before)
        writer.wire.close()
    assert told[0] == told[1]
    assert served == [21, 21]
    states = [int(row.state) for _, _, row in told[0][1]]
    assert states[-18:] == [1, 1, 1, 1, 2, 4, 1, 1, 1, 1, 3, 5, 1, 1, 1, 1, 2, 4]


@pytest.mark.parametrize("seed", range(5))
def test_random_conversations_have_the_same_answers(twins, seed):
    """With reads of the id, other connections, wrong producers and new epochs in between."""
    told = []
    for broker in twins:
        chance = random.Random(seed)
        name = f"random-{seed}"
        writers = [Writer(broker, name), Writer(broker, name, init=False)]
        for one in writers:
            one.topic = "a"
        answers = []
        served = native_of(broker).served
        for _ in range(300):
            writer = writers[chance.random() < 0.2]
            writer.producer = writer._has()
            producer = writer.producer
            if chance.random() < 0.05:
                producer = (producer[0], producer[1] - 1)
            if chance.random() < 0.05:
                producer = (producer[0] + 1000, producer[1])
            what = chance.random()
            version = chance.randrange(4)
            if what < 0.5:
                rows = [
                    (topic, chance.sample(range(42), chance.randrange(1, 5)))
                    for topic in chance.sample(TOPICS, chance.randrange(1, 3))
                ]
                answers.append(writer.ask(writer.add_frame(rows, version, producer)))
            elif what < 0.67:
                group = chance.choice([writer.group, writer.group, "g", "grüppchen", "x" * 300])
                answers.append(writer.ask(writer.offsets_frame(version, group, producer)))
            elif what < 0.75:
                row = writer.describe()
                topics = {
                    (topic.topic, index) for topic in row.topics for index in topic.partitions
                }
                answers.append((row.errorCode, row.transactionState, row.producerEpoch, topics))
            elif what < 0.76:
                answers.append((writer.init()[0], writer._has()[1]))
            elif what < 0.77:
                answers.append(sorted(writer.call(66, 0).transactionStates, key=str) != [])
            elif what < 0.85:
                answers.append(writer.commit_offsets(producer, chance.randrange(1000)))
            elif what < 0.88:
                answers.append(writer.commit_plainly(chance.randrange(1000)))
            elif what < 0.9:
                answers.append(writer.committed(stable=chance.random() < 0.5))
            else:
                answers.append(writer.ask(writer.end_frame(chance.random() < 0.7)))
            writer.settle()
        answers.append(writers[0].committed(stable=False))
        log = log_of(broker, CONSUMER_OFFSETS, id_hash(writers[0].group) % 4)
        told.append((answers, records_of(broker, name), log))
        assert native_of(broker).served > served + 20
        for writer in writers:
            writer.wire.close()
    assert told[0] == told[1]


def test_requests_in_another_form_have_the_same_rules(twins):
    """Python parses them and calls the table of transactional ids."""
    told = []
    for broker in twins:
        writer = Writer(broker, "odd")
        plain = writer.add_frame([("a", [1])], 3)
        assert writer.ask(plain)
        served = native_of(broker).served
        tagged = plain[:-1] + b"\1\x63\0"
        tagged = (len(tagged) - 4).to_bytes(4, "big") + tagged[4:]
        answers = [
            writer.ask(frame)
            for frame in (
                tagged,
                writer.add_frame([("a", [40])], 3),
                writer.add_frame([("nowhere", [0])], 1),
                writer.add_frame([("a", range(33))], 2),
            )
        ]
        assert native_of(broker).served == served
        answers.append(writer.add_several(4, ("odd", writer.producer, False, "a", [1, 5])))
        assert native_of(broker).served == served
        told.append((answers, records_of(broker, "odd")))
        writer.wire.close()
    assert told[0] == told[1]
    assert len(known(twins[0], "odd").now.partitions) == 33


def test_errors_are_answered_on_the_network_thread(twins):
    told = []
    for broker in twins:
        writer = Writer(broker, "errors")
        served = native_of(broker).served
        producer_id, epoch = writer.producer
        answers = [
            writer.ask(frame)
            for frame in (
                writer.add_frame([("a", [2])], 3, (producer_id, epoch - 1)),
                writer.add_frame([("a", [2])], 3, (producer_id + 1000, epoch)),
                writer.add_frame([], 3),
                writer.offsets_frame(3, "grüppchen"),
                writer.offsets_frame(3, producer=(producer_id, epoch + 1)),
            )
        ]
        assert native_of(broker).served == served + len(answers) == served + 5
        answers.append(writer.ask(writer.end_frame(True, 1)))
        writer.settle()
        answers.append(writer.ask(writer.end_frame(False, 1)))
        ids_of(broker).remove("errors")
        answers.append(writer.ask(writer.end_frame(True, 1)))
        writer.txn = ""
        answers.append(writer.ask(writer.end_frame(True, 1)))
        assert native_of(broker).served == served + 9
        told.append((answers, records_of(broker, "errors")))
        writer.wire.close()
    assert told[0] == told[1]
    assert [row[-2:] for row in told[0][0][-4:]] == [
        code.to_bytes(2, "big") for code in (0, 48, 49, 42)
    ]


def test_an_id_of_many_partitions(broker):
    writer = Writer(broker, "many")
    for first in range(0, 30, 10):
        for topic in TOPICS:
            assert writer.ask(writer.add_frame([(topic, range(first, first + 10))], 3))
    for topic in TOPICS:
        assert writer.ask(writer.add_frame([(topic, range(30, 40))], 3))
    wanted = {(topic, index) for topic in TOPICS for index in range(40)}
    assert known(broker, "many").now.partitions == wanted
    served = native_of(broker).served
    assert writer.ask(writer.offsets_frame(3)) and native_of(broker).served == served + 1
    for index in range(120, 129):  # a network thread writes up to 128 markers
        create_topic(broker.bootstrap_servers, f"more-{index}", 1)
        assert writer.add(writer.producer, 0, topic=f"more-{index}") == [0]
    assert len(known(broker, "many").now.partitions) == 130
    served = native_of(broker).served
    assert writer.add(writer.producer, 0, topic="more-119") == [3]
    assert writer.end(writer.producer, True) == 0 and native_of(broker).served == served + 1
    writer.settle()
    assert [int(row.state) for _, _, row in records_of(broker, "many")][-2:] == [2, 4]
    assert writer.add(writer.producer, 1, topic="a") == [0]
    assert native_of(broker).served == served + 2
    writer.wire.close()


def test_steps_of_network_threads_are_loaded_after_a_restart(broker):
    writer = Writer(broker, "again")
    assert writer.ask(writer.add_frame([("a", [3]), ("b", [1])], 3))
    assert writer.ask(writer.offsets_frame(3))
    assert native_of(broker).served == 2
    before = known(broker, "again").now
    assert len(before.partitions) == 3
    writer.wire.close()
    broker.restart()
    writer = Writer(broker, "again", init=False)
    assert writer.state() == "Ongoing"
    assert known(broker, "again").now == before
    writer.producer = before.producer_id, before.producer_epoch
    assert writer.end(writer.producer, False) == 0 and writer.state() == "CompleteAbort"
    writer.wire.close()


def test_batches_go_to_partitions_that_were_added(broker):
    writer = Writer(broker, "expected")
    writer.topic = "a"
    assert writer.ask(writer.add_frame([("a", [0])], 3)) and native_of(broker).served == 1
    assert writer.produce(writer.producer, 0, settle=False)[0] == 0
    assert writer.produce(writer.producer, 0, partition=1, settle=False)[0] == 48
    assert writer.end(writer.producer, True) == 0
    writer.settle()
    # The marker removed it.
    assert writer.produce(writer.producer, 1, settle=False)[0] == 48
    writer.wire.close()


def test_a_transaction_that_runs_too_long_is_aborted(broker):
    writer = Writer(broker, "late", init=False)
    assert writer.init(timeout_ms=5000)[0] == 0
    writer.producer = writer._has()
    assert writer.ask(writer.add_frame([("a", [0])], 3)) and native_of(broker).served == 1
    transactions = broker.node.serving.coordinators.transactions
    assert transactions.abort_timed_out() == 0
    broker.clock.advance(ms=5001)
    assert transactions.abort_timed_out() == 1
    writer.settle()
    assert writer.state() == "CompleteAbort"
    assert writer.add(writer.producer, 0, topic="a") == [90]  # PRODUCER_FENCED
    writer.wire.close()


def test_an_end_from_a_connection_that_was_left_is_put_off(broker):
    """The handler also knows the connections of transactions that it began itself."""
    old, new = Writer(broker, "left"), Writer(broker, "left", init=False)
    new.producer = old.producer
    assert old.ask(old.add_frame([("a", [0])], 3))
    assert old.end(old.producer, True) == 0
    old.settle()
    assert new.ask(new.add_frame([("a", [0])], 3)) and native_of(broker).served == 3
    assert old.end(old.producer, True, settle=False) == 51
    assert new.end(new.producer, True) == 0
    for one in (old, new):
        one.wire.close()


def test_offsets_need_no_check_meanwhile(broker):
    """The number of ends that Python has not taken is limited: above it, Python ends transactions
    itself."""
    writer = Writer(broker, "unseen")
    writer.topic = "a"
    assert writer.commit_plainly(1) == [0]
    native, commits = native_of(broker), broker.node.serving.coordinators.groups._native
    count = 3 * ENTRIES_MAX
    for offset in range(count):
        for _ in range(20):  # ends by Python take longer
            if writer.add_offsets(writer.producer) == 0:
                break
            writer.settle()
        if offset % 3 == 0:
            assert writer.commit_offsets(writer.producer, offset) == [0]
        assert writer.end(writer.producer, offset % 2 == 0) == 0
        assert commits.waiting <= 2 * ENTRIES_MAX
    assert native.served >= 2 * count
    writer.settle()
    assert writer.committed() == (0, [(0, count - 6)])
    writer.wire.close()


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("topic", ["b", CONSUMER_OFFSETS])
def test_an_end_whose_markers_cannot_be_written_is_carried_out_by_python(broker, committed, topic):
    writer = Writer(broker, "broken")
    writer.topic = "a"
    assert writer.commit_plainly(1) == [0]
    assert writer.ask(writer.add_frame([("a", [0]), ("b", [0])], 3))
    assert writer.add_offsets(writer.producer) == 0
    assert writer.commit_offsets(writer.producer, 7) == [0]
    assert writer.produce(writer.producer, 0, settle=False)[0] == 0
    served = native_of(broker).served
    system = broker.node.system
    rule = system.fault("pwritev", "error", errno=28, path_contains=f"{topic}-")
    assert writer.end(writer.producer, committed) == 0  # the end is decided
    assert system.fired(rule) == 1 and native_of(broker).served == served + 1
    writer.settle()
    assert writer.end(writer.producer, committed) == 0
    assert writer.state() == ("CompleteCommit" if committed else "CompleteAbort")
    assert writer.committed() == (0, [(0, 7 if committed else 1)])
    found = writer.fetch()
    assert found["last stable offset"] == found["high watermark"]
    assert len(found["aborted"]) == (0 if committed else 1)
    writer.wire.close()


def test_an_end_whose_complete_record_cannot_be_written(broker):
    writer = Writer(broker, "broken")
    assert writer.ask(writer.add_frame([("a", [0])], 3))
    system = broker.node.system
    rule = system.fault("pwritev", "error", errno=28, nth=2, path_contains=f"{TRANSACTION_STATE}-")
    assert writer.end(writer.producer, True, settle=False) == 0
    assert system.fired(rule) == 1
    writer.settle()
    assert writer.state() == "CompleteCommit"
    assert [int(row.state) for _, _, row in records_of(broker, "broken")] == [0, 1, 2, 4]
    writer.wire.close()


def test_offsets_of_many_producers_while_others_look(broker):
    """Each reads offsets in the middle of other transactions: no transaction is ended by the
    marker of an earlier one, and none misses its own."""
    over = threading.Event()
    failures: list[str] = []
    counts, tries = [], [0] * 6

    def produce(at):
        writer = Writer(broker, f"many-{at}")
        writer.topic = "a"
        if writer.commit_plainly(0) != [0]:
            failures.append(f"{at}: not admitted")
        last, tried = 0, 0
        while not over.is_set():
            tried += 1
            tries[at] = tried
            committed = tried % 3 != 0
            told = [
                writer.add_offsets(writer.producer),
                *writer.commit_offsets(writer.producer, 2 * tried),
                *writer.commit_offsets(writer.producer, 2 * tried + 1),
                writer.end(writer.producer, committed, settle=False),
            ]
            if any(told):
                failures.append(f"{at}: {told}")
            last = 2 * tried + 1 if committed else last
            if tried % 7 == at and writer.committed() != (0, [(0, last)]):
                failures.append(f"{at}: {writer.committed()}, not {last}")
        if writer.committed() != (0, [(0, last)]):
            failures.append(f"{at}: {writer.committed()} at the end, not {last}")
        counts.append(tried)
        writer.wire.close()

    side_by_side(produce, over, lambda: sum(tries) > 100)
    assert failures == [] and len(counts) == 6
    assert native_of(broker).served > sum(counts) > 100


def test_an_id_whose_partition_goes_is_not_served_here(broker):
    writer = Writer(broker, "gone")
    transactions = broker.node.serving.coordinators.transactions
    assert ids_of(broker).count == 1
    transactions.unloaded(transactions.journal.partition_of("gone"))
    assert ids_of(broker).count == 0
    assert writer.add(writer.producer, 0, topic="a") == [49]  # INVALID_PRODUCER_ID_MAPPING
    writer.wire.close()


def test_an_id_of_another_leader_epoch_is_not_served(broker):
    writer = Writer(broker, "epochs")
    found = known(broker, "epochs")
    ids_of(broker).put("epochs", found.partition, 99, found.now)
    assert writer.add(writer.producer, 0, topic="a", settle=False) == [16]  # NOT_COORDINATOR
    assert known(broker, "epochs").now == found.now
    writer.wire.close()


def test_an_id_is_not_served_while_python_writes_a_step(broker):
    """Otherwise a later record could get into the log before Python's."""
    writer = Writer(broker, "written")
    assert writer.add(writer.producer, 0, topic="a") == [0]
    native, found = native_of(broker), known(broker, "written")
    token = ids_of(broker).begin("written", found.step)
    served = native.served
    assert writer.add(writer.producer, 1, topic="a", settle=False) == [51]
    assert writer.end(writer.producer, True, settle=False) == 51
    assert native.served == served + 2 and known(broker, "written").now == found.now
    ids_of(broker).finish("written", token)
    assert writer.end(writer.producer, True, settle=False) == 0
    writer.wire.close()


def test_an_id_is_not_served_while_its_partition_loads(broker):
    """Later records of the log may change it."""
    writer = Writer(broker, "loads")
    found, ids = known(broker, "loads"), ids_of(broker)
    rows = frozenset([("a", 0)])
    open_one = found.now._replace(state=State.ONGOING, partitions=rows)
    ids.put("loads", found.partition, LOADING, open_one)
    states = broker.node.bound.native.coordinators.transaction_partitions
    states.set(found.partition, partition_states.LOADING)
    for code, state in ((14, partition_states.LOADING), (16, partition_states.NOT_LED)):
        states.set(found.partition, state)
        for name in ("loads", "unknown"):
            writer.txn = name
            index = broker.node.serving.coordinators.transactions.journal.partition_of(name)
            states.set(index, state)
            assert writer.add(writer.producer, 0, topic="a", settle=False) == [code]
            assert writer.end(writer.producer, True, settle=False) == code
    writer.txn = "loads"
    epoch = broker.node.serving.coordinators.transactions.journal.leader_epoch(found.partition)
    assert ids.open(found.partition, epoch) == []
    states.set(found.partition, partition_states.LED)
    assert writer.add(writer.producer, 1, topic="a") == [0]
    writer.wire.close()


def test_nothing_is_lost_while_others_look(broker):
    """Many threads read the id while it gets partitions; acknowledged ones are visible from then
    on."""
    writer = Writer(broker, "watched")
    added: set[int] = set()
    failures: list[str] = []
    ended = 0
    over = threading.Event()

    def look():
        with Wire(broker.bootstrap_servers) as wire:
            while not over.is_set():
                turn, wanted = ended, set(added)
                ask = request(65).cls(transactionalIds=["watched"])
                row = wire.call(65, 0, ask).transactionStates[0]
                found = {index for topic in row.topics for index in topic.partitions}
                if turn == ended and not wanted <= found:
                    failures.append(f"{wanted - found} is lost")
                over.wait(0.001)

    lookers = [threading.Thread(target=look, daemon=True) for _ in range(2)]
    for one in lookers:
        one.start()
    for _ in range(10):
        for index in range(40):
            assert writer.add(writer.producer, index, topic="b", settle=False) == [0]
            added.add(index)
        added = set()
        ended += 1
        assert writer.end(writer.producer, True) == 0
        writer.settle()
    over.set()
    for one in lookers:
        one.join(PATIENCE_S)
    assert failures == []
    assert native_of(broker).served > 0
    writer.wire.close()


@pytest.fixture
def ids(broker):
    """A table of transactional ids of this test."""
    table = TransactionalIds(broker.node.loaded.table, TRANSACTION_STATE, states=PartitionStates())
    rows = frozenset((f"t{i % 7}", i) for i in range(200))
    table.put("x", 3, 5, OPEN._replace(partitions=rows))
    return table


OPEN = Transaction(
    7, 3, 1000, State.ONGOING, start_ms=5, update_ms=6, previous_producer_id=8, last_epoch=2
)


def test_an_id_is_given_back_as_it_was_put(ids):
    partition, step, is_pending, fields = ids.get("x")
    assert (partition, is_pending, len(fields[4])) == (3, False, 200)
    assert Transaction._make(fields) == OPEN._replace(partitions=fields[4])
    later = OPEN._replace(state=State.PREPARE_COMMIT, next_producer_id=9, client_version=2)
    ids.put("x", 3, 5, later)
    assert ids.get("x")[1] > step and Transaction._make(ids.get("x")[3]) == later
    assert ids.get("y") is None and ids.count == 1 and ids.names() == ["x"]
    ids.remove("x")
    assert ids.get("x") is None and ids.count == 0


@pytest.mark.parametrize("state", [*State])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_record_is_as_the_schema_says(ids, level, state):
    """Also for an empty id, whose partitions are null."""
    ids.value_version = value_version(level)
    rows = frozenset() if state == State.EMPTY else frozenset([("b", 1), ("a", 2), ("a", 0)])
    row = OPEN._replace(state=state, partitions=rows, next_producer_id=9, client_version=level)
    key, value = ids.record("ä", row)
    assert value == transaction_value(row, level)
    name, found = read_transaction(Record(value, key))
    assert name == "ä" and (found == row._replace(last_epoch=-1) or level == 0)
    assert ids.record("ä", None) == (key, None)


def test_a_step_follows_only_what_was_read(ids):
    step = ids.get("x")[1]
    token = ids.begin("x", step)
    assert token and ids.get("x")[2] and not ids.begin("x", step)
    ids.finish("x", token)
    assert ids.get("x")[1:3] == (step, False)
    token = ids.begin("x", step)
    ids.finish("x", token + 1, OPEN)  # the number of another step
    assert ids.get("x")[2]
    ids.finish("x", token, OPEN._replace(state=State.COMPLETE_ABORT))
    assert ids.get("x")[3][3] == State.COMPLETE_ABORT and not ids.begin("x", step)
    assert not ids.begin("y", 0)


def test_a_step_that_ends_after_its_id_was_loaded_anew_changes_nothing(ids):
    token = ids.begin("x", ids.get("x")[1])
    assert ids.forget(4) == [] and ids.forget(3) == ["x"]
    ids.finish("x", token, OPEN)
    assert ids.get("x") is None
    ids.put("x", 3, 6, OPEN)
    ids.finish("x", token, OPEN._replace(producer_epoch=9))
    ids.remove("x", token)
    assert ids.get("x")[3][1] == 3


def test_ids_are_found_by_what_is_due(ids):
    idle = OPEN._replace(state=State.COMPLETE_COMMIT)
    prepared = OPEN._replace(state=State.PREPARE_ABORT)
    ids.put("idle", 3, 5, idle)
    ids.put("prepared", 3, 5, prepared)
    ids.put("elsewhere", 2, LOADING, prepared)
    assert sorted(ids.late(1006)) == ["prepared", "x"] and ids.late(1005) == ["prepared"]
    assert ids.unused(6) == ["idle"] and ids.unused(5) == []
    assert not ids.order("x", ids.get("x")[1])
    assert ids.order("prepared", ids.get("prepared")[1])
    assert not ids.order("prepared", ids.get("prepared")[1])
    assert ids.late(1005) == []
    assert ids.open(2, 5) == ["elsewhere"] and ids.late(1005) == ["elsewhere"]
    token = ids.begin("idle", ids.get("idle")[1])
    assert token and ids.unused(6) == []


def test_the_newest_eight_connections_of_a_transaction_are_known(broker):
    """An end from one of them is delayed if its producer has continued with another."""
    first = Writer(broker, "eight")
    others = [Writer(broker, "eight", init=False) for _ in range(9)]
    for at, one in enumerate([first, *others]):
        one.producer = first.producer
        assert one.add(first.producer, at, topic="a") == [0]
    assert others[-1].end(first.producer, True) == 0
    newest = Writer(broker, "eight", init=False)
    newest.settle()
    assert newest.add(first.producer, 0, topic="a") == [0]
    assert [one.end(first.producer, True, settle=False) for one in others[1:]] == [51] * 8
    assert newest.state() == "Ongoing"
    assert others[0].end(first.producer, True, settle=False) == 0
    for one in (first, newest, *others):
        one.wire.close()


def test_many_ids_leave_with_their_partition(ids):
    for at in range(3000):
        ids.put(f"many-{at}", at % 3, 5, OPEN)
    assert len(ids.forget(0)) == 1000 and len(ids.forget(3)) == 1
    assert sorted(ids.names()) == sorted(f"many-{at}" for at in range(3000) if at % 3)
    assert ids.count == 2000 and all(ids.get(name) for name in ids.names())
