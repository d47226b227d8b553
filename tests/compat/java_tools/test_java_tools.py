"""Kafka's own command line tools (release 4.3.1); each test asserts on what the tool prints."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat.java.driver import missing
from compat.java.tool_runner import ToolRunner
from compat.support import KAFKA, Broker, Wire, produce_batch
from share.share_member import ShareMember, configure
from streams.streams_wire import StreamsMember
from transactions.dialogue import Talk

from barnabas.wire import request

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=20)]
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolRunner]:
    reason = missing(KAFKA)
    if reason:
        pytest.skip(reason)
    made = ToolRunner(KAFKA, tmp_path_factory.mktemp("tools"))
    yield made
    made.close()


@pytest.fixture
def tool(broker: Broker, runner: ToolRunner) -> Tool:
    """Runs a tool against the broker; its output, or with ok=False what it complained of."""

    def run(verb: str, *arguments: str, given: str = "", ok: bool = True) -> str:
        where = () if verb == "dump-log" else ("--bootstrap-server", broker.address)
        ran = runner.run(verb, *where, *arguments, given=given)
        said = ran.out + ran.err
        if verb != "get-offsets":  # which complains without a status
            assert (ran.status == 0) == ok, said
        return ran.out if ok else said

    return run


def test_topics(tool: Tool, topic: Callable[..., str]) -> None:
    name = topic() + "-made"
    config = ("--config", "retention.ms=1000")
    made = tool("topics", "--create", "--topic", name, "--partitions", "2", *config)
    assert f"Created topic {name}." in made
    assert "already exists" in tool("topics", "--create", "--topic", name, ok=False)
    assert name in tool("topics", "--list").split()
    told = tool("topics", "--describe", "--topic", name)
    assert re.search(rf"Topic: {name}\s+TopicId: \S{{22}}\s+PartitionCount: 2", told)
    assert "ReplicationFactor: 1" in told and "retention.ms=1000" in told
    assert len(re.findall(r"Partition: \d+\s+Leader: (\d+)\s+Replicas: \1\s+Isr: \1", told)) == 2
    tool("topics", "--alter", "--topic", name, "--partitions", "3")
    assert "PartitionCount: 3" in tool("topics", "--describe", "--topic", name)
    tool("topics", "--delete", "--topic", name)
    assert name not in tool("topics", "--list").split()
    assert "does not exist" in tool("topics", "--describe", "--topic", name, ok=False)


def test_configs_of_a_topic(tool: Tool, topic: Callable[..., str]) -> None:
    of = ("--entity-type", "topics", "--entity-name", topic())
    added = "retention.bytes=4096,cleanup.policy=[compact,delete]"
    assert "Completed updating config" in tool("configs", *of, "--alter", "--add-config", added)
    told = tool("configs", *of, "--describe")
    assert "retention.bytes=4096" in told and "cleanup.policy=compact,delete" in told
    assert "DYNAMIC_TOPIC_CONFIG:retention.bytes=4096" in told
    tool("configs", *of, "--alter", "--delete-config", "retention.bytes")
    assert "retention.bytes" not in tool("configs", *of, "--describe")
    assert "segment.bytes=1073741824" in tool("configs", *of, "--describe", "--all")
    wrong = tool("configs", *of, "--alter", "--add-config", "retention.bytes=much", ok=False)
    assert "Invalid value much for configuration retention.bytes" in wrong


def test_configs_of_the_broker(tool: Tool) -> None:
    listed = tool("topics", "--describe", "--topic", "no-such", ok=False)
    assert "no-such" in listed
    all_brokers = ("--entity-type", "brokers", "--entity-default")
    tool("configs", *all_brokers, "--alter", "--add-config", "log.cleaner.threads=2")
    told = tool("configs", *all_brokers, "--describe")
    assert "log.cleaner.threads=2" in told and "DYNAMIC_DEFAULT_BROKER_CONFIG" in told
    tool("configs", *all_brokers, "--alter", "--delete-config", "log.cleaner.threads")
    assert "log.cleaner.threads" not in tool("configs", *all_brokers, "--describe")


def test_get_offsets(tool: Tool, broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(2)
    produce_batch(broker.address, name, [b"a", b"b", b"c"])
    of = ("--topic", name)
    assert lines(tool("get-offsets", *of)) == [f"{name}:0:3", f"{name}:1:0"]
    assert lines(tool("get-offsets", *of, "--time", "latest")) == [f"{name}:0:3", f"{name}:1:0"]
    assert lines(tool("get-offsets", *of, "--time", "-2")) == [f"{name}:0:0", f"{name}:1:0"]
    assert lines(tool("get-offsets", *of, "--time", "earliest", "--partitions", "0")) == [
        f"{name}:0:0"
    ]
    both = ("--topic-partitions", f"{name}:0-2")
    assert lines(tool("get-offsets", *both, "--time", "-1")) == [f"{name}:0:3", f"{name}:1:0"]
    assert lines(tool("get-offsets", *of, "--time", "1", "--partitions", "0")) == [f"{name}:0:0"]
    told = lines(tool("get-offsets", *of, "--time", "max-timestamp", "--partitions", "0"))
    assert told == [f"{name}:0:2"]


def test_log_dirs(tool: Tool, broker: Broker, topic: Callable[..., str]) -> None:
    name = topic()
    produce_batch(broker.address, name, [b"x" * 1000])
    told = tool("log-dirs", "--describe", "--topic-list", name)
    found = json.loads(told.splitlines()[-1])
    (log_dir,) = found["brokers"][0]["logDirs"]
    assert log_dir["logDir"] == str(broker.log_dir) and log_dir["error"] is None
    (partition,) = log_dir["partitions"]
    size = (broker.log_dir / f"{name}-0" / f"{0:020}.log").stat().st_size
    assert partition == {"partition": f"{name}-0", "size": size, "offsetLag": 0, "isFuture": False}


def test_delete_records(
    tool: Tool, broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    produce_batch(broker.address, name, [b"a", b"b", b"c"])
    file = tmp_path / "offsets.json"
    wanted = {"topic": name, "partition": 0, "offset": 2}
    file.write_text(json.dumps({"partitions": [wanted], "version": 1}))
    told = tool("delete-records", "--offset-json-file", str(file))
    assert f"partition: {name}-0\tlow_watermark: 2" in told
    assert lines(tool("get-offsets", "--topic", name, "--time", "-2")) == [f"{name}:0:2"]


def test_console_producer_and_consumer(tool: Tool, topic: Callable[..., str]) -> None:
    """With a partition and an offset, without a group."""
    name = topic()
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool("console-producer", "--topic", name, *keyed, given="k1:one\nk2:two\nk3:three\n")
    of = ("--topic", name, "--partition", "0", "--timeout-ms", "20000")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true")
    told = tool("console-consumer", *of, "--offset", "earliest", "--max-messages", "3", *shown)
    assert lines(told) == ["Offset:0\tk1\tone", "Offset:1\tk2\ttwo", "Offset:2\tk3\tthree"]
    assert lines(tool("console-consumer", *of, "--offset", "2", "--max-messages", "1")) == ["three"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_dump_log_reads_the_files(
    tool: Tool, broker: Broker, topic: Callable[..., str], codec: str
) -> None:
    """Kafka's reader of log files finds our batches valid, and the index consistent with them."""
    name = topic(index_interval_bytes="0")
    for first in (0, 3):
        produce_batch(
            broker.address, name, [b"value-%d" % i for i in range(first, first + 3)], codec
        )
    folder = broker.log_dir / f"{name}-0"
    files = ",".join(str(folder / f"{0:020}.{kind}") for kind in ("log", "index", "timeindex"))
    told = tool("dump-log", "--files", files, "--print-data-log", "--deep-iteration")
    assert told.count("isvalid: true") == 2 and "isvalid: false" not in told
    assert told.count(f"compresscodec: {codec}") == 2
    assert re.findall(r"payload: (\S+)", told) == [f"value-{i}" for i in range(6)]
    assert re.search(r"offset: \d+ position: \d+", told)
    for complaint in ("Mismatches", "not found", "out of order", "corrupt"):
        assert complaint not in told, told


