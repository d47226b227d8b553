"""The client or the broker is killed during a transaction: all of it or nothing is visible, and
readers continue."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest
from compat.support import Broker
from transactions.dialogue import Talk
from waiting import soon

from barnabas.wire.batches import decode_batches

SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
CLIENT_KILLS, BROKER_KILLS = 12, 8
LATER_TRANSACTIONS, LATER_S = 5, 0.0231


def committed_values(talk, index=0):
    """The records that a reader of committed records returns, read to the end without a break."""
    from barnabas.wire import request

    ask = request(1)
    row = ask.struct("topics.partitions")(partition=index, fetchOffset=0, partitionMaxBytes=1 << 22)
    topics = [ask.struct("topics")(topic=talk.topic, partitions=[row])]
    told = talk.call(
        1, 11, maxWaitMs=0, minBytes=0, maxBytes=1 << 22, isolationLevel=1, topics=topics,
        sessionId=0, sessionEpoch=-1,
    ).responses[0].partitions[0]  # fmt: skip
    assert told.errorCode == 0
    waiting = sorted((one.firstOffset, one.producerId) for one in told.abortedTransactions or ())
    aborting, found = set(), []
    for batch in decode_batches(bytes(told.records), size_max=1 << 22, partial_tail=True):
        while waiting and waiting[0][0] <= batch.last_offset:
            aborting.add(waiting.pop(0)[1])
        if batch.control:
            aborting.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in aborting):
            found += [record.value for record in batch.records]
    return found, told.lastStableOffset, told.highWatermark


def is_stable(talk):
    _, stable, high = committed_values(talk)
    return stable == high


CLIENT = """
import json, sys
from transactions.dialogue import Talk
talk = Talk.__new__(Talk)
talk.address, talk.topic, talk.txn, talk.noted, talk._ids = *sys.argv[1:4], [], {}
from compat.support import Wire
talk.wire = Wire(talk.address)
error, producer_id, epoch = talk.init(5, timeout_ms=400)
assert error == 0, error
producer = producer_id, epoch
sequence, at = 0, int(sys.argv[4])
while True:
    told = talk.produce(producer, sequence, version=12, values=[b"%d" % at])
    assert told[0] == 0, told
    print("produced", at, flush=True)
    told = talk.end(producer, True, version=5)
    assert told[0] == 0, told
    producer, sequence = told[1:], 0
    print("committed", at, flush=True)
    at += 1
