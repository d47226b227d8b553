"""Old consumers and other client libraries in one group, and on one group's offsets."""

import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from compat.support import QUICK_HEAP, rival
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition
from kafka import KafkaConsumer
from waiting import soon

from barnabas import Broker
from barnabas.client import Cluster
from barnabas.client.groups import describe_group
from barnabas.clients import ConsumerConnector, ConsumerRebalanceFailed

Connect = Callable[..., ConsumerConnector]
Write = Callable[..., None]
PATIENCE_S = 40.0
JAVA = "2.7.2"


def test_offsets_that_we_commit_are_read_by_librdkafka_and_the_other_way(
    old_broker: Broker, connect: Connect, topic: str, write: Write, group: str
):
    write(topic, 0, [b"%d" % i for i in range(10)])
    connector = connect()
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    for _ in range(4):
        next(stream)
    connector.shutdown()
    other = ConfluentConsumer(
        {"bootstrap.servers": old_broker.bootstrap_servers, "group.id": group}
    )
    (row,) = other.committed([TopicPartition(topic, 0)], timeout=20)
    assert row.offset == 4
    other.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    other.close()
    connector = connect()
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    assert next(stream).offset == 7


@pytest.mark.parametrize("leads", ["we lead", "kafka-python leads"])
def test_a_consumer_of_today_in_the_same_group(
    old_broker: Broker, connect: Connect, topic: str, write: Write, group: str, leads: str
):
    """Both use the assignor range; the first member leads, and each partition has one owner."""
    owned: dict[str, set[int]] = {"other": set()}
    found: list[bytes] = []
    ends = threading.Event()

    def other() -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=old_broker.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
        )
        # It would lead before it has the topic's metadata, and assign nothing.
        soon(lambda: bool(consumer.partitions_for_topic(topic)))
        consumer.subscribe([topic])
        while not ends.is_set():
            rows = consumer.poll(timeout_ms=100)
            found.extend(row.value for batch in rows.values() for row in batch)
            owned["other"] = {place.partition for place in consumer.assignment()}
        consumer.close()

    connector = connect()
    mine: list[bytes] = []

    def read() -> None:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        mine.extend(row.message for row in stream)

    threads = [threading.Thread(target=work, daemon=True) for work in (read, other)]
    if leads == "kafka-python leads":
        threads.reverse()
    threads[0].start()
    soon(lambda: len(connector._infos) == 4 or len(owned["other"]) == 4)
    threads[1].start()

    def shares() -> list[set[int]]:
        return [{name.partition for name in connector._infos}, owned["other"]]

    soon(lambda: sorted(map(sorted, shares())) == [[0, 1], [2, 3]])
    for partition in range(4):
        write(topic, partition, [b"%d" % partition])
    soon(lambda: len(mine) + len(found) == 4)
    assert sorted(mine + found) == [b"0", b"1", b"2", b"3"]
    assert sorted([sorted(mine), sorted(found)]) == [[b"0", b"1"], [b"2", b"3"]]
    ends.set()
    threads[leads == "we lead"].join(PATIENCE_S)
    soon(lambda: len(connector._infos) == 4)
    connector.shutdown()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_shutdown_does_not_wait_for_a_member_that_does_not_join(
    old_broker: Broker, connect: Connect, topic: str, group: str
):
    """Such a member may take minutes (max.poll.interval.ms)."""
    other = KafkaConsumer(
        bootstrap_servers=old_broker.bootstrap_servers, group_id=group, heartbeat_interval_ms=100
    )
    soon(lambda: bool(other.partitions_for_topic(topic)))
    other.subscribe([topic])
    soon(lambda: other.poll(timeout_ms=50) == {} and len(other.assignment()) == 4)
    connector = connect()
    raised: list[Exception] = []

    def join() -> None:
        try:
            connector.create_message_streams({topic: 1})
        except Exception as error:
            raised.append(error)

    joining = threading.Thread(target=join)
    joining.start()
    with Cluster(old_broker.bootstrap_servers) as cluster:
        soon(lambda: describe_group(cluster, group).state == "PreparingRebalance")
    connector.shutdown()
    joining.join(PATIENCE_S)
    assert not joining.is_alive()
    assert isinstance(raised[0], ConsumerRebalanceFailed)
    other.close()


@pytest.mark.java
def test_kafka_consumer_groups_describes_our_group_and_resets_it(
    old_broker: Broker, connect: Connect, topic: str, write: Write, group: str, tmp_path: Path
):
    reason = rival.missing(JAVA)
    if reason:
        pytest.skip(reason)

    def groups(*arguments: str) -> str:
        command = rival.tool(JAVA, "groups", tmp_path / "tool.log", heap=QUICK_HEAP)
        command += ["--bootstrap-server", old_broker.bootstrap_servers, "--group", group]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    write(topic, 0, [b"%d" % i for i in range(10)])
    connector = connect({"client.id": "old-and-good"})
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    for _ in range(6):
        next(stream)
    connector.commit_offsets()
    told = groups("--describe")
    rows = re.findall(rf"{topic} +(\d) +(\d+) +(\d+) +(\d+) +(\S+) +\S+ +old-and-good", told)
    assert [row[:4] for row in sorted(rows)][0] == ("0", "6", "10", "4")
    assert {row[4] for row in rows} == {connector._group.member()[0]} and len(rows) == 4
    connector.shutdown()
    groups("--reset-offsets", "--to-offset", "2", "--topic", f"{topic}:0", "--execute")
    (stream,) = connect().create_message_streams({topic: 1})[topic]
    assert next(stream).offset == 2
