"""ConsumerConnector with its group in ZooKeeper: a real ZooKeeper, and the znodes of Kafka 0.8."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from waiting import soon
from zookeeper_server import ZooKeeperServer

from barnabas import Broker
from barnabas.client import Cluster, Producer, create_partitions
from barnabas.client.groups import committed_offsets
from barnabas.clients import (
    Blacklist,
    ConsumerConnector,
    ConsumerRebalanceFailed,
    ConsumerTimeout,
    SimpleConsumer,
    Whitelist,
)
from barnabas.clients.consumer.offset_stores import StoreFailed
from barnabas.clients.consumer.streams import KafkaStream

Connect = Callable[..., ConsumerConnector]
Write = Callable[..., None]


class Registry:
    """The chroot of one test, read by kazoo alone, without the product."""

    def __init__(self, server: ZooKeeperServer, chroot: str) -> None:
        self.connect = server.connect(chroot)
        self.client = KazooClient(hosts=server.address)
        self.client.start()
        self.client.ensure_path(chroot)
        self.client.chroot = chroot

    def get(self, path: str) -> str:
        return self.client.get(path)[0].decode()

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self.client.get_children(path))
        except NoNodeError:
            return []

    def put(self, path: str, data: object) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        self.client.create(path, text.encode(), makepath=True)

    def owners(self, group: str, topic: str) -> dict[int, str]:
        path, found = f"/consumers/{group}/owners/{topic}", {}
        for name in self.children(path):
            with contextlib.suppress(NoNodeError):  # the owner may release it at this moment
                found[int(name)] = self.get(f"{path}/{name}")
        return found

    def offsets(self, group: str, topic: str) -> dict[int, str]:
        path = f"/consumers/{group}/offsets/{topic}"
        return {int(p): self.get(f"{path}/{p}") for p in self.children(path)}


@pytest.fixture
def registry(zookeeper_server: ZooKeeperServer, old_broker: Broker) -> Iterator[Registry]:
    """The registry, with the broker registered as Kafka 0.8 registers itself."""
    made = Registry(zookeeper_server, zookeeper_server.new_chroot())
    host, _, port = old_broker.bootstrap_servers.rpartition(":")
    broker = {"jmx_port": -1, "timestamp": "1416", "host": host, "version": 1, "port": int(port)}
    made.put("/brokers/ids/0", broker)
    yield made
    made.client.stop()
    made.client.close()


@pytest.fixture
def zk(registry: Registry, connect: Connect) -> Connect:
    """A connector with zookeeper.connect and no bootstrap.servers."""

    def connector(settings: dict[str, object] | None = None, **more: object) -> ConsumerConnector:
        return connect(
            {
                "bootstrap.servers": None,
                "zookeeper.connect": registry.connect,
                "zookeeper.session.timeout.ms": 4000,
                "zookeeper.connection.timeout.ms": 15000,
                **(settings or {}),
            },
            **more,
        )

    return connector


def register_topic(registry: Registry, topic: str, partitions: int = 4) -> None:
    rows = {str(index): [0] for index in range(partitions)}
    registry.put(f"/brokers/topics/{topic}", {"version": 1, "partitions": rows})


def values(stream: KafkaStream, count: int) -> list[bytes]:
    return [next(stream).message for _ in range(count)]


# ------------------------------------------------------------------------------------- the nodes


def test_the_nodes_are_those_of_kafka_0_8(
    registry: Registry, zk: Connect, topic: str, write: Write, group: str
):
    register_topic(registry, topic)
    write(topic, 0, [b"a", b"b", b"c"])
    connector = zk({"consumer.id": "me"})
    first, second = connector.create_message_streams({topic: 2})[topic]
    assert values(first, 2) == [b"a", b"b"]
    assert registry.children(f"/consumers/{group}/ids") == [f"{group}_me"]
    document = registry.get(f"/consumers/{group}/ids/{group}_me")
    told = json.loads(document)
    assert list(told) == ["version", "subscription", "pattern", "timestamp"]
    assert (told["version"], told["subscription"], told["pattern"]) == (1, {topic: 2}, "static")
    assert re.fullmatch(r"\d{13}", told["timestamp"])
    me = f"{group}_me"
    assert registry.owners(group, topic) == {0: f"{me}-0", 1: f"{me}-0", 2: f"{me}-1", 3: f"{me}-1"}
    for path in (f"ids/{me}", f"owners/{topic}/0"):
        stat = registry.client.exists(f"/consumers/{group}/{path}")
        assert stat.ephemeralOwner == connector._tree.session_id
    connector.commit_offsets()
    assert registry.offsets(group, topic) == {0: "2", 1: "0", 2: "0", 3: "0"}
    assert registry.client.exists(f"/consumers/{group}/offsets/{topic}/0").ephemeralOwner == 0
    connector.shutdown()
    assert registry.children(f"/consumers/{group}/ids") == []
    assert registry.owners(group, topic) == {}
    assert second is not first


def test_the_id_of_a_consumer_names_host_time_and_chance(
    registry: Registry, zk: Connect, group: str
):
    connector = zk()
    assert re.fullmatch(rf"{group}_.+-\d{{13}}-[0-9a-f]{{8}}", connector.consumer_id)


@pytest.mark.parametrize(
    ("kind", "pattern"), [(Whitelist, "white_list"), (Blacklist, "black_list")]
)
def test_a_filters_document(
    registry: Registry, zk: Connect, topic: str, group: str, kind: type, pattern: str
):
    register_topic(registry, topic)
    registry.put("/brokers/topics/__consumer_offsets", {"version": 1, "partitions": {"0": [0]}})
    regex = topic if kind is Whitelist else "nothing-of-this-name"
    connector = zk({"consumer.id": "me"})
    connector.create_message_streams_by_filter(kind(regex), 3)
    told = json.loads(registry.get(f"/consumers/{group}/ids/{group}_me"))
    assert (told["subscription"], told["pattern"]) == ({regex: 3}, pattern)
    assert set(registry.owners(group, topic)) == {0, 1, 2, 3}
    assert registry.children(f"/consumers/{group}/owners") == [topic]


def test_offsets_that_another_client_left_are_read(
    registry: Registry, zk: Connect, topic: str, write: Write, group: str
):
    register_topic(registry, topic)
    write(topic, 0, [b"a", b"b", b"c"])
    registry.put(f"/consumers/{group}/offsets/{topic}/0", "2")
    (stream,) = zk().create_message_streams({topic: 1})[topic]
    assert next(stream).offset == 2


def test_an_invalid_offset_is_reported_and_nothing_is_read(
    registry: Registry, zk: Connect, topic: str, write: Write, group: str
):
    """The partition is neither read again from the start nor skipped: an operator must repair
    it."""
    register_topic(registry, topic)
    write(topic, 0, [b"a"])
    path = f"/consumers/{group}/offsets/{topic}/0"
    registry.put(path, "17 or so")
    settings = {"rebalance.max.retries": 1}
    with pytest.raises(ConsumerRebalanceFailed, match=f"{path} holds b'17 or so'"):
        zk(settings).create_message_streams({topic: 1})
    assert registry.get(path) == "17 or so" and registry.owners(group, topic) == {}
    registry.client.set(path, b"-1")  # Kafka's mark for no offset
    (stream,) = zk().create_message_streams({topic: 1})[topic]
    assert next(stream).offset == 0


def test_the_registrations_of_0_7_and_of_todays_brokers_are_read(
    registry: Registry, zk: Connect, old_broker: Broker, topic: str, write: Write
):
    write(topic, 0, [b"a"])
    host, _, port = old_broker.bootstrap_servers.rpartition(":")
    for data in (
        f"creator-1416:{host}:{port}",
        {"endpoints": [f"PLAINTEXT://{host}:{port}"], "host": None, "port": -1, "version": 4},
        {
            "endpoints": ["SSL://h:1", f"INSIDE://{host}:{port}"],
            "listener_security_protocol_map": {"INSIDE": "PLAINTEXT", "SSL": "SSL"},
            "version": 5,
        },
    ):
        registry.client.delete("/brokers/ids/0")
        registry.put("/brokers/ids/0", data)
        connector = zk({"auto.commit.enable": False})
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        assert next(stream).message == b"a"
        connector.shutdown()


# ------------------------------------------------------------------------------------ rebalancing


def test_members_come_and_go(registry: Registry, zk: Connect, topic: str, write: Write, group: str):
    register_topic(registry, topic)
    one, two = zk({"consumer.id": "1"}), zk({"consumer.id": "2"})
    (first,) = one.create_message_streams({topic: 1})[topic]
    (second,) = two.create_message_streams({topic: 1})[topic]
    shared = {p: f"{group}_{1 if p < 2 else 2}-0" for p in range(4)}
    soon(lambda: registry.owners(group, topic) == shared)
    write(topic, 1, [b"for one"])
    write(topic, 2, [b"for two"])
    assert (next(first).message, next(second).message) == (b"for one", b"for two")
    one.shutdown()
    soon(lambda: registry.owners(group, topic) == dict.fromkeys(range(4), f"{group}_2-0"))
    write(topic, 1, [b"of one before"])
    assert next(second).message == b"of one before"  # and no message that one of them had read


def test_a_partition_is_waited_for_while_another_owns_it(
    registry: Registry, zk: Connect, topic: str, write: Write, group: str
):
    """A member of another program that releases slowly: its partition is not taken from it."""
    register_topic(registry, topic)
    write(topic, 3, [b"a"])
    registry.put(f"/consumers/{group}/owners/{topic}/3", "somebody-0")
    connector = zk({"rebalance.max.retries": 3, "rebalance.backoff.ms": 50})
    with pytest.raises(ConsumerRebalanceFailed, match="another member still owns"):
        connector.create_message_streams({topic: 1})
    assert registry.owners(group, topic) == {3: "somebody-0"}
    assert registry.children(f"/consumers/{group}/ids") == []
    patient = zk({"rebalance.max.retries": 1000, "rebalance.backoff.ms": 20})
    registry.client.get(  # released as soon as the waiting connector is registered
        f"/consumers/{group}/ids", watch=None
    )
    registry.client.ChildrenWatch(
        f"/consumers/{group}/ids",
        lambda ids: not ids or registry.client.delete(f"/consumers/{group}/owners/{topic}/3"),
    )
    (stream,) = patient.create_message_streams({topic: 1})[topic]
    assert next(stream).message == b"a"


def test_a_foreign_members_streams_count(registry: Registry, zk: Connect, topic: str, group: str):
    """Kafka's own consumer registers like this, and keeps its share."""
    register_topic(registry, topic)
    document = {"version": 1, "subscription": {topic: 3}, "pattern": "static", "timestamp": "1"}
    registry.put(f"/consumers/{group}/ids/{group}_a-host-1416-abcdef01", document)
    connector = zk({"consumer.id": "z"})
    connector.create_message_streams({topic: 1})
    assert registry.owners(group, topic) == {3: f"{group}_z-0"}


