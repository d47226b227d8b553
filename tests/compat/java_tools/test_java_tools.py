"""Kafka's own command line tools (release 4.3.1); each test asserts on what the tool prints."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from compat.support import KAFKA, Broker, produce_batch, rival

pytestmark = pytest.mark.java
TOOL_TIMEOUT_S = 60
Tool = Callable[..., str]
# Most of a tool's time is the JVM's start; its optimizing compiler never pays back here.
QUICK = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


@pytest.fixture
def tool(broker: Broker, tmp_path: Path) -> Tool:
    """Runs a tool against the broker; its output, or with ok=False what it complained of."""
    reason = rival.missing(KAFKA)
    if reason:
        pytest.skip(reason)

    def run(verb: str, *arguments: str, given: str = "", ok: bool = True) -> str:
        command = rival.tool(KAFKA, verb, tmp_path / "tool.log", heap=QUICK)
        if verb != "dump-log":
            command += ["--bootstrap-server", broker.address]
        done = subprocess.run(
            [*command, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        said = done.stdout + done.stderr
        if verb != "get-offsets":  # which complains without a status
            assert (done.returncode == 0) == ok, said
        return done.stdout if ok else said

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
    """In assign form: a partition and an offset, no group."""
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
    """Kafka's reader of log files finds our batches valid and the index in step with them."""
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


def lines(text: str) -> list[str]:
    return text.split("\n")[:-1]
