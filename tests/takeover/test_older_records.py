"""An export in ZooKeeper mode has records of internal topics that Kafka 2.8 reads.

test_export_real_kafka.py starts the real 2.8.2 on one."""

import pytest

from barnabas.cext.codec.crc import crc32c
from barnabas.cext.record.messageset import encode_message_set, encode_wrapper
from barnabas.cext.record.records import Record
from barnabas.takeover import older_records
from barnabas.takeover.stored_batches import batches_of
from barnabas.wire import compression
from barnabas.wire.batches import encode_batch
from barnabas.wire.internal import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    record_type,
    record_types,
)

STATE = record_type(TRANSACTION_STATE, "TransactionLog")


def state_record(version, **fields):
    known = {
        "producerId": 7,
        "producerEpoch": 3,
        "transactionTimeoutMs": 60_000,
        "transactionStatus": 1,
        "transactionPartitions": [],
        "transactionLastUpdateTimestampMs": 5,
        "transactionStartTimestampMs": 4,
    }
    value = STATE.value.cls(**known | fields)
    key = STATE.encode_key(STATE.key.cls(transactionalId="t"))
    return Record(STATE.encode_value(value, version), key, timestamp=9)


def written(path, *batches):
    path.write_bytes(b"".join(batches))
    return path


def batches(content, path):
    return list(batches_of(written(path, content)))


def test_states_of_transactions_become_version_0(tmp_path):
    """Offsets, times, epochs and the codec of the batch stay."""
    later = state_record(1, nextProducerEpoch=4, clientTransactionVersion=2, previousProducerId=6)
    batch = encode_batch(
        [later, state_record(0)],
        base_offset=40,
        codec=compression.LZ4,
        leader_epoch=5,
        last_offset_delta=8,
    )
    path = written(tmp_path / f"{0:020d}.log", batch, b"a torn end")
    content = older_records.older(TRANSACTION_STATE, path)
    assert content.endswith(b"a torn end")
    (made,) = batches(content.removesuffix(b"a torn end"), tmp_path / f"{1:020d}.log")
    assert (made.base_offset, made.last_offset, made.leader_epoch) == (40, 48, 5)
    assert made.codec == compression.LZ4
    first, second = made.records
    assert (first.offset, first.timestamp, second.offset) == (40, 9, 41)
    assert first.value == second.value == state_record(0).value
    assert older_records.older(TRANSACTION_STATE, tmp_path / f"{1:020d}.log") is None


def test_groups_of_later_protocols_are_left_out_with_their_offsets(tmp_path):
    """Kafka 2.8 stops to load a partition at a type that it does not know. A batch of them becomes
    one without records; one of a transaction keeps its producer."""
    offsets = record_type(CONSUMER_OFFSETS, "OffsetCommit")
    key = offsets.encode_key(offsets.key.cls(group="g", topic="t", partition=0))
    value = offsets.value.cls(offset=7, metadata="")
    commit = Record(offsets.encode_value(value, 3), key)
    fields = {"groupId": "new"}
    kinds = [row for row in record_types(CONSUMER_OFFSETS).values() if row.type > 2]
    later = []
    for kind in kinds:
        names = {
            name: text
            for name, text in {**fields, "memberId": "m", "regularExpression": "r"}.items()
            if hasattr(kind.key.cls(), name)
        }
        later.append(Record(None, kind.encode_key(kind.key.cls(**names))))
    assert len(later) > 10
    path = written(
        tmp_path / f"{0:020d}.log",
        encode_batch(later, base_offset=0, leader_epoch=1),
        encode_batch(
            [later[0], commit],
            base_offset=len(later),
            producer_id=9,
            producer_epoch=2,
            base_sequence=0,
            transactional=True,
        ),
    )
    content = older_records.older(CONSUMER_OFFSETS, path)
    empty, kept = batches(content, tmp_path / f"{1:020d}.log")
    assert (empty.records, empty.base_offset, empty.last_offset) == ([], 0, len(later) - 1)
    assert [row.offset for row in kept.records] == [len(later) + 1]
    assert kept.records[0].value == commit.value
    assert (kept.producer_id, kept.producer_epoch, kept.transactional) == (9, 2, True)
    assert (kept.base_sequence, kept.last_offset) == (0, len(later) + 1)


def test_tagged_fields_of_a_later_kafka_are_left_out(tmp_path):
    """Kafka may add a tagged field without a new version of the value."""
    group = record_type(CONSUMER_OFFSETS, "GroupMetadata")
    member = group.value.struct("members")(
        memberId="m", clientId="c", clientHost="h", subscription=b"", assignment=b""
    )
    fields = {"protocolType": "consumer", "protocol": None, "leader": None}
    value = group.value.cls(**fields, members=[member])
    known = group.encode_value(value, 3)
    value.unknown, member.unknown = ((9, b"later"),), ((8, b"later"),)
    record = Record(group.encode_value(value, 4), group.encode_key(group.key.cls(group="g")))
    path = written(tmp_path / f"{0:020d}.log", encode_batch([record]))
    (made,) = batches(older_records.older(CONSUMER_OFFSETS, path), tmp_path / f"{1:020d}.log")
    assert [row.value for row in made.records] == [known]


def far_apart():
    rows = [Record(b"v", b"k", offset=0), Record(b"v", b"k", offset=1 << 40)]
    content = encode_message_set(rows, magic=0, keep_offsets=True)
    body = compression.compress(compression.GZIP, content)
    return encode_wrapper(body, magic=0, codec=compression.GZIP, offset=1 << 40)


def unreadable():
    """A batch with a right checksum whose records cannot be read."""
    made = bytearray(encode_batch([state_record(1)]))
    made[60] = 9  # the number of records
    made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
    return bytes(made)


@pytest.mark.parametrize("damaged", [far_apart(), unreadable()], ids=["far apart", "unreadable"])
def test_a_batch_that_cannot_be_written_again_stays_with_what_follows(tmp_path, damaged):
    later = encode_batch([state_record(1, nextProducerEpoch=4)])
    path = written(tmp_path / f"{0:020d}.log", later, damaged, later)
    content = older_records.older(TRANSACTION_STATE, path)
    assert content.endswith(damaged + later)
    first = content.removesuffix(damaged + later)
    (made,) = batches(first, tmp_path / f"{1:020d}.log")
    assert made.records[0].value == state_record(0).value