def test_new_partitions_and_new_topics_are_seen(
    registry: Registry, zk: Connect, old_broker: Broker, write: Write, group: str
):
    name = old_broker.create_topic(f"seen-{group}", partitions=2)
    other = old_broker.create_topic(f"seen-{group}-later")
    register_topic(registry, name, 1)
    connector = zk()
    (stream,) = connector.create_message_streams_by_filter(Whitelist(f"seen-{group}.*"))
    assert set(registry.owners(group, name)) == {0}
    rows = {"version": 1, "partitions": {"0": [0], "1": [0]}}
    registry.client.set(f"/brokers/topics/{name}", json.dumps(rows).encode())
    soon(lambda: set(registry.owners(group, name)) == {0, 1})
    register_topic(registry, other, 1)
    soon(lambda: set(registry.owners(group, other)) == {0})
    write(other, 0, [b"later"])
    assert next(stream).message == b"later"


def test_an_expired_session_registers_anew_and_goes_on(
    registry: Registry,
    zookeeper_server: ZooKeeperServer,
    zk: Connect,
    topic: str,
    write: Write,
    group: str,
):
    register_topic(registry, topic)
    connector = zk({"consumer.id": "me"})
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    write(topic, 0, [b"before"])
    assert next(stream).message == b"before"
    connector.commit_offsets()
    before = connector._tree.session_id
    zookeeper_server.expire(before)
    soon(lambda: _session(connector) not in (before, None))
    soon(lambda: set(registry.owners(group, topic)) == {0, 1, 2, 3})
    assert registry.children(f"/consumers/{group}/ids") == [f"{group}_me"]
    stat = registry.client.exists(f"/consumers/{group}/owners/{topic}/0")
    assert stat.ephemeralOwner == connector._tree.session_id
    write(topic, 0, [b"after"])
    assert next(stream).message == b"after"
    # And its watches are those of the new session.
    other = zk({"consumer.id": "zz"})
    other.create_message_streams({topic: 1})
    soon(lambda: set(registry.owners(group, topic).values()) == {f"{group}_me-0", f"{group}_zz-0"})


