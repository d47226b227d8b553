"""Idempotent producers in a whole broker: their state, also after a restart."""

import time
from contextlib import closing

import pytest
from compat.support import Wire, create_topic

from barnabas import Broker
from barnabas.cext.record.records import Record
from barnabas.wire import request
from barnabas.wire.batches import decode_batches, encode_batch

OUT_OF_ORDER, BAD_EPOCH = 45, 47


def broker_on(path):
    return Broker({"log.dirs": str(path), "listeners": "PLAINTEXT://127.0.0.1:0"})


def send(broker, producer_id, sequence, count=1, epoch=0, topic="t"):
    """(error, base offset) of one batch of an idempotent producer."""
    now = int(time.time() * 1000)
    records = [Record(b"%d" % (sequence + i), timestamp=now) for i in range(count)]
    batch = encode_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    ask = request(0)
    data = ask.struct("topicData")(name=topic)
    data.partitionData = [ask.struct("topicData.partitionData")(index=0, records=batch)]
    with closing(Wire(broker.bootstrap_servers)) as wire:
        answer = wire.call(0, 9, ask.cls(acks=-1, timeoutMs=9000, topicData=[data]))
    row = answer.responses[0].partitionResponses[0]
    return row.errorCode, row.baseOffset


def values(broker, topic="t"):
    ask = request(1)
    row = ask.struct("topics.partitions")(partition=0, fetchOffset=0, partitionMaxBytes=1 << 20)
    topics = [ask.struct("topics")(topic=topic, partitions=[row])]
    with closing(Wire(broker.bootstrap_servers)) as wire:
        answer = wire.call(1, 4, ask.cls(maxWaitMs=500, minBytes=1, topics=topics))
    data = bytes(answer.responses[0].partitions[0].records)
    return [r.value for b in decode_batches(data, size_max=1 << 20) for r in b.records]


def new_id(broker):
    ask = request(22)
    with closing(Wire(broker.bootstrap_servers)) as wire:
        answer = wire.call(22, 4, ask.cls(transactionalId=None, transactionTimeoutMs=1))
    assert (answer.errorCode, answer.producerEpoch) == (0, 0)
    return answer.producerId


def test_repeated_batches_are_answered_with_their_first_offset(tmp_path):
    with broker_on(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "t")
        producer = new_id(broker)
        assert [send(broker, producer, s) for s in range(6)] == [(0, s) for s in range(6)]
        assert send(broker, producer, 3) == (0, 3)
        assert send(broker, producer, 7)[0] == OUT_OF_ORDER
        assert send(broker, producer, 6) == (0, 6)
        assert values(broker) == [b"%d" % s for s in range(7)]


@pytest.mark.parametrize("clean", [True, False])
def test_sequences_are_known_after_a_restart(tmp_path, clean):
    with broker_on(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "t")
        producer = new_id(broker)
        assert send(broker, producer, 0, count=3) == (0, 0)
        assert send(broker, producer, 3, count=2) == (0, 3)
    if not clean:  # as after a crash: without the marker of a clean stop
        (tmp_path / ".kafka_cleanshutdown").unlink()
        for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
            snapshot.unlink()
    with broker_on(tmp_path) as broker:
        assert send(broker, producer, 3, count=2) == (0, 3)
        assert send(broker, producer, 9)[0] == OUT_OF_ORDER
        assert send(broker, producer, 5) == (0, 5)
        assert len(values(broker)) == 6
        assert new_id(broker) not in (producer, -1)


def test_an_old_epoch_is_fenced_and_a_new_one_begins_at_zero(tmp_path):
    with broker_on(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "t")
        assert send(broker, 9, 0, epoch=1) == (0, 0)
        assert send(broker, 9, 1, epoch=0)[0] == BAD_EPOCH
        assert send(broker, 9, 5, epoch=2)[0] == OUT_OF_ORDER
        assert send(broker, 9, 0, epoch=2) == (0, 1)


def test_ids_are_given_once(tmp_path):
    seen = []
    for _ in range(3):
        with broker_on(tmp_path) as broker:
            seen += [new_id(broker) for _ in range(3)]
    assert len(set(seen)) == 9


def test_a_quiet_producer_is_forgotten_after_producer_id_expiration_ms(tmp_path):
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "producer.id.expiration.ms": "300",
    }
    with Broker(settings) as broker:
        create_topic(broker.bootstrap_servers, "t")
        assert send(broker, 9, 0) == (0, 0)
        assert send(broker, 9, 5)[0] == OUT_OF_ORDER
        broker.clock.advance(ms=301)
        assert broker.node.loaded.logs.expire_producers() == 1  # runs every ten minutes
        assert send(broker, 9, 5) == (0, 1)  # an unknown producer may begin with any sequence
