"""Kafka Streams with group.protocol=streams (KIP-1071): two instances, which are killed.

The broker makes the internal topics and assigns the tasks. Each word is counted exactly once,
though an instance dies with its tasks, and in the long form the broker too, with standbys.
"""

import random
import time
from pathlib import Path

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
)
from compat.killable import killable
from compat.support import cannot_run, create_topic
from long_form import pick
from streams.streams_wire import described
from waiting import soon

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=30)]
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "2000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "200",
    "group.streams.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
WORK_LINES = 100
PATIENCE_S = 60.0
THREADS = 2  # of an instance; each is a member


def is_stable(address: str, instances: int) -> bool:
    """Returns whether all tasks run in the threads of so many instances."""
    (group,) = described(address, NAME, version=0)
    tasks = [
        (row.subtopologyId, partition)
        for member in group.members
        for row in member.assignment.activeTasks
        for partition in row.partitions
    ]
    assert len(tasks) == len(set(tasks)), "a task runs in two members"
    full = len(tasks) == 2 * PARTITIONS and len(group.members) == instances * THREADS
    return group.groupState == "Stable" and full


@pytest.mark.parametrize(
    "standbys, kills_broker", pick(short=[(0, False)], long=[(0, False), (1, True)])
)
def test_words_are_counted_once_though_an_instance_is_killed(
    request: pytest.FixtureRequest, tmp_path: Path, standbys: int, kills_broker: bool
) -> None:
    kind = request.config.getoption("--broker")
    reason = missing() or cannot_run(kind)
    if reason:
        pytest.skip(reason)
    settings = SETTINGS | {"group.streams.num.standby.replicas": str(standbys)}
    broker = killable(kind, tmp_path / "broker", settings)
    broker.start()
    instances: list[Application] = []
    try:
        for topic in (LINES, COUNTS, DAYS):
            create_topic(broker.address, topic, PARTITIONS)
        instances += [Application(broker.address, tmp_path, "streams", f"s{n}") for n in (1, 2)]
        progress = Progress(broker.address)
        sender = Sender(broker.address, random.SystemRandom().getrandbits(32))
        for instance in instances:
            instance.wait_until_running()
        soon(lambda: is_stable(broker.address, 2), "two instances do not share the tasks")
        progress.wait_beyond(progress.lines() + WORK_LINES)
        if kills_broker:
            broker.kill()
            broker.start()
            progress.wait_beyond(progress.lines() + WORK_LINES)
        instances[0].kill()
        soon(lambda: is_stable(broker.address, 1), "the tasks are not taken over")
        progress.wait_beyond(progress.lines() + WORK_LINES)
        progress.close()
        check_counts(broker.address, sender.stop())
        assert instances[1].stop() == 0 and not instances[1].failures(), instances[1].said
        (group,) = described(broker.address, NAME, version=0)
        assert group.groupState == "Empty"
    finally:
        for instance in instances:
            if instance.process.poll() is None:
                instance.kill()
        broker.stop()


def check_counts(address: str, words: dict[str, int]) -> None:
    counted = Counted(address)
    deadline = time.monotonic() + PATIENCE_S
    while not counted.is_all_of(words):
        assert time.monotonic() < deadline, "words are missing"
        counted.read_for(0.3)
    counted.read_for(0.5)
    counted.close()
    for topic, found in counted.of.items():
        total: dict[str, int] = {}
        for key, counts in found.items():
            assert counts == list(range(1, len(counts) + 1)), f"{topic} {key}"
            word = key.split("@")[0]
            total[word] = total.get(word, 0) + len(counts)
        assert total == words, topic