def _session(connector: ConsumerConnector) -> int | None:
    try:
        return connector._tree.session_id
    except StoreFailed:
        return None


@pytest.mark.java
def test_zookeeper_that_comes_back_finds_its_group_again(
    tmp_path, old_broker: Broker, connect: Connect, topic: str, write: Write
):
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        connector = connect(
            {
                "zookeeper.connect": server.connect("/root"),  # and brokers from bootstrap.servers
                "zookeeper.session.timeout.ms": 4000,
                "zookeeper.connection.timeout.ms": 15000,
                "offsets.commit.max.retries": 0,
            }
        )
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        server.kill()
        write(topic, 0, [b"while it is away"])
        assert next(stream).message == b"while it is away"
        server.start()
        soon(lambda: _commits(connector))
        write(topic, 0, [b"and after"])
        assert next(stream).message == b"and after"
        connector.shutdown()


def _commits(connector: ConsumerConnector) -> bool:
    try:
        connector.commit_offsets(retry_on_failure=False)
    except StoreFailed:
        return False
    return True


def test_no_zookeeper_is_reported_with_its_address(connect: Connect):
    with pytest.raises(StoreFailed, match="no ZooKeeper responds at 127.0.0.1:1"):
        connect({"zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": 300})


def test_no_registered_broker_is_reported(registry: Registry, zk: Connect, topic: str):
    registry.client.delete("/brokers/ids/0")
    connector = zk({"rebalance.max.retries": 1})
    with pytest.raises(ConsumerRebalanceFailed, match="no brokers are registered"):
        connector.create_message_streams({topic: 1})


