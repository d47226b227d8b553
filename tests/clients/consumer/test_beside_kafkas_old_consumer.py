"""Kafka's own old consumer (of release 1.1.1, the last with it) and ours in one group.

Broker, ZooKeeper and the other member are Kafka's: its console consumer with --zookeeper, which is
kafka.consumer.ZookeeperConsumerConnector, and its kafka-consumer-groups --zookeeper.
"""

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from compat.small_kafka import HEAP, small_kafka
from compat.support import rival
from kazoo.client import KazooClient
from waiting import soon

from barnabas.client import Cluster, NewTopic, Producer, create_topics
from barnabas.client.groups import committed_offsets
from barnabas.clients import ConsumerConnector

pytestmark = pytest.mark.java
VERSION = "1.1.1"
PATIENCE_S = 90.0
Seen = TypeVar("Seen")
TOPIC = "shared"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rival.Rival]:
    reason = rival.missing(VERSION)
    if reason:
        pytest.skip(reason)
    with small_kafka(VERSION, tmp_path_factory.mktemp("kafka-1.1.1")) as running:
        with Cluster(running.address) as cluster:
            create_topics(cluster, [NewTopic(TOPIC, partition_count=4)])
        yield running


@pytest.fixture
def zookeeper(kafka: rival.Rival) -> Iterator[KazooClient]:
    client = KazooClient(hosts=f"127.0.0.1:{kafka.side_port}")
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def write(kafka: rival.Rival) -> Callable[[bytes], None]:
    """One record into each partition."""

    def made(name: bytes) -> None:
        with Cluster(kafka.address) as cluster, Producer(cluster, TOPIC) as producer:
            for partition in range(4):
                producer.send(b"%s-%d" % (name, partition), partition=partition)

    return made


class Theirs:
    """The console consumer, in a process of its own, and the values it received, in order."""

    def __init__(self, kafka: rival.Rival, folder: Path, group: str, **more: str):
        command = rival.tool(VERSION, "console-consumer", folder / "theirs.log", heap=HEAP)
        settings = {
            "group.id": group,
            "auto.offset.reset": "smallest",
            "auto.commit.interval.ms": "200",
            "rebalance.backoff.ms": "500",
            "rebalance.max.retries": "20",
            "zookeeper.session.timeout.ms": "6000",
            **more,
        }
        command += ["--zookeeper", f"127.0.0.1:{kafka.side_port}", "--topic", TOPIC]
        for name, value in settings.items():
            command += ["--consumer-property", f"{name}={value}"]
        self.out = folder / "theirs.out"
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    @property
    def found(self) -> set[str]:
        return set(re.findall(r"^\w+-\d$", self.out.read_text(), re.M))

    def stop(self) -> None:
        """Sends Ctrl-C: the consumer commits and leaves."""
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def __enter__(self) -> "Theirs":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.process.kill()
        self.process.wait()


class Ours:
    """Our connector, and the values that its stream returned."""

    def __init__(self, kafka: rival.Rival, group: str, **more: object) -> None:
        self.connector = ConsumerConnector(
            {
                "group.id": group,
                "zookeeper.connect": f"127.0.0.1:{kafka.side_port}",
                "auto.offset.reset": "smallest",
                "rebalance.backoff.ms": "500",
                "rebalance.max.retries": "20",
                "consumer.timeout.ms": "20",
                "zookeeper.connection.timeout.ms": "20000",
                **{name.replace("_", "."): value for name, value in more.items()},
            }
        )
        (self.stream,) = self.connector.create_message_streams({TOPIC: 1})[TOPIC]
        self.rows: set[str] = set()

    @property
    def found(self) -> set[str]:
        from barnabas.clients import ConsumerTimeout

        with contextlib.suppress(ConsumerTimeout):
            while True:
                self.rows.add(next(self.stream).message.decode())
        return self.rows

    def __enter__(self) -> "Ours":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.connector.shutdown()


def all_of(*names: str) -> set[str]:
    return {f"{name}-{partition}" for name in names for partition in range(4)}


def owners(zookeeper: KazooClient, group: str) -> dict[int, str]:
    path = f"/consumers/{group}/owners/{TOPIC}"
    if not zookeeper.exists(path):
        return {}
    found = {}
    for name in zookeeper.get_children(path):
        with contextlib.suppress(Exception):  # the owner may release it at this moment
            found[int(name)] = zookeeper.get(f"{path}/{name}")[0].decode()
    return found