def test_transactions(tool: Tool, broker: Broker) -> None:
    """The tool lists an open transaction, describes it, finds it in its partition, and aborts
    it."""
    talk = Talk(broker.address, "tools")
    producer = talk.begun(0)
    talk.produce(producer, 0, 2)
    listed = next(row for row in lines(tool("transactions", "list")) if talk.txn in row)
    assert listed.split()[2:] == [str(producer[0]), "Ongoing"]
    assert talk.txn not in tool("transactions", "list", "--duration-filter", "3600000")
    told = lines(tool("transactions", "describe", "--transactional-id", talk.txn))[1].split()
    assert told[2:6] == [str(producer[0]), str(producer[1]), "Ongoing", "60000"]
    assert told[-1] == f"{talk.topic}-0"
    of = ("--topic", talk.topic, "--partition", "0")
    told = lines(tool("transactions", "describe-producers", *of))[1].split()
    assert (told[0], told[1], told[-1]) == (str(producer[0]), str(producer[1]), "0")
    hanging = ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
    told = tool("transactions", *hanging)
    assert talk.topic not in told  # known to its coordinator
    tool("transactions", "abort", *of, "--start-offset", "0")
    assert talk.fetch()["aborted"] == [["id 1", 0]]
    talk.wire.close()


def test_dump_log_reads_transactions(tool: Tool, broker: Broker) -> None:
    """Markers, the transaction index, producer snapshots and the coordinator's own records."""
    talk = Talk(broker.address, "dumped")
    producer = talk.begun(0)
    talk.produce(producer, 0, 2)
    assert (talk.end(producer, False), talk.state()) == (0, "CompleteAbort")
    folder = broker.log_dir / f"{talk.topic}-0"
    told = tool("dump-log", "--files", str(folder / f"{0:020}.log"), "--print-data-log")
    assert "endTxnMarker: ABORT coordinatorEpoch: " in told and "isvalid: false" not in told
    told = tool("dump-log", "--files", str(folder / f"{0:020}.txnindex"))
    assert f"version: 0 producerId: {producer[0]} firstOffset: 0 lastOffset: 2" in told
    assert "lastStableOffset: 3" in told
    files = (row / f"{0:020}.log" for row in broker.log_dir.glob("__transaction_state-*"))
    of = ",".join(str(row) for row in files if row.stat().st_size)
    told = tool("dump-log", "--files", of, "--transaction-log-decoder")
    mine = [row for row in lines(told) if talk.txn in row]
    states = re.findall(r'"transactionStatus":(\d)', " ".join(mine))
    assert states == ["0", "1", "3", "5"], mine