# --------------------------------------------------------------------------------- offset stores


@pytest.fixture
def in_kafka(old_broker: Broker, group: str) -> Callable[[str], dict[int, int]]:
    def told(topic: str) -> dict[int, int]:
        with Cluster(old_broker.bootstrap_servers) as cluster:
            return committed_offsets(cluster, group).get(topic, {})

    return told


def test_a_group_moves_its_offsets_to_kafka_and_back(
    registry: Registry,
    zk: Connect,
    topic: str,
    write: Write,
    group: str,
    in_kafka: Callable[[str], dict[int, int]],
):
    """The documented way: commit to both, then only to the new place; and the same way back."""
    register_topic(registry, topic)
    write(topic, 0, [b"%d" % i for i in range(20)])

    def read(expected: int, **settings: object) -> None:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        connector = zk(names)
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        assert [next(stream).offset for _ in range(2)] == [expected, expected + 1]
        connector.shutdown()

    read(0, offsets_storage="zookeeper")
    assert (registry.offsets(group, topic)[0], in_kafka(topic)) == ("2", {})
    read(2, offsets_storage="kafka")  # dual.commit.enabled is true then
    assert (registry.offsets(group, topic)[0], in_kafka(topic)[0]) == ("4", 4)
    read(4, offsets_storage="kafka", dual_commit_enabled="false")
    assert (registry.offsets(group, topic)[0], in_kafka(topic)[0]) == ("4", 6)
    read(6, offsets_storage="zookeeper", dual_commit_enabled="true")
    assert (registry.offsets(group, topic)[0], in_kafka(topic)[0]) == ("8", 8)
    read(8, offsets_storage="zookeeper")
    assert (registry.offsets(group, topic)[0], in_kafka(topic)[0]) == ("10", 8)