def all_owned(zookeeper: KazooClient, group: str, by: int) -> dict[int, str]:
    """The owners, once every partition has one and `by` consumers own them; before that, {}."""
    found = owners(zookeeper, group)
    return found if set(found) == {0, 1, 2, 3} and len(set(found.values())) == by else {}


def test_both_share_a_group_and_go_on_with_each_others_offsets(
    kafka: rival.Rival,
    zookeeper: KazooClient,
    write: Callable[[bytes], None],
    tmp_path: Path,
):
    group = "mixed"
    write(b"first")
    with Theirs(kafka, tmp_path, group) as theirs:
        soon(lambda: theirs.found >= all_of("first"))
        # It commits often, so that few records can be delivered twice.
        path = f"/consumers/{group}/offsets/{TOPIC}"
        soon(lambda: zookeeper.exists(path) and len(zookeeper.get_children(path)) == 4)
        with Ours(kafka, group) as ours:
            shares = soon(lambda: all_owned(zookeeper, group, by=2))
            # The range algorithm gives each a run of two, in either order of the members.
            assert shares[0] == shares[1] != shares[2] == shares[3]
            mine = {p for p, name in shares.items() if name.startswith(ours.connector.consumer_id)}
            assert len(mine) == 2
            write(b"second")
            soon(lambda: theirs.found | ours.found >= all_of("first", "second"))
            assert ours.found == {f"second-{p}" for p in mine}
            described = soon(lambda: consumer_groups(kafka, tmp_path, group))
            assert all(who.startswith(f"{group}_") for who in described.values())
            assert {p for p, who in described.items() if who == ours.connector.consumer_id} == mine
            theirs.stop()
            soon(lambda: all_owned(zookeeper, group, by=1))
            write(b"third")
            soon(lambda: ours.found >= all_of("third"))
            # What they had read and committed is not delivered again.
            assert ours.found == {f"second-{p}" for p in mine} | all_of("third")
    # And they continue where we stopped.
    write(b"fourth")
    # With `smallest` the console consumer refuses a group that has offsets already.
    with Theirs(kafka, tmp_path, group, **{"auto.offset.reset": "largest"}) as theirs:
        soon(lambda: theirs.found >= all_of("fourth"))
        assert theirs.found == all_of("fourth")


def consumer_groups(kafka: rival.Rival, folder: Path, group: str) -> dict[int, str]:
    """kafka-consumer-groups --zookeeper --describe: each partition's owner, once all have one."""
    command = rival.tool(VERSION, "groups", folder / "groups.log", heap=HEAP)
    command += ["--zookeeper", f"127.0.0.1:{kafka.side_port}", "--describe", "--group", group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    rows = re.findall(rf"^{TOPIC}\s+(\d+)\s+\d+\s+\d+\s+\d+\s+(\S+)", done.stdout, re.M)
    found = {int(partition): owner for partition, owner in rows}
    return found if set(found) == {0, 1, 2, 3} else {}


def test_their_offsets_in_kafka_and_ours(
    kafka: rival.Rival, write: Callable[[bytes], None], tmp_path: Path
):
    """offsets.storage=kafka on both sides: the same topic of offsets."""
    group = "moved"
    write(b"fifth")
    settings = {"offsets.storage": "kafka", "dual.commit.enabled": "false"}
    with Theirs(kafka, tmp_path, group, **settings) as theirs:
        soon(lambda: theirs.found >= all_of("fifth"))
        with Cluster(kafka.address) as cluster:
            soon(lambda: len(committed_offsets(cluster, group).get(TOPIC, {})) == 4)
        theirs.stop()
    with Cluster(kafka.address) as cluster:
        ends = committed_offsets(cluster, group)[TOPIC]
    assert sorted(ends) == [0, 1, 2, 3]
    write(b"sixth")
    with Ours(kafka, group, offsets_storage="kafka", dual_commit_enabled="false") as ours:
        soon(lambda: ours.found >= all_of("sixth"))
        assert ours.found == all_of("sixth")
    with Cluster(kafka.address) as cluster:
        assert committed_offsets(cluster, group)[TOPIC] == {p: o + 1 for p, o in ends.items()}
