"""Transactions of producers that do not add partitions and get a new epoch at each end (KIP-890),
on the network threads: the same with both durabilities, as in test_native_transaction.py.
"""

import random
import threading

import pytest
from transactions.native_twins import (
    TOPICS,
    Writer,
    known,
    log_of,
    native_of,
    records_of,
    replace,
    side_by_side,
    started,
)

from barnabas.cext.log.log_handle import LogError
from barnabas.coordinator.journal import id_hash
from barnabas.wire.internal import CONSUMER_OFFSETS, TRANSACTION_STATE

pytestmark = pytest.mark.takes(seconds=21)

PRODUCE, COMMIT, END = 12, 5, 5  # versions
EPOCH_LAST = 2**15 - 2


def writer_of(broker, name, *, init=True):
    """A writer whose group has a commit, so that network threads can handle the next ones."""
    writer = Writer(broker, name, init=init)
    writer.topic = "a"
    if init:
        assert writer.commit_plainly(0) == [0]
    return writer


def finish(writer, committed):
    """Ends a transaction and continues with the producer id and epoch of the response."""
    before = writer.producer
    code, *producer = writer.end(before, committed, END)
    assert (code, producer) == (0, [before[0], before[1] + 1])
    writer.producer = tuple(producer)
    writer.settle()


@pytest.mark.parametrize("commit_version", [5, 6])
@pytest.mark.parametrize("produce_version", [12, 13])
def test_answers_and_records_are_the_same_with_both_durabilities(
    twins, produce_version, commit_version
):
    name = f"same-{produce_version}-{commit_version}"
    told, counts = [], []
    for broker in twins:
        writer = writer_of(broker, name)
        ids = broker.node.cluster()
        native, commits = native_of(broker), broker.node.serving.coordinators.groups._native
        before = native.served, commits.served
        answers = []
        for turn, committed in enumerate((True, False, True, True)):
            producer = writer.producer
            for sequence in (0, 1):
                rows = {index: writer.batch(producer, sequence) for index in (3, 30, 39)}
                answers.append(writer.write(rows, produce_version, ids))
            answers.append(writer.put(7 + turn, commit_version, ids))
            answers.append(writer.write({4: writer.batch(producer, 0)}, produce_version, ids))
            answers.append(writer.put(8 + turn, commit_version, ids))
            finish(writer, committed)
        logs = [log_of(broker, "a", index) for index in (3, 4, 30, 39)]
        logs.append(log_of(broker, CONSUMER_OFFSETS, id_hash(writer.group) % 4))
        told.append((answers, records_of(broker, name), logs, writer.committed()))
        counts.append((native.served - before[0], commits.served - before[1]))
        writer.wire.close()
    assert told[0] == told[1]
    assert told[0][3] == (0, [(0, 11)])
    assert counts == [(4, 8)] * 2
    states = [int(row.state) for _, _, row in told[0][1]]
    assert states == [0, *[1, 1, 1, 2, 4], *[1, 1, 1, 3, 5], *[1, 1, 1, 2, 4] * 2]
    epochs = [row.producer_epoch for _, _, row in told[0][1]]
    assert epochs[1:11] == [0, 0, 0, 1, 1, 1, 1, 1, 2, 2]
    assert {row.client_version for _, _, row in told[0][1][1:]} == {2}