"""


def test_a_client_killed_between_produce_and_its_end_leaves_all_or_nothing(tmp_path):
    """Numbers are copied: each is there once and in order, whenever the client was killed; what it
    left open is aborted after its timeout, and readers continue."""
    broker = Broker("barnabas", tmp_path, SETTINGS)
    try:
        talk = Talk(broker.address, "copy")
        at = 0
        for kill in range(CLIENT_KILLS):
            command = [sys.executable, "-c", CLIENT, broker.address, talk.topic, talk.txn, str(at)]
            environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))}
            client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
            said = [client.stdout.readline() for _ in range(2 * (kill % 3) + 1)]
            client.send_signal(signal.SIGKILL)
            said += client.stdout.read().splitlines(keepends=True)
            client.wait()
            assert said[0].startswith("produced"), said
            # All acknowledged ones are there, and perhaps one more, whose response was lost.
            soon(lambda: talk.state() in ("CompleteCommit", "CompleteAbort"), "readers go on")
            told = [int(row.split()[1]) for row in said if row.startswith("committed")]
            found = committed_values(talk)[0]
            assert found == [b"%d" % i for i in range(len(found))]
            assert len(found) in (at + len(told), at + len(told) + 1)
            at = len(found)
        # A last request of the killed client may begin a transaction after its state was asked for.
        soon(lambda: is_stable(talk), "readers go on")
        assert len(committed_values(talk)[0]) == at > CLIENT_KILLS // 2
    finally:
        broker.stop()


def test_a_broker_killed_at_any_moment_of_a_commit_completes_it(tmp_path):
    """All partitions of a transaction show it, or none does; each acknowledged one is there."""
    told = {}
    for kill in range(BROKER_KILLS):
        broker = Broker("barnabas", tmp_path, SETTINGS)
        try:
            talk = Talk.__new__(Talk)
            if kill == 0:
                talk = Talk(broker.address, "torn")
            else:
                fill_in(talk, broker.address)
            check(talk, told)
            most = len(told) + LATER_TRANSACTIONS
            killer = threading.Thread(
                target=kill_after, args=(broker.pid, told, most, kill * LATER_S), daemon=True
            )
            killer.start()
            with suppress(OSError):
                transactions_until_the_end(talk, told)
            killer.join()
        finally:
            broker.stop()
    broker = Broker("barnabas", tmp_path, SETTINGS)
    try:
        talk = Talk.__new__(Talk)
        fill_in(talk, broker.address)
        check(talk, told)
        assert len(told) > LATER_TRANSACTIONS * BROKER_KILLS  # some transactions were interrupted
    finally:
        broker.stop()


def kill_after(pid, told, count, later_s):
    """kill -9, some time after the transaction with this number has begun."""
    soon(lambda: len(told) > count, "no transactions")
    time.sleep(later_s)
    os.kill(pid, signal.SIGKILL)


def transactions_until_the_end(talk, told):
    """Runs transactions one after the other, each with a record in both partitions; every third
    aborts."""
    error, producer_id, epoch = talk.init(4)
    assert error == 0
    producer, sequence = (producer_id, epoch), 0
    while True:
        name = b"txn-%d" % len(told)
        told[name] = None
        assert talk.add(producer, 0, 1) == [0, 0]
        for index in (0, 1):
            rows = {index: talk.batch(producer, sequence, values=[name])}
            assert talk.produce(producer, sequence, batches=rows)[0][0] == 0
        sequence += 1
        commit = len(told) % 3 != 0
        assert talk.end(producer, commit) == 0
        told[name] = commit


def fill_in(talk, address):
    """The same ids and names, with the broker that was started again."""
    from compat.support import Wire

    talk.address, talk.wire = address, Wire(address)
    talk.topic, talk.txn, talk.group = "torn-topic", "torn-txn", "torn-group"
    talk.noted, talk._ids = [], {}
    talk.coordinator(talk.txn)


def check(talk, told):
    if not told:
        return

    # Aborts undecided transactions, and waits for decided ones.
    assert talk.init(4)[0] == 0
    seen = [committed_values(talk, index) for index in (0, 1)]
    for found, stable, high in seen:
        assert stable == high
        assert len(found) == len(set(found))
    assert seen[0][0] == seen[1][0], "a torn transaction"
    for name, answered in told.items():
        if answered is not None:
            assert (name in seen[0][0]) is answered, f"{name} is not as it was answered"


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_are_known_after_a_kill(tmp_path, commit):
    """Pending offsets stay pending until the transaction ends, and count if it commits."""
    broker = Broker("barnabas", tmp_path, SETTINGS)
    talk = Talk(broker.address, "torn")
    talk.coordinator(talk.group, 0)
    producer = talk.begun()
    assert talk.add_offsets(producer) == 0 and talk.commit_offsets(producer, 7) == [0]
    os.kill(broker.pid, signal.SIGKILL)
    broker.stop()
    broker = Broker("barnabas", tmp_path, SETTINGS)
    try:
        fill_in(talk, broker.address)
        talk.coordinator(talk.group, 0)
        assert talk.committed() == (0, [(88, -1)])  # unstable: the transaction has not ended
        assert talk.end(producer, commit) == 0
        soon(lambda: talk.state().startswith("Complete"), "the end")
        soon(lambda: talk.committed()[1][0][0] == 0, "stable")
        assert talk.committed() == (0, [(0, 7 if commit else -1)])
    finally:
        broker.stop()