def lines(text: str) -> list[str]:
    return text.split("\n")[:-1]


def test_groups(tool: Tool, topic: Callable[..., str], broker: Broker) -> None:
    """Kafka's own consumer creates a group; Kafka's tools show, reset and delete it; and its
    offsets in __consumer_offsets are read by Kafka's formatter."""
    name = topic()
    group = f"{name}-group"
    produce_batch(broker.address, name, [b"one", b"two", b"three"])
    from_start = ("--from-beginning", "--max-messages", "3", "--timeout-ms", "30000")
    read = tool("console-consumer", "--topic", name, "--group", group, *from_start)
    assert read.split() == ["one", "two", "three"]
    assert group in tool("groups", "--list").split()
    told = tool("groups", "--describe", "--group", group)
    assert re.search(rf"{group}\s+{name}\s+0\s+3\s+3\s+0\s", told)
    assert re.search(
        rf"{group}\s.*\sEmpty\s+0", tool("groups", "--describe", "--state", "--all-groups")
    )
    produce_batch(broker.address, name, [b"four"])
    reset = ("--reset-offsets", "--group", group, "--topic", name)
    tool("groups", *reset, "--shift-by", "-1", "--execute")
    assert re.search(rf"{name}\s+0\s+2\s+4\s+2\s", tool("groups", "--describe", "--group", group))
    formatter = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
    all_of_it = ("--from-beginning", "--timeout-ms", "6000", "--formatter", formatter)
    stored = tool("console-consumer", "--topic", "__consumer_offsets", *all_of_it)
    rows = [json.loads(row) for row in stored.replace('}{"key"', '}\n{"key"').splitlines()]
    mine = [row for row in rows if row["key"]["data"]["group"] == group]
    assert [row["value"]["data"]["offset"] for row in mine][-1] == 2
    assert {row["key"]["data"]["topic"] for row in mine} == {name}
    tool("groups", "--delete-offsets", "--group", group, "--topic", name)
    assert "Deletion of requested consumer groups" in tool("groups", "--delete", "--group", group)
    assert group not in tool("groups", "--list").split()


