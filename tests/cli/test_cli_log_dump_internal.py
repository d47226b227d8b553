"""`barnabas log dump` of the internal topics: the fields of a record, as Kafka's own tool prints
them."""

import json
from pathlib import Path

import pytest
from cli.conftest import Ran, run_command

from barnabas.cext.record.records import Record
from barnabas.wire import by_name
from barnabas.wire.batches import encode_batch
from barnabas.wire.internal import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    record_type,
)

SEGMENT = "00000000000000000000.log"


def written(folder: Path, *records: Record) -> Path:
    folder.mkdir()
    path = folder / SEGMENT
    path.write_bytes(encode_batch(list(records)))
    return path


def dump(*words: str | Path) -> Ran:
    return run_command("log", "dump", *map(str, words))


def records_of(ran: Ran) -> list[dict]:
    return [r for line in ran.text.splitlines() for r in json.loads(line)["records"]]


def commit(offset: int) -> Record:
    kind = record_type(CONSUMER_OFFSETS, "OffsetCommit")
    key = kind.key.cls(group="g", topic="news", partition=3)
    value = kind.value.cls(offset=offset, leaderEpoch=2, metadata="m", commitTimestamp=7)
    return Record(kind.encode_value(value, 3), kind.encode_key(key))


def group() -> Record:
    kind = record_type(CONSUMER_OFFSETS, "GroupMetadata")
    subscription = by_name("ConsumerProtocolSubscription")
    assignment = by_name("ConsumerProtocolAssignment")
    assigned = assignment.struct("assignedPartitions")(topic="news", partitions=[0, 3])
    member = kind.value.struct("members")(
        memberId="m-1",
        clientId="c",
        clientHost="/127.0.0.1",
        subscription=b"\0\1" + subscription.encode(subscription.cls(topics=["news"]), 1),
        assignment=b"\0\1" + assignment.encode(assignment.cls(assignedPartitions=[assigned]), 1),
    )
    value = kind.value.cls(
        protocolType="consumer", generation=4, protocol="range", leader="m-1", members=[member]
    )
    return Record(kind.encode_value(value, 3), kind.encode_key(kind.key.cls(group="g")))


COMMIT_KEY = {"type": "1", "data": {"group": "g", "topic": "news", "partition": 3}}
COMMIT_DATA = {"offset": 42, "leaderEpoch": 2, "metadata": "m", "commitTimestamp": 7}


def test_commits_of_a_partition_of_the_offsets_topic(tmp_path: Path):
    tombstone = Record(None, commit(0).key)
    path = written(tmp_path / "__consumer_offsets-3", commit(42), tombstone)
    ran = dump(path, "--records", "--json")
    assert ran.status == 0
    kept, deleted = records_of(ran)
    assert kept["key"] == COMMIT_KEY
    assert kept["value"] == {"version": "3", "data": COMMIT_DATA}
    assert deleted["key"] == COMMIT_KEY and deleted["value"] is None
    line = dump(path, "--records").text.splitlines()[1]
    assert '{"type":"1","data":{"group":"g","topic":"news","partition":3}}' in line


def test_members_of_a_group_with_what_they_subscribed_to(tmp_path: Path):
    path = written(tmp_path / "__consumer_offsets-0", group())
    [row] = records_of(dump(path, "--records", "--json"))
    assert row["key"] == {"type": "2", "data": {"group": "g"}}
    [member] = row["value"]["data"]["members"]
    assert member["subscription"]["topics"] == ["news"]
    assert member["assignment"]["assignedPartitions"] == [{"topic": "news", "partitions": [0, 3]}]


def test_states_of_transactions_anywhere_by_the_decoders_name(tmp_path: Path):
    kind = record_type(TRANSACTION_STATE, "TransactionLog")
    partitions = kind.value.struct("transactionPartitions")(topic="news", partitionIds=[1])
    value = kind.value.cls(producerId=7, producerEpoch=1, transactionPartitions=[partitions])
    key = kind.encode_key(kind.key.cls(transactionalId="tx"))
    path = written(tmp_path / "copied", Record(kind.encode_value(value, 1), key))
    [row] = records_of(dump(path, "--transaction-log-decoder", "--json"))
    assert row["key"] == {"type": "0", "data": {"transactionalId": "tx"}}
    assert row["value"]["version"] == "1" and row["value"]["data"]["producerId"] == 7
    assert row["value"]["data"]["transactionPartitions"][0]["topic"] == "news"
    [plain] = records_of(dump(path, "--records", "--json"))
    assert plain["key"].endswith("tx")
    [other] = records_of(dump(path, "--share-group-state-decoder", "--json"))
    assert "undecoded" in other
    kind = record_type(SHARE_GROUP_STATE, "ShareUpdate")
    share = Record(
        kind.encode_value(kind.value.cls(startOffset=5), 0),
        kind.encode_key(kind.key.cls(groupId="s")),
    )
    path = written(tmp_path / "shared", share)
    [row] = records_of(dump(path, "--share-group-state-decoder", "--json"))
    assert row["value"]["data"]["startOffset"] == 5 and row["key"]["type"] == "1"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"x"),
        (b"", b""),
        (b"\0\x09abc", b"x"),
        (b"\0\1\0\1", b"x"),
        (commit(1).key, b"\0\x63abc"),
        (commit(1).key, b"\0\3a"),
    ],
)
def test_records_of_another_make_are_shown_as_they_are(tmp_path: Path, key, value):
    path = written(tmp_path / "__consumer_offsets-0", Record(value, key))
    ran = dump(path, "--records", "--json")
    [row] = records_of(ran)
    assert ran.status == 0
    assert row["undecoded"] and isinstance(row["value"], str)


def test_a_form_that_is_asked_for_goes_before_the_decoder(tmp_path: Path):
    path = written(tmp_path / "__consumer_offsets-0", commit(42))
    [row] = records_of(dump(path, "--records", "--keys-as", "hex", "--json"))
    assert row["key"] == commit(42).key.hex()
