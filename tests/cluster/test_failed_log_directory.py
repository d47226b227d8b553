"""One of two log directories of a broker fails (KIP-112): its partitions get other leaders, writes
go on, and the replicas come back into the ISR when the directory is repaired.

The directory gets the immutable flag: each write, and each cut of a failed write, is refused.
"""

import subprocess
from pathlib import Path

import pytest
from cluster.kafka_brokers import KAFKA, KafkaProcess
from cluster.three_brokers import BrokerProcess
from compat.support import rival
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from waiting import soon

pytestmark = pytest.mark.takes(seconds=40)

IDS = (1, 2, 3)
PARTITIONS = 8
EVENTS = "/log_dir_event_notification"


class Failing:
    """Three brokers, of which `failing` has two log directories."""

    def __init__(self, folder, zookeeper, failing, kafka=()):
        self.failing = failing
        self.directories = [folder / "one", folder / "two"]
        self._chroot = zookeeper.new_chroot()
        connect = zookeeper.connect(self._chroot)
        self._client = KazooClient(zookeeper.address)
        self._client.start(30)
        self._client.ensure_path(self._chroot)
        self.brokers = {}
        for node_id in IDS:
            if node_id in kafka:
                given = {"controlled.shutdown.enable": "false"}
                self.brokers[node_id] = KafkaProcess(folder, node_id, connect, given)
            else:
                dirs = ",".join(map(str, self.directories)) if node_id == failing else None
                settings = {} if dirs is None else {"log.dirs": dirs}
                self.brokers[node_id] = BrokerProcess(folder, node_id, connect, settings)
            self.brokers[node_id].start()
        self.others = [id_ for id_ in IDS if id_ != failing]
        address = ",".join(self.brokers[id_].address for id_ in IDS)
        self.admin = AdminClient({"bootstrap.servers": address})
        self.producer = Producer({"bootstrap.servers": address, "acks": "all"})

    def create(self):
        """The broker that fails leads partitions 2, 3, 6 and 7, and follows the others; its
        directories get every second partition."""
        first, second = self.others
        rows = [
            [self.failing, first, second] if index // 2 % 2 else [first, self.failing, second]
            for index in range(PARTITIONS)
        ]
        new = NewTopic("t", PARTITIONS, replica_assignment=rows)
        self.admin.create_topics([new])["t"].result(30)
        soon(lambda: self._are_in_sync(), "not all replicas come into the ISR")

    def _are_in_sync(self):
        return {isr for _, isr in self.states().values()} == {IDS}

    def states(self):
        found = self.admin.list_topics("t", timeout=10).topics["t"].partitions
        return {index: (row.leader, tuple(sorted(row.isrs))) for index, row in found.items()}

    def write(self, count=20):
        """Writes to all partitions; returns when all is acknowledged."""
        lost = []
        for index in range(PARTITIONS):
            for number in range(count):
                self.producer.produce(
                    "t",
                    b"%d" % number,
                    partition=index,
                    on_delivery=lambda error, _: lost.append(error) if error else None,
                )
        assert self.producer.flush(60) == 0 and lost == []

    def partitions_in(self, directory):
        return {int(path.name.removeprefix("t-")) for path in directory.glob("t-[0-9]*")}

    def events(self):
        return self._client.get_children(f"{self._chroot}{EVENTS}")

    def close(self):
        self._client.stop()
        self._client.close()
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()


@pytest.fixture
def immutable():
    made: list[Path] = []

    def set_on(path):
        done = subprocess.run(["chattr", "-R", "+i", path], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no immutable directories here: {done.stderr}")
        made.append(path)

    def clear():
        while made:
            subprocess.run(["chattr", "-R", "-i", made.pop()], check=True)

    set_on.clear = clear
    yield set_on
    clear()


@pytest.fixture
def failing(tmp_path, zookeeper_server, immutable, request):
    made = Failing(tmp_path, zookeeper_server, **request.param)
    yield made
    immutable.clear()
    made.close()


def fails_and_returns(failing, immutable):
    failing.create()
    failing.write()
    directory = failing.directories[1]
    lost = failing.partitions_in(directory)
    assert {index // 2 % 2 for index in lost} == {0, 1}, "both led and followed partitions"
    before = failing.states()
    immutable(directory)
    failing.write()

    def have_moved():
        now = failing.states()
        return all(now[i][0] in failing.others and now[i][1] == (*failing.others,) for i in lost)

    soon(have_moved, f"{lost} have not moved: {failing.states()}")
    failing.write()
    for index in before.keys() - lost:
        assert failing.states()[index] == before[index]
    immutable.clear()
    return lost


@pytest.mark.parametrize("failing", [{"failing": 1}, {"failing": 3}], indirect=True)
def test_partitions_of_a_failed_directory_get_other_leaders(failing, immutable):
    """Broker 1 is the controller."""
    fails_and_returns(failing, immutable)
    soon(failing._are_in_sync, "the replicas do not come back")
    failing.write()
    soon(lambda: not failing.events(), "reports are left")


@pytest.mark.java
@pytest.mark.only_long
@pytest.mark.parametrize("failing", [{"failing": 3, "kafka": (1, 2)}], indirect=True)
def test_a_controller_of_kafka_understands_the_report(failing, immutable):
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    fails_and_returns(failing, immutable)
    soon(lambda: not failing.events(), "reports are left")