def test_a_group_of_the_consumer_protocol(
    tool: Tool, topic: Callable[..., str], broker: Broker
) -> None:
    """Type, state, assignor and members of a group (KIP-848)."""
    name = topic(2)
    group = f"{name}-group"
    first = {"memberId": "m", "memberEpoch": 0, "rebalanceTimeoutMs": 60_000}
    first |= {"groupId": group, "subscribedTopicNames": [name], "topicPartitions": []}
    with Wire(broker.address) as wire:
        wire.call(10, 0, request(10).cls(key=group))
        assert wire.call(68, 1, request(68).cls(**first)).errorCode == 0
    listed = tool("groups", "--list", "--type").splitlines()
    assert [row.split() for row in listed if group in row] == [[group, "Consumer"]]
    told = tool("groups", "--describe", "--state", "--verbose", "--group", group)
    assert re.search(rf"{group}\s.*uniform\s+Stable\s+2\s+2\s+1", told), told
    told = tool("groups", "--describe", "--members", "--verbose", "--group", group)
    assert re.search(rf"{group}\s.*\s2\s+{name}:0,1\s", told), told


def test_share_groups(tool: Tool, topic: Callable[..., str], broker: Broker) -> None:
    """kafka-share-groups.sh lists, describes, resets and deletes."""
    name = topic()
    group = f"{name}-share"
    produce_batch(broker.address, name, [b"one", b"two", b"three"])
    assert configure(broker.address, group, share_auto_offset_reset="earliest") == 0
    member = ShareMember(broker.address, group).join(name)
    while not member.fetch(wait_ms=500):
        pass
    assert member.acknowledge(0, 1, 1) == 0
    assert re.search(rf"{group}\s+Stable", tool("share-groups", "--list", "--state"))
    told = tool("share-groups", "--describe", "--group", group)
    assert re.search(rf"{group}\s+{name}\s+0\s+\d+\s+1\b", told), told
    members = tool("share-groups", "--describe", "--group", group, "--members")
    assert re.search(rf"{group}\s+m1\s.*{name}:0", members), members
    assert member.leave() == 0
    member.close()
    reset = ("--reset-offsets", "--group", group, "--topic", name)
    tool("share-groups", *reset, "--to-earliest", "--execute")
    told = tool("share-groups", "--describe", "--group", group)
    assert re.search(rf"{group}\s+{name}\s+0\s+0\s+3\b", told), told
    tool("share-groups", "--delete-offsets", "--group", group, "--topic", name)
    assert name not in tool("share-groups", "--describe", "--group", group).replace(group, "")
    assert "successful" in tool("share-groups", "--delete", "--group", group)
    assert group not in tool("share-groups", "--list").split()