@pytest.mark.parametrize("seed", range(5))
def test_random_conversations_have_the_same_answers(twins, seed):
    """With reads, steps of the first version, wrong producers, repeated ends and
    restarted producers in between."""
    told = []
    for broker in twins:
        chance = random.Random(seed)
        writer = writer_of(broker, f"random-{seed}")
        writer.topic = chance.choice(TOPICS)
        sequences: dict[tuple, int] = {}
        answers = []
        served = native_of(broker).served
        for _ in range(300):
            producer = writer.producer
            if chance.random() < 0.06:
                producer = (producer[0], producer[1] - 1)
            if chance.random() < 0.03:
                producer = (producer[0] + 1000, producer[1])
            what = chance.random()
            if what < 0.45:
                index = chance.randrange(42)
                sequence = sequences.get((producer, index), 0)
                if chance.random() < 0.05:
                    sequence += chance.choice((-1, 1, 5))
                version = chance.choice((12, 12, 12, 11))
                code, offset = writer.produce(
                    producer, max(sequence, 0), partition=index, version=version, settle=False
                )
                if code == 0:
                    sequences[producer, index] = max(sequence, 0) + 1
                answers.append((index, sequence, code, offset))
            elif what < 0.65:
                version = chance.choice((5, 5, 5, 4))
                topic = chance.choice(("", "", "", "nowhere"))
                answers.append(
                    writer.commit_offsets(producer, chance.randrange(1000), version, topic)
                )
            elif what < 0.7:
                rows = [(writer.topic, chance.sample(range(42), 2))]
                answers.append(writer.ask(writer.add_frame(rows, 3, producer)))
            elif what < 0.74:
                answers.append(writer.ask(writer.offsets_frame(3, producer=producer)))
            elif what < 0.8:
                row = writer.describe()
                topics = {(one.topic, index) for one in row.topics for index in one.partitions}
                answers.append((row.errorCode, row.transactionState, row.producerEpoch, topics))
            elif what < 0.82:
                answers.append(writer.init(expected=chance.choice((producer, (-1, -1)))))
                if answers[-1][0] == 0:
                    writer.producer = answers[-1][1:]
            elif what < 0.84:
                answers.append(writer.committed(stable=chance.random() < 0.5))
            elif what < 0.87:
                answers.append(writer.ask(writer.end_frame(chance.random() < 0.7)))
            else:
                committed = chance.random() < 0.7
                for _ in range(1 + (chance.random() < 0.3)):  # as if the response was lost
                    answers.append(writer.end(producer, committed, END))
                    if answers[-1][0] == 0:
                        writer.producer = answers[-1][1:]
            writer.settle()
        log = log_of(broker, CONSUMER_OFFSETS, id_hash(writer.group) % 4)
        told.append((answers, records_of(broker, f"random-{seed}"), log))
        assert native_of(broker).served > served + 10
        writer.wire.close()
    for at_once, flushed in zip(*told, strict=True):
        assert at_once == flushed


def test_a_log_that_does_not_know_the_producer_wants_its_first_batch(twins):
    """A batch that arrives before its predecessor, which the epoch shows to exist."""
    for broker in twins:
        writer = writer_of(broker, "first")
        assert writer.produce(writer.producer, 1, version=PRODUCE, settle=False)[0] == 45
        assert writer.produce(writer.producer, 0, version=PRODUCE, settle=False)[0] == 0
        finish(writer, True)
        assert writer.produce(writer.producer, 1, version=PRODUCE, settle=False)[0] == 45
        writer.wire.close()


def test_a_batch_of_an_ended_transaction_comes_too_late(twins):
    told = []
    for broker in twins:
        writer = writer_of(broker, "stale")
        writer.topic, old = "ab", writer.producer
        answers = [writer.produce(old, 0, version=PRODUCE, settle=False)]
        finish(writer, True)
        answers += [
            writer.produce(old, 1, version=PRODUCE, settle=False),  # after the marker
            writer.produce(old, 0, version=PRODUCE, partition=1, settle=False),
            writer.commit_offsets(old, 9, COMMIT),
            writer.end(old, False, END),
            writer.end(old, True, END),  # the response was lost
            writer.produce(writer.producer, 0, version=PRODUCE, settle=False),
        ]
        told.append(answers)
        finish(writer, True)
        writer.wire.close()
    assert told[0] == told[1]
    codes = [row[0] for row in told[0]]
    assert codes == [0, 47, 47, 47, 48, 0, 0]


