"""Kafka Streams counts words exactly once while broker and application are killed.

The test compares the counts with the words that were sent, and proves that each kill interrupted
work. `BARNABAS_HISTORY_SEED` repeats the lines and the faults of a run.
"""

import os
import random
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from compat.kafka_streams.application import (
    COUNTS,
    DAYS,
    LINES,
    NAME,
    PARTITIONS,
    Application,
    Counted,
    Progress,
    Sender,
    missing,
    remove_state,
)
from compat.killable import killable
from compat.support import Wire, cannot_run, create_topic
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from history.last_read import consumer_of, ends

from barnabas.wire import request

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=20)]
SETTINGS = {
    "log.retention.ms": "-1",
    "auto.create.topics.enable": "false",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "log.cleaner.backoff.ms": "300",
}
FAULTS = ("broker", "application", "broker", "application without its state")
WORK_LINES = 100  # between two faults, at least
LATER_S_MAX = 0.5
COUNTED_S_MAX = 60.0
OUTPUTS = [(topic, at) for topic in (COUNTS, DAYS) for at in range(PARTITIONS)]
DAY_MS = 24 * 3600 * 1000
# The settings that Kafka Streams needs for its topics, by their kind.
CONFIGS = {
    f"{NAME}-totals-changelog": {"cleanup.policy": {"compact"}},
    # the window and its grace, and a day more
    f"{NAME}-daily-changelog": {
        "cleanup.policy": {"compact", "delete"},
        "retention.ms": {str(3 * DAY_MS)},
    },
    f"{NAME}-words-repartition": {"cleanup.policy": {"delete"}, "retention.ms": {"-1"}},
}


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("BARNABAS_HISTORY_SEED", 0)) or random.SystemRandom().getrandbits(32)


class Run:
    """Broker, application and sender, and the evidence for each fault."""

    def __init__(self, kind: str, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.chance = random.Random(f"{seed}:faults")
        settings = dict(SETTINGS)
        if kind == "barnabas":  # the two write markers on different threads
            settings["log.durability"] = ("fsync", "os")[seed % 2]
        self.broker = killable(kind, folder / "broker", settings)
        self.application: Application | None = None
        self.left_open: list[bool] = []
        self.notes: list[str] = []

    def start_application(self) -> Application:
        self.application = Application(self.broker.address, self.folder)
        return self.application

    def note(self, text: str) -> None:
        self.notes.append(f"{time.monotonic() - self.began:.1f} {text}")

    def strike(self, fault: str, progress: Progress, sender: Sender) -> None:
        """Causes one fault in the middle of work."""
        before = progress.wait_beyond(progress.lines() + WORK_LINES)
        time.sleep(self.chance.uniform(0, LATER_S_MAX))
        if fault == "broker":
            self.kill_broker(sender)
        else:
            self.kill_application()
            if "without" in fault:
                remove_state(self.folder)
            self.start_application()
        self.note(f"{fault}, with {before} lines done")

    def kill_broker(self, sender: Sender) -> None:
        pid = self.broker.pid
        self.broker.kill()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(self.broker.address.split(":")[1])), 1)
        time.sleep(0.1)
        assert sender.waiting() > 0  # it interrupted the sender, too
        self.broker.start()
        assert self.broker.pid != pid

    def kill_application(self) -> None:
        assert self.application is not None and not self.application.failures()
        deadline = time.monotonic() + 10
        while not is_open(self.broker.address) and time.monotonic() < deadline:
            pass
        self.application.kill()
        self.left_open.append(is_open(self.broker.address))

    def count(self) -> tuple[dict[str, int], Counted]:
        """Sends lines and causes all faults. Returns the words sent and the words counted."""
        self.began = time.monotonic()
        self.broker.start()
        for topic in (LINES, COUNTS, DAYS):
            create_topic(self.broker.address, topic, PARTITIONS)
        application = self.start_application()
        progress, sender = Progress(self.broker.address), Sender(self.broker.address, self.seed)
        faults = list(FAULTS)
        self.chance.shuffle(faults)
        for fault in faults:
            self.strike(fault, progress, sender)
        progress.wait_beyond(progress.lines() + WORK_LINES)
        progress.close()
        words = sender.stop()
        self.note(f"{sum(words.values())} words were sent")
        counted = Counted(self.broker.address)
        deadline = time.monotonic() + COUNTED_S_MAX
        while not counted.is_all_of(words):
            assert time.monotonic() < deadline, (self.notes, dict(counted.of[COUNTS]))
            counted.read_for(0.3)
        application = self.application or application
        assert application.stop() == 0 and not application.failures(), application.said
        counted.read_for(0.5)
        counted.close()
        self.note("counted")
        return words, counted

    def end(self) -> None:
        if self.application is not None and self.application.process.poll() is None:
            self.application.kill()
        self.broker.stop()


def is_open(address: str) -> bool:
    """Returns whether an open transaction delays the readers of counts."""
    return any(stable < high for stable, high in ends(address, OUTPUTS).values())


def test_word_count_is_exact_though_broker_and_application_are_killed(
    request: pytest.FixtureRequest, tmp_path: Path, seed: int
) -> None:
    kind = request.config.getoption("--broker")
    reason = missing() or cannot_run(kind)
    if reason:
        pytest.skip(reason)
    run = Run(kind, tmp_path, seed)
    try:
        words, counted = run.count()
        print(f"seed {seed}: {run.notes}")
        for topic, found in counted.of.items():
            for key, counts in found.items():
                assert counts == list(range(1, len(counts) + 1)), f"seed {seed}: {topic} {key}"
            total: dict[str, int] = {}
            for key, counts in found.items():
                word = key.split("@")[0]
                total[word] = total.get(word, 0) + len(counts)
            assert total == words, f"seed {seed}: {topic}"
        assert any(run.left_open), f"seed {seed}: no transaction was struck"
        check_topics(run.broker.address, words)
    finally:
        run.end()


def check_topics(address: str, words: dict[str, int]) -> None:
    """Checks that the broker carried out the other requests of Kafka Streams."""
    for topic, wanted in CONFIGS.items():
        found = configs_of(address, topic)
        assert {name: set(found[name].split(",")) for name in wanted} == wanted, topic
    reader = consumer_of(address, "watermarks", committed=False)
    # Kafka Streams deletes records of the repartition topic after reading them.
    for at in range(PARTITIONS):
        low, high = reader.get_watermark_offsets(TopicPartition(f"{NAME}-words-repartition", at))
        assert 0 < low <= high
    # Without compaction the topic would have a record for each word.
    rows = [TopicPartition(f"{NAME}-totals-changelog", at, 0) for at in range(PARTITIONS)]
    reader.assign(rows)
    records = ended = 0
    while ended < len(rows):
        for message in reader.consume(1000, 0.2):
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            records, ended = (records + 1, ended) if error is None else (records, ended + 1)
    reader.close()
    assert len(words) <= records < sum(words.values())
    # Kafka Streams stores its own timestamps in the metadata of its commits.
    assert all(committed_metadata(address))


def configs_of(address: str, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": address})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    told: Any = admin.describe_configs([resource])[resource].result(20)
    return {name: entry.value for name, entry in told.items()}


def committed_metadata(address: str) -> list[str]:
    ask = request(9)
    partitions = list(range(PARTITIONS))
    row = ask.struct("groups.topics")(name=LINES, partitionIndexes=partitions)
    group = ask.struct("groups")(groupId=NAME, topics=[row])
    with Wire(address) as wire:
        told = wire.call(9, 8, ask.cls(groups=[group], requireStable=True)).groups[0]
    return [one.metadata for topic in told.topics for one in topic.partitions]
