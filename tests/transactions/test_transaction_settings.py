"""Settings of transactions in a whole broker: each test sets one and checks its effect."""

import time

import pytest
from compat.support import Wire
from transactions.dialogue import Talk
from waiting import soon

from barnabas import Broker

INVALID_TRANSACTION_TIMEOUT, INVALID_TXN_STATE = 50, 48


def broker_with(path, **settings):
    named = {name.replace("_", "."): value for name, value in settings.items()}
    defaults = {"transaction.state.log.num.partitions": "2"}
    return Broker(
        {
            "log.dirs": str(path),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **defaults,
            **named,
        }
    )


@pytest.mark.parametrize("timeout_ms", ["5000", "700000"])
def test_no_transaction_may_be_longer_than_transaction_max_timeout_ms(tmp_path, timeout_ms):
    with broker_with(tmp_path, **{"transaction.max.timeout.ms": timeout_ms}) as broker:
        talk = Talk(broker.bootstrap_servers, "longest")
        assert talk.init(timeout_ms=int(timeout_ms))[0] == 0
        assert talk.init(timeout_ms=int(timeout_ms) + 1)[0] == INVALID_TRANSACTION_TIMEOUT
        talk.wire.close()


def test_a_late_transaction_is_aborted_within_the_cleanup_interval(tmp_path):
    name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with broker_with(tmp_path, **{name: "100"}) as broker:
        talk = Talk(broker.bootstrap_servers, "late")
        error, producer_id, epoch = talk.init(timeout_ms=50)
        assert error == 0 and talk.add((producer_id, epoch), 0) == [0]
        deadline = time.monotonic() + 8  # the default is every ten seconds
        while talk.describe().transactionState == "Ongoing" and time.monotonic() < deadline:
            time.sleep(0.02)
        assert talk.state() == "CompleteAbort"
        talk.wire.close()


def test_transactional_ids_are_forgotten_after_transactional_id_expiration_ms(tmp_path):
    settings = {
        "transactional.id.expiration.ms": "600000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
    }
    with broker_with(tmp_path, **settings) as broker:
        talk = Talk(broker.bootstrap_servers, "idle")
        assert talk.init()[0] == 0 and talk.describe().errorCode == 0
        broker.clock.advance(minutes=9)
        assert talk.describe().errorCode == 0
        broker.clock.advance(minutes=2)
        soon(lambda: talk.describe().errorCode == 105, "it is not forgotten")
        talk.wire.close()


def test_batches_are_not_verified_without_transaction_partition_verification_enable(tmp_path):
    for enabled, code in (("true", INVALID_TXN_STATE), ("false", 0)):
        settings = {"transaction.partition.verification.enable": enabled}
        with broker_with(tmp_path / enabled, **settings) as broker:
            talk = Talk(broker.bootstrap_servers, "verified")
            producer = talk.begun()
            assert talk.produce(producer, 0)[0] == code
            talk.wire.close()


def test_transaction_state_log_num_partitions_and_segment_bytes(tmp_path):
    settings = {
        "transaction.state.log.num.partitions": "7",
        "transaction.state.log.segment.bytes": "2097152",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    with broker_with(tmp_path, **settings) as broker:
        talk = Talk(broker.bootstrap_servers, "state")
        assert talk.init()[0] == 0
        found = broker.node.cluster().topic("__transaction_state")
        assert len(found.partitions) == 7
        # One broker is enough for a cluster of one.
        assert all(len(row.replicas) == 1 for row in found.partitions.values())
        configs = broker.node.cluster().config("topics", "__transaction_state")
        assert configs["segment.bytes"] == "2097152"
        assert configs["min.insync.replicas"] == "1"
        talk.wire.close()


def test_an_end_that_was_left_on_another_connection_ends_nothing(tmp_path):
    """KAFKA-17754, first version: the request was sent again on a new connection, and answered."""
    with broker_with(tmp_path) as broker:
        talk = Talk(broker.bootstrap_servers, "left")
        producer = talk.begun(0)
        left, talk.wire = talk.wire, Wire(broker.bootstrap_servers)
        assert talk.end(producer, True) == 0  # the first one is still on its way, on `left`
        assert talk.add(producer, 0) == [0] and talk.produce(producer, 0)[0] == 0
        now, talk.wire = talk.wire, left
        assert talk.end(producer, True, settle=False) == 51
        talk.wire = now
        assert talk.state() == "Ongoing"
        assert talk.end(producer, False) == 0 and talk.state() == "CompleteAbort"
        assert talk.fetch()["aborted"] != []
        for wire in (left, now):
            wire.close()