def test_epochs_end_with_a_new_producer_id(twins):
    told = []
    for broker in twins:
        writer = writer_of(broker, "exhausted")
        replace(broker, "exhausted", producer_epoch=EPOCH_LAST - 2)
        writer.producer = writer._has()
        served = native_of(broker).served
        answers = []
        for _ in range(2):
            answers.append(writer.produce(writer.producer, 0, version=PRODUCE, settle=False)[0])
            finish(writer, True)
        assert native_of(broker).served - served == 2
        last = writer.producer
        answers.append(writer.produce(last, 0, version=PRODUCE, settle=False)[0])
        code, producer_id, epoch = writer.end(last, True, END)
        answers += [code, producer_id != last[0], epoch]
        writer.settle()
        writer.producer = producer_id, epoch
        answers.append(writer.produce(writer.producer, 0, version=PRODUCE, settle=False)[0])
        finish(writer, False)
        told.append(answers)
        writer.wire.close()
    assert told == [[0, 0, 0, 0, True, 0, 0]] * 2


def test_steps_of_network_threads_are_loaded_after_a_restart(broker):
    writer = writer_of(broker, "again")
    assert writer.produce(writer.producer, 0, version=PRODUCE)[0] == 0
    finish(writer, True)
    assert writer.produce(writer.producer, 0, version=PRODUCE)[0] == 0
    assert writer.commit_offsets(writer.producer, 5, COMMIT) == [0]
    before = known(broker, "again").now
    assert len(before.partitions) == 2
    writer.wire.close()
    broker.restart()
    writer = writer_of(broker, "again", init=False)
    assert writer.state() == "Ongoing"
    assert known(broker, "again").now == before._replace(last_epoch=-1)
    assert (before.producer_epoch, before.last_epoch, before.client_version) == (1, 0, 2)
    writer.producer = before.producer_id, before.producer_epoch
    finish(writer, True)
    assert writer.committed() == (0, [(0, 5)])
    assert writer.fetch()["last stable offset"] == 4
    writer.wire.close()


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("topic", ["a", CONSUMER_OFFSETS])
def test_an_end_whose_markers_cannot_be_written_is_carried_out_by_python(broker, committed, topic):
    writer = writer_of(broker, "broken")
    assert writer.produce(writer.producer, 0, version=PRODUCE)[0] == 0
    assert writer.commit_offsets(writer.producer, 7, COMMIT) == [0]
    served = native_of(broker).served
    system = broker.node.system
    rule = system.fault("pwritev", "error", errno=28, path_contains=f"{topic}-")
    finish(writer, committed)  # the end is decided and answered
    assert system.fired(rule) == 1 and native_of(broker).served == served + 1
    assert writer.state() == ("CompleteCommit" if committed else "CompleteAbort")
    assert writer.committed() == (0, [(0, 7 if committed else 0)])
    found = writer.fetch()
    assert found["last stable offset"] == found["high watermark"]
    assert len(found["aborted"]) == (0 if committed else 1)
    assert writer.produce(writer.producer, 0, version=PRODUCE)[0] == 0
    writer.wire.close()


def test_an_end_that_could_not_be_written_bumps_the_epoch_once(broker):
    writer = writer_of(broker, "once")
    assert writer.produce(writer.producer, 0, version=PRODUCE)[0] == 0
    served = native_of(broker).served
    system = broker.node.system
    rule = system.fault("pwritev", "error", errno=28, path_contains=f"{TRANSACTION_STATE}-")
    assert writer.end(writer.producer, True, END, settle=False)[0] == 16  # NOT_COORDINATOR
    assert system.fired(rule) == 1
    finish(writer, True)
    assert native_of(broker).served == served + 2
    epochs = [row.producer_epoch for _, _, row in records_of(broker, "once")]
    assert epochs == [0, 0, 1, 1]
    writer.wire.close()


def test_a_partition_that_could_not_be_added_is_added_when_the_batch_comes_again(broker):
    writer = writer_of(broker, "added")
    system = broker.node.system
    rule = system.fault("pwritev", "error", errno=28, path_contains=f"{TRANSACTION_STATE}-")
    told = writer.produce(writer.producer, 0, version=PRODUCE, settle=False)
    assert told[0] == 19  # NOT_ENOUGH_REPLICAS
    assert system.fired(rule) == 1
    assert writer.produce(writer.producer, 0, version=PRODUCE)[0] == 0
    states = [(int(row.state), row.client_version) for _, _, row in records_of(broker, "added")]
    assert states == [(0, 0), (1, 2)]
    finish(writer, True)
    assert writer.fetch()["last stable offset"] == 2
    writer.wire.close()