def test_members_of_both_kinds_while_a_group_moves(
    registry: Registry, zk: Connect, topic: str, write: Write, group: str
):
    """A rolling restart: one member still commits to ZooKeeper only, the other to both."""
    register_topic(registry, topic)
    for partition in range(4):
        write(topic, partition, [b"a", b"b"])
    old = zk({"consumer.id": "1"})
    (first,) = old.create_message_streams({topic: 1})[topic]
    values(first, 8)
    new = zk({"consumer.id": "2", "offsets.storage": "kafka", "consumer.timeout.ms": 300})
    (second,) = new.create_message_streams({topic: 1})[topic]
    soon(lambda: set(registry.owners(group, topic).values()) == {f"{group}_1-0", f"{group}_2-0"})
    with pytest.raises(ConsumerTimeout):  # its offsets are found: nothing is read twice
        next(second)
    new.shutdown()
    soon(lambda: set(registry.owners(group, topic).values()) == {f"{group}_1-0"})


def test_offsets_in_kafka_are_seen_by_a_simple_consumer_and_the_other_way(
    registry: Registry, zk: Connect, old_broker: Broker, topic: str, write: Write, group: str
):
    register_topic(registry, topic)
    write(topic, 1, [b"a", b"b", b"c"])
    host, _, port = old_broker.bootstrap_servers.rpartition(":")
    with SimpleConsumer(host, int(port)) as simple:
        simple.commit_offsets(group, {(topic, 1): 1})
        connector = zk({"offsets.storage": "kafka"})
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        assert next(stream).offset == 1
        connector.commit_offsets()
        assert simple.fetch_offsets(group, [(topic, 1)]) == {(topic, 1): 2}


# ------------------------------------------------------------------ a broker that registers itself


def test_with_a_broker_that_keeps_its_metadata_in_zookeeper(zookeeper_server: ZooKeeperServer):
    """The connector gets the address of ZooKeeper only: it finds brokers, topics and partitions
    there, and notices changes."""
    where = zookeeper_server.connect(zookeeper_server.new_chroot())
    with Broker({"metadata.store": "zookeeper", "zookeeper.connect": where}) as broker:
        name = broker.create_topic("registered", partitions=2)
        connector = ConsumerConnector(
            {
                "group.id": "g",
                "zookeeper.connect": where,
                "auto.offset.reset": "smallest",
                "consumer.timeout.ms": "30000",
                "refresh.leader.backoff.ms": "50",
                "zookeeper.connection.timeout.ms": "20000",
            }
        )
        (stream,) = connector.create_message_streams_by_filter(Whitelist("registered.*"))
        with Cluster(broker.bootstrap_servers) as cluster:
            send(cluster, name, 1, b"first")
            assert next(stream).message == b"first"
            create_partitions(cluster, {name: 3})
            send(cluster, name, 2, b"in a new partition")
            assert next(stream).message == b"in a new partition"
            broker.create_topic("registered-later")
            send(cluster, "registered-later", 0, b"in a new topic")
            assert next(stream).topic == "registered-later"
        broker.restart()
        with Cluster(broker.bootstrap_servers) as cluster:
            send(cluster, name, 0, b"after a restart")
            assert next(stream).message == b"after a restart"
        connector.shutdown()


def send(cluster: Cluster, topic: str, partition: int, value: bytes) -> None:
    with Producer(cluster, topic) as producer:
        producer.send(value, partition=partition)
