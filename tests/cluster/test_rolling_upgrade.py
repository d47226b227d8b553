"""Replaces three brokers of a former version by this one, one after another, and then this version
by the former one, on the same data and under workload H: idempotent senders, transactions, programs
that copy in transactions, and groups.

BARNABAS_FORMER names a virtual environment with the wheel of the former version:

    mkdir former && git archive 1720dc31 | tar -x -C former
    pip wheel --no-deps -w former/dist ./former
    python3 -m venv former/venv && former/venv/bin/pip install former/dist/*.whl
    BARNABAS_FORMER=$PWD/former/venv pytest --long tests/cluster/test_rolling_upgrade.py

1720dc31 is from before replicas could move between log directories. v0.1.0 has no replication. A
failing run prints its seed; `BARNABAS_HISTORY_SEED` repeats it."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from cluster.acknowledged import equal_replicas, leaders_and_isrs, read_all
from cluster.faults import IDS
from cluster.test_workload_h_on_three import run, settings_of
from cluster.three_brokers import Cluster
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from history.model import Outcome
from waiting import soon

from barnabas.client.connection import Connection
from barnabas.wire import request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.only_long,
    pytest.mark.takes(seconds=900),
    pytest.mark.timeout(1800),
]

API_VERSIONS = 18
LEVELS = {
    "metadata.version": 30,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
RECORDS = 20


@pytest.fixture
def former():
    """The interpreter of the former version."""
    given = os.environ.get("BARNABAS_FORMER", "")
    if not given:
        pytest.skip("BARNABAS_FORMER names no virtual environment with a former version")
    python = str(Path(given) / "bin" / "python")
    assert home_of(python) != home_of(sys.executable), "it has this version"
    return python


def home_of(python):
    """Returns where the barnabas of an interpreter is."""
    command = [python, "-c", "import barnabas; print(barnabas.__file__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout


def levels_of(address):
    """Returns the finalized levels of the features, as a broker reports them."""
    host, _, port = address.rpartition(":")
    connection = Connection(host, int(port))
    try:
        answer = connection.call(API_VERSIONS, request(API_VERSIONS).cls(
            clientSoftwareName="rolling", clientSoftwareVersion="1"))  # fmt: skip
        return {row.name: row.maxVersionLevel for row in answer.finalizedFeatures}
    finally:
        connection.close()


class Upgrade:
    """Replaces brokers, and uses the mixed cluster after each step."""

    def __init__(self, cluster):
        self._cluster, self.topics = cluster, []

    def replace(self, broker_id, python):
        broker = self._cluster.brokers[broker_id]
        assert broker.stop() == 0
        broker.python = python
        broker.start()
        running = Path(f"/proc/{broker._process.pid}/cmdline").read_bytes().split(b"\0")[0]
        assert running == python.encode()
        self._use()

    def _use(self):
        """Creates a topic in the mixed cluster, writes and reads it by each broker, and compares
        the levels of all brokers."""
        brokers = self._cluster.brokers.values()
        name = f"step-{len(self.topics)}"
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers})
        config = {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic(name, 3, 3, config=config)])[name].result(30)
        self.topics.append(name)
        for broker in brokers:
            soon(lambda of=broker: in_sync(of.address, name), f"{name} is not in sync")
        producer = Producer(
            {"bootstrap.servers": self._cluster.bootstrap_servers, "enable.idempotence": True}
        )
        for number in range(RECORDS):
            producer.produce(name, b"%d" % number, partition=number % 3)
        assert producer.flush(60) == 0
        for broker in brokers:
            found = read_all(broker.address, name, RECORDS, group=f"{name}-{broker.node_id}")
            assert sorted(map(int, found.values())) == list(range(RECORDS))
            assert levels_of(broker.address) == LEVELS


def in_sync(address, name):
    found = leaders_and_isrs(address, name)
    return [isr for _leader, isr in found.values()] == [list(IDS)] * 3


def test_upgrade_and_downgrade_under_workload_h(own_zookeeper, tmp_path, seed, former):
    """Three brokers of the former version become three of this one, and former ones again. No
    record is refused, and none is in doubt; the checker finds each acknowledged record in the files
    of each replica."""
    chance = random.Random(f"{seed}:order")
    plan = [(of, python) for python in (sys.executable, former) for of in chance.sample(IDS, 3)]
    connect = own_zookeeper.connect("/h")
    with Cluster(tmp_path, connect, python=former, **settings_of()) as cluster:
        upgrade = Upgrade(cluster)
        upgrade._use()
        faults = [lambda _workload, row=row: upgrade.replace(*row) for row in plan]
        operations = run(cluster, tmp_path, seed, faults)
        for name in upgrade.topics:
            assert equal_replicas(list(cluster.brokers.values()), name, 3) > 0
    failed = [
        one for one in operations if one.process.startswith("sender") and one.outcome != Outcome.OK
    ]
    assert not failed, f"seed {seed}: {len(failed)} bursts failed: {failed[0]}"