@pytest.fixture(params=["os", "fsync"])
def unverified(tmp_path, request):
    setting = {"transaction.partition.verification.enable": "false"}
    with started(tmp_path, request.param, setting) as broker:
        yield broker


def test_partitions_are_added_where_the_others_are_not_verified(unverified):
    """transaction.partition.verification.enable applies to clients that add partitions
    themselves."""
    writer = writer_of(unverified, "added")
    assert writer.produce(writer.producer, 0, version=PRODUCE)[0] == 0
    assert known(unverified, "added").now.partitions == {("a", 0)}
    finish(writer, True)
    found = writer.fetch()
    assert found["last stable offset"] == found["high watermark"] == 2
    assert writer.produce(writer.producer, 0, version=11, settle=False)[0] == 0
    writer.wire.close()


def test_no_marker_ends_what_has_its_own_epoch(unverified):
    """It would be a late marker of the transaction before."""
    writer = writer_of(unverified, "newer")
    producer_id, epoch = writer.producer
    assert writer.produce(writer.producer, 0, version=PRODUCE)[0] == 0
    assert writer.produce((producer_id, epoch + 1), 0, version=11, settle=False)[0] == 0
    finish(writer, True)
    assert writer.fetch()["last stable offset"] == 0
    writer.wire.close()


def test_a_refused_commit_leaves_no_verification(broker):
    """One that remained would accept a batch after its transaction has ended."""
    writer = writer_of(broker, "refused")
    told = writer.commit_offsets(writer.producer, 1, COMMIT, generationIdOrMemberEpoch=5)
    assert told == [25]  # UNKNOWN_MEMBER_ID
    producer_id, epoch = writer.producer
    assert writer.commit_offsets((producer_id, epoch + 1), 1, COMMIT) == [47]
    index = id_hash(writer.group) % 4
    assert known(broker, "refused").now.partitions == {(CONSUMER_OFFSETS, index)}
    log = broker.node.loaded.replicas.log(CONSUMER_OFFSETS, index)
    newest = log.begin_verification(writer.producer[0])
    assert newest > 1
    for number in range(1, newest):
        with pytest.raises(LogError):
            log.append(bytearray(writer.batch(writer.producer, -1)), verification=number)
    log.append(bytearray(writer.batch(writer.producer, -1)), verification=newest)
    log.end_verification(newest)
    writer.wire.close()


def test_many_producers_while_others_look(broker):
    """All records and offsets of a committed transaction are there, and none of an aborted one."""
    over = threading.Event()
    failures: list[str] = []
    counts, tries = [], [0] * 6

    def produce(at):
        writer = writer_of(broker, f"many-{at}")
        last, tried, kept = 0, 0, 0
        while not over.is_set():
            tried += 1
            tries[at] = tried
            committed = tried % 3 != 0
            told = [
                writer.produce(writer.producer, 0, version=PRODUCE, partition=at, settle=False)[0],
                *writer.commit_offsets(writer.producer, tried, COMMIT),
            ]
            code, *producer = writer.end(writer.producer, committed, END, settle=False)
            if any(told) or code:
                failures.append(f"{at}: {told} {code}")
            writer.producer = tuple(producer)
            last = tried if committed else last
            kept += committed
            if tried % 7 == at and writer.committed() != (0, [(0, last)]):
                failures.append(f"{at}: {writer.committed()}, not {last}")
            if tried % 11 == at:
                writer.describe()
        found = writer.fetch(index=at)
        if found["last stable offset"] != 2 * tried or len(found["aborted"]) != tried - kept:
            failures.append(f"{at}: {tried} transactions, {found['last stable offset']}")
        counts.append(tried)
        writer.wire.close()

    side_by_side(produce, over, lambda: sum(tries) > 160)
    assert failures == [] and len(counts) == 6
    assert native_of(broker).served > sum(counts) - 60 > 100
