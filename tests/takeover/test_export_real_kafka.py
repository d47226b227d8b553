"""Apache Kafka starts on what `barnabas storage export` has made, and clients go on where they
were."""

import pytest
from compat.support import QUICK_HEAP
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from long_form import pick
from takeover.importing import content, storage
from takeover.kafka_before import (
    BEFORE,
    COMMITTED,
    IN_ZOOKEEPER,
    KEYS,
    MONEY,
    NEWS,
    PASSWORD,
    READERS,
    SETTINGS,
    TIMEOUT_S,
    USER,
    done,
    rival,
)
from takeover.test_import_real_kafka import places, polled, values
from zookeeper_server import ZooKeeperServer

from barnabas import Broker
from barnabas.cli.zookeeper_process import missing
from barnabas.client import Cluster
from barnabas.client.quotas import alter_quotas, describe_quotas

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=20)]

NEW_GROUP = "of KIP-848"
KRAFT, ZOOKEEPER = "kraft", "zookeeper"
CASES = pick(
    short=[("4.3.1", KRAFT)],
    long=[("4.3.1", KRAFT), ("4.4.0", KRAFT), ("3.9.2", ZOOKEEPER), ("2.8.2", ZOOKEEPER)],
)


class Clients:
    """Clients of one broker, which go on with the next one at its address."""

    def __init__(self, servers):
        self._at = {"bootstrap.servers": servers, "log_level": 0}
        self.idempotent = Producer(self._at | {"enable.idempotence": True})
        self.transactional = Producer(
            self._at | {"transactional.id": "open", "transaction.timeout.ms": 300_000}
        )

    def send(self, first, count):
        for number in range(first, first + count):
            self.idempotent.produce(NEWS, b"%d" % number, partition=0)
            self.idempotent.produce(NEWS, b"%d" % number, partition=1)
        assert self.idempotent.flush(TIMEOUT_S) == 0

    def begin(self):
        self.transactional.init_transactions(TIMEOUT_S)
        self.transactional.begin_transaction()
        self.transactional.produce(MONEY, b"open 1")
        assert self.transactional.flush(TIMEOUT_S) == 0

    def commit(self):
        self.transactional.produce(MONEY, b"open 2")
        assert self.transactional.flush(TIMEOUT_S) == 0
        self.transactional.commit_transaction(TIMEOUT_S)


def fill(broker, clients):
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    compact = {"cleanup.policy": "compact", "segment.bytes": "100000"}
    topics = [
        NewTopic(NEWS, 2, 1, config={"retention.ms": "-1"}),
        NewTopic(KEYS, 1, 1, config=compact),
        NewTopic(MONEY, 1, 1),
    ]
    done(admin.create_topics(topics))
    clients.send(0, BEFORE)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": READERS})
    offsets = [TopicPartition(NEWS, p, offset) for p, offset in COMMITTED.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    join_new_group(servers)
    clients.begin()
    with Cluster(servers) as cluster:
        alter_quotas(cluster, {"user": USER}, {"producer_byte_rate": 1048576.0})
    add_user(servers)


def join_new_group(servers):
    """Leaves records of a group of KIP-848 among those of READERS."""
    settings = {"group.id": NEW_GROUP, "group.protocol": "consumer"}
    consumer = Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"} | settings)
    consumer.subscribe([NEWS])
    polled(consumer)
    consumer.commit(asynchronous=False)
    consumer.close()


def add_user(servers):
    from confluent_kafka.admin import (
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": servers})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    done(admin.alter_user_scram_credentials([change]))


@pytest.fixture
def zookeeper(tmp_path):
    """Returns the address of an empty tree, below a chroot."""
    if reason := missing():
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path / "zookeeper") as running:
        client = KazooClient(running.address)
        client.start(TIMEOUT_S)
        client.ensure_path("/kafka")
        client.stop()
        client.close()
        yield f"{running.address}/kafka"


@pytest.mark.parametrize(("version", "mode"), CASES)
def test_kafka_starts_and_clients_go_on(tmp_path, capsys, version, mode, request):
    if reason := rival.missing(version):
        pytest.skip(reason)
    (port,) = rival.free_ports(1)
    data, target = tmp_path / "barnabas", tmp_path / "kafka" / "data"
    settings = {
        "log.dirs": data,
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "node.id": "1",
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "3",
    }
    with Broker(settings) as broker:
        clients = Clients(broker.bootstrap_servers)
        fill(broker, clients)
        ids = {row.name: row.topic_id for row in broker.node.cluster().topics.values()}
    before = content(data / f"{NEWS}-0")
    zookeeper = request.getfixturevalue("zookeeper") if mode == ZOOKEEPER else None
    words = () if zookeeper is None else ("--zookeeper", zookeeper)
    found = storage(capsys, "export", target, "--set", f"log.dirs={data}", *words)
    assert content(data / f"{NEWS}-0") == before
    assert [row["records"] for row in found["partitions"] if row["topic"] == NEWS] == [BEFORE] * 2
    changed = (
        f"changed: segment.bytes of topics/{KEYS} from 100000 to 1048576, the least that Kafka 4"
        " accepts"
    )
    left_out = f"left out: group {NEW_GROUP!r}: Kafka in ZooKeeper mode does not have its protocol"
    assert found["notes"] == ([changed] if mode == KRAFT else [left_out])
    known = SETTINGS
    if mode == ZOOKEEPER:
        known = SETTINGS | IN_ZOOKEEPER | {"zookeeper.connect": zookeeper}
    kafka = rival.Rival(version, tmp_path / "kafka", mode, known, port=port, heap=QUICK_HEAP)
    with kafka:
        assert places(kafka.address) == COMMITTED
        assert values(kafka.address, MONEY, 0) == []
        clients.send(BEFORE, 50)
        clients.commit()
        for partition in (0, 1):
            sent = [b"%d" % number for number in range(BEFORE + 50)]
            assert values(kafka.address, NEWS, partition) == sent
        assert values(kafka.address, MONEY, 0) == [b"open 1", b"open 2"]
        admin = AdminClient({"bootstrap.servers": kafka.address})
        with Cluster(kafka.address) as cluster:
            (quota,) = describe_quotas(cluster, {"user": USER})
        assert quota.values == {"producer_byte_rate": 1048576.0}
        users = done(admin.describe_user_scram_credentials([USER]))
        assert len(users[USER].scram_credential_infos) == 1
        assert set(admin.list_topics(timeout=TIMEOUT_S).topics) >= ids.keys()