def test_streams_groups(tool: Tool, topic: Callable[..., str], broker: Broker) -> None:
    """kafka-streams-groups.sh lists, describes, resets and deletes."""
    name = topic(2)
    group = f"{name}-streams"
    produce_batch(broker.address, name, [b"one", b"two", b"three"])
    assert configure(broker.address, group, streams_initial_rebalance_delay_ms="0") == 0
    changelog = f"{group}-store-changelog"
    member = StreamsMember(broker.address, group, name, changelogs=[changelog]).join()
    assert member.commit(name, {0: 1, 1: 0}) == 0
    assert re.search(rf"{group}\s+Stable", tool("streams-groups", "--list", "--state"))
    of = ("--describe", "--group", group)
    assert re.search(rf"{group}\s+{name}\s+0\s+2\n", tool("streams-groups", *of)), "its lag"
    assert re.search(rf"{group}\s.*Stable\s+1\b", tool("streams-groups", *of, "--state"))
    members = tool("streams-groups", *of, "--members", "--verbose")
    assert re.search(rf"{group}\s.*m1\s.*ACTIVE: 0:\[0,1\]", members), members
    told = tool("streams-groups", *of, "--offsets", "--verbose")
    assert re.search(rf"{group}\s+{name}\s+0\s+1\s+-\s+3\s+2\b", told), told
    reset = ("--reset-offsets", "--group", group, "--to-earliest", "--all-input-topics")
    assert "only be reset if the group" in tool("streams-groups", *reset, "--execute")
    assert member.leave() == 0
    told = tool("streams-groups", *reset, "--execute")
    assert re.search(rf"{group}\s+{name}\s+0\s+0\b", told), told
    offsets = ("--delete-offsets", "--group", group, "--input-topic", name)
    tool("streams-groups", *offsets)
    told = tool("streams-groups", "--delete", "--group", group)
    assert "successful" in told, told
    assert group not in tool("streams-groups", "--list").split()


def test_groups_of_every_kind(tool: Tool, topic: Callable[..., str], broker: Broker) -> None:
    """kafka-groups.sh lists each with its type and protocol, and filters by both."""
    name = topic()
    classic, shared = f"{name}-classic", f"{name}-share"
    produce_batch(broker.address, name, [b"one"])
    tool("console-consumer", "--topic", name, "--group", classic, "--from-beginning",
         "--max-messages", "1", "--timeout-ms", "30000")  # fmt: skip
    member = ShareMember(broker.address, shared).join(name)
    rows = {row.split()[0]: row.split()[1:] for row in lines(tool("all-groups", "--list")) if row}
    assert rows[classic] == ["Classic", "consumer"] and rows[shared] == ["Share", "share"]
    listed = tool("all-groups", "--list", "--share")
    assert shared in listed and classic not in listed
    listed = tool("all-groups", "--list", "--group-type", "classic", "--protocol", "consumer")
    assert classic in listed and shared not in listed
    assert member.leave() == 0
    member.close()


def test_features(tool: Tool) -> None:
    """kafka-features.sh shows the features of ApiVersions, by which clients choose their
    protocols."""
    told = {}
    for row in lines(tool("features", "describe")):
        found = re.match(
            r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+"
            r"FinalizedVersionLevel: (\S+)\s+Epoch: (\d+)",
            row,
        )
        assert found, row
        told[found[1]] = found.groups()[1:4]
    assert told["transaction.version"] == ("0", "2", "2")
    assert told["group.version"] == ("0", "1", "1")
    assert told["share.version"][2] == told["share.version"][1] != "0"
    assert "-IV" in told["metadata.version"][2]


@pytest.mark.parametrize(
    ("kind", "name", "config", "told"),
    [
        ("users", "ina", "producer_byte_rate=1024", "producer_byte_rate=1024.0"),
        ("clients", "odd name", "request_percentage=12.5", "request_percentage=12.5"),
        ("ips", "127.0.0.9", "connection_creation_rate=7", "connection_creation_rate=7.0"),
        ("users", None, "controller_mutation_rate=3", "controller_mutation_rate=3.0"),
    ],
)
def test_quotas(tool: Tool, kind: str, name: str | None, config: str, told: str) -> None:
    named = ("--entity-default",) if name is None else ("--entity-name", name)
    entity = ("--entity-type", kind, *named)
    tool("configs", "--alter", *entity, "--add-config", config)
    assert told in tool("configs", "--describe", *entity)
    tool("configs", "--alter", *entity, "--delete-config", config.partition("=")[0])
    assert told not in tool("configs", "--describe", *entity)
