"""A producer of the second version continues as soon as its end is decided, before the marker."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from transactions.dialogue import SETTINGS, Talk

from barnabas import Broker

ROUNDS = 5
PATIENCE_S = 20
# How long a request waits for the end of the transaction before: no test waits so long.
LONG_WAIT = {"add.partitions.to.txn.retry.backoff.max.ms": "10000"}


def hold_markers(broker: Broker, topic: str, count: int = 1) -> int:
    """Nothing more is written to the topic until the rule is released."""
    broker.node.system.clear_faults()
    return broker.node.system.fault("pwritev", "hold", count=count, path_contains=topic)


def begun(broker: Broker, others: ThreadPoolExecutor, send: Callable, *asked, **more) -> Future:
    """A request that the broker has begun to handle, and cannot answer yet."""
    return _sent(broker, "requests", others.submit, send, *asked, **more)


def waiting(broker: Broker, others: ThreadPoolExecutor, send: Callable, *asked, **more) -> Future:
    """A request that waits for the end of the transaction before: the log of its partition has
    begun to expect its transaction."""
    return _sent(broker, "parked", others.submit, send, *asked, **more)


def _sent(broker: Broker, counter: str, submit: Callable, *asked, **more) -> Future:
    before = broker.node.reactor.counters()[counter]
    answer = submit(*asked, **more)
    deadline = time.monotonic() + PATIENCE_S
    while broker.node.reactor.counters()[counter] == before:
        assert not answer.done(), f"it was answered: {answer.result()}"
        assert time.monotonic() < deadline, f"{counter} does not rise"
        time.sleep(0.001)
    assert not answer.done(), f"it was answered: {answer.result()}"
    return answer


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_the_next_transaction_is_not_refused_for_the_marker_of_the_one_before(tmp_path, commit):
    """Seen with Kafka Streams: the request to the coordinator waited for the end of the transaction
    before, whose marker then reached the partition, so that the answer seemed outdated. Markers are
    written in the order of partitions, so that a slow one in partition 0 delays the one in
    partition 1."""
    settings = {"log.dirs": str(tmp_path), **SETTINGS, **LONG_WAIT}
    with Broker(settings) as broker, ThreadPoolExecutor(1) as other:
        talk = Talk(broker.bootstrap_servers, "beside")
        producer = talk.begun(version=5)
        system = broker.node.system
        assert talk.produce(producer, 0, 2, version=12, partition=1)[0] == 0
        for count in (*[2] * (ROUNDS - 1), 1):
            assert talk.produce(producer, 0, version=12)[0] == 0
            rule = hold_markers(broker, "beside-topic-0")
            error, *after = talk.end(producer, commit, version=5)
            producer = after[0], after[1]
            assert error == 0 and talk.describe().transactionState.startswith("Prepare")
            # The marker is pending: the batch waits, and is accepted.
            told = waiting(
                broker, other, talk.produce, producer, 0, count, version=12, partition=1,
                settle=False,
            )  # fmt: skip
            system.release(rule)
            assert told.result(PATIENCE_S)[0] == 0
            assert system.fired(rule) == 1
        assert talk.end(producer, True, version=5)[0] == 0 and talk.state() == "CompleteCommit"
        found = talk.fetch(index=1)
        assert len(found["aborted"]) == (0 if commit else ROUNDS)
        assert found["last stable offset"] == found["high watermark"] == ROUNDS * 3 + 2
        talk.wire.close()


def test_offsets_of_the_next_transaction_are_not_refused_for_the_marker_of_the_one_before(
    tmp_path,
):
    """TxnOffsetCommit straight after EndTxn, with flushed logs: 2 of 100 were answered
    INVALID_TXN_STATE, which is fatal for clients. Markers are written in the order of topic
    names, so that a slow one in the topic delays the one in __consumer_offsets."""
    settings = {"log.dirs": str(tmp_path), **SETTINGS, **LONG_WAIT, "log.durability": "fsync"}
    with Broker(settings) as broker, ThreadPoolExecutor(1) as other:
        talk = Talk(broker.bootstrap_servers, "Above")
        talk.coordinator(talk.group, 0)
        producer = talk.begun(version=5)
        assert talk.commit_offsets(producer, 0, version=5) == [0]
        system = broker.node.system
        for offset in range(1, ROUNDS):
            assert talk.produce(producer, 0, version=12)[0] == 0
            rule = hold_markers(broker, "Above-topic")
            error, *after = talk.end(producer, True, version=5)
            producer = after[0], after[1]
            assert error == 0 and talk.describe().transactionState.startswith("Prepare")
            told = waiting(broker, other, talk.commit_offsets, producer, offset, version=5)
            system.release(rule)
            assert told.result(PATIENCE_S) == [0]
            assert system.fired(rule) == 1
        assert talk.end(producer, True, version=5)[0] == 0 and talk.state() == "CompleteCommit"
        assert talk.settled() == (0, [(0, ROUNDS - 1)])
        talk.wire.close()


def test_partitions_that_a_client_adds_itself_are_in_its_transaction_after_a_restart(tmp_path):
    """Their logs expect the transaction. After a restart, the table of transactional ids is
    asked."""
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", **SETTINGS}
    with Broker(settings) as broker:
        talk = Talk(broker.bootstrap_servers, "told")
        producer = talk.begun()
        for turn in range(3):
            assert talk.add(producer, 0, 1) == [0, 0]
            assert talk.produce(producer, turn)[0] == 0
            assert talk.end(producer, turn != 1) == 0 and talk.state().startswith("Complete")
        # An ended transaction is no longer expected, also in partitions without its records.
        assert talk.produce(producer, 0, partition=1)[0] == 48
        assert talk.add(producer, 0, 1) == [0, 0]
        talk.wire.close()
        broker.restart()
        talk = Talk(broker.bootstrap_servers, "told", again=True)
        assert talk.produce(producer, 0, partition=1)[0] == 0
        assert talk.end(producer, True) == 0 and talk.state() == "CompleteCommit"
        talk.wire.close()


def test_an_end_while_a_batch_waits_leaves_nothing_open(tmp_path):
    """The batch belongs to a transaction that its own producer ends meanwhile."""
    settings = {"log.dirs": str(tmp_path), **SETTINGS, **LONG_WAIT}
    with Broker(settings) as broker, ThreadPoolExecutor(2) as others:
        talk = Talk(broker.bootstrap_servers, "ended")
        writer = Talk(broker.bootstrap_servers, "ended", again=True)
        producer = talk.begun(version=5)
        assert talk.produce(producer, 0, version=12)[0] == 0
        rule = hold_markers(broker, "ended-topic", count=3)
        error, *after = talk.end(producer, True, version=5)
        assert error == 0
        now = after[0], after[1]
        end = begun(broker, others, talk.end, now, True, version=5)
        batch = begun(broker, others, writer.produce, now, 0, version=12, settle=False)
        broker.node.system.release(rule)
        told, answer = end.result(PATIENCE_S), batch.result(PATIENCE_S)
        assert talk.state() in ("CompleteCommit", "Ongoing"), (told, answer)
        if talk.state() == "Ongoing":
            assert talk.end(now, True, version=5)[0] == 0 and talk.state() == "CompleteCommit"
        found = talk.fetch()
        assert found["last stable offset"] == found["high watermark"]
        for one in (talk, writer):
            one.wire.close()
