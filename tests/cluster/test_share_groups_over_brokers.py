"""Share groups whose partitions, share coordinators and group coordinator are on different brokers,
with Kafka's own KafkaShareConsumer: each record is delivered, and none again after the broker has
confirmed its acknowledgement, also when a leader or a share coordinator is killed."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from random import Random, SystemRandom

import pytest
from cluster.faults import IDS, IMPATIENT
from cluster.three_brokers import Cluster
from compat.java.driver import missing
from compat.java.share_driver import ShareClients
from compat.support import Wire
from confluent_kafka import (
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from share.share_member import ShareMember, configure
from waiting import soon

from barnabas.wire import request
from barnabas.wire.uuids import uuid_text

VERSION = "4.4.0"
PARTITIONS, BATCH = 6, 5  # and the records that each partition gets at a time
WAIT_S = 30
SHARE = 2  # the type of key in FindCoordinator
# The share coordinators of following partitions go round: they cannot be these leaders everywhere.
PREFERRED = {at: IDS[at // 2] for at in range(PARTITIONS)}
FAULTS = 12
ACCEPT, NOT_LEADER_OR_FOLLOWER = 1, 6
EXPLICIT = {
    "share_acknowledgement_mode": "explicit",
    "metadata_max_age_ms": "1000",
    "request_timeout_ms": "5000",  # a paused broker does not answer
}
SETTINGS = {
    "share_coordinator_state_topic_num_partitions": "3",
    "group_share_min_heartbeat_interval_ms": "500",
    "group_share_heartbeat_interval_ms": "500",
}

pytestmark = pytest.mark.takes(seconds=20)


@pytest.fixture(scope="module")
def cluster(shared_zookeeper, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, shared_zookeeper.connect("/share"), **SETTINGS) as made:
        yield made


@pytest.fixture(scope="module")
def clients(cluster, tmp_path_factory):
    reason = missing(VERSION)
    if reason:
        pytest.skip(reason)
    made = ShareClients(VERSION, cluster.bootstrap_servers, tmp_path_factory.mktemp("share"))
    yield made
    made.close()


class History:
    """A topic with partitions led by each broker, a share group that reads it, and the records that
    its only member has received and acknowledged."""

    def __init__(self, cluster, clients, name, **settings):
        """`settings`: settings of the group, with _ in place of each dot."""
        self.cluster, self.topic, self.group = cluster, name, f"g-{name}"
        self.produced = dict.fromkeys(range(PARTITIONS), 0)
        self.delivered: list[tuple[int, int, int]] = []  # partition, offset, deliveries
        self.kept: set[tuple[int, int]] = set()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "log_level": 0,  # brokers that are away
                **IMPATIENT,
            }
        )
        self._create()
        given = {"share_auto_offset_reset": "earliest", **settings}
        assert configure(self.address(), self.group, **given) == 0
        self.member = clients.open(f"member-{name}", self.group, [name], **EXPLICIT)

    def address(self):
        return next(row.address for row in self.cluster.brokers.values() if row.is_running)

    def _create(self):
        orders = [sorted(IDS, key=lambda id_: id_ != PREFERRED[at]) for at in range(PARTITIONS)]
        new = NewTopic(
            self.topic,
            num_partitions=PARTITIONS,
            replica_assignment=orders,
            config={"min.insync.replicas": "2"},
        )
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})

        def is_made():
            try:
                admin.create_topics([new])[self.topic].result(WAIT_S)
            except KafkaException as error:  # a broker may have come back in the test before
                return error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            return True

        soon(is_made, "the topic cannot be made")
        self.wait_for_replicas()
        with Wire(self.address()) as wire:
            ask = request(3)
            asked = ask.cls(topics=[ask.struct("topics")(name=self.topic)])
            [row] = wire.call(3, 10, asked).topics
        self.topic_id = row.topicId

    def leaders(self, in_sync=1):
        """Returns the leader of each partition with at least this many replicas in sync."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        found = admin.list_topics(self.topic, timeout=WAIT_S).topics[self.topic].partitions
        return {
            at: row.leader
            for at, row in found.items()
            if row.leader != -1 and len(row.isrs) >= in_sync
        }

    def wait_for_replicas(self):
        soon(lambda: len(self.leaders(in_sync=3)) == PARTITIONS, "not all replicas are in sync")

    def key(self, partition):
        return f"{self.group}:{uuid_text(self.topic_id)}:{partition}"

    def coordinator(self, name, kind=SHARE):
        def ask():
            body = request(10).cls(coordinatorKeys=[name], keyType=kind)
            with Wire(self.address()) as wire:
                [row] = wire.call(10, 6, body).coordinators
            running = row.errorCode == 0 and self.cluster.brokers[row.nodeId].is_running
            return row.nodeId if running else None

        return soon(ask, f"{name} has no coordinator")

    def share_coordinators(self):
        return {at: self.coordinator(self.key(at)) for at in range(PARTITIONS)}

    def produce(self):
        """Writes records to each partition, and waits until all replicas in sync have them."""
        for partition, first in self.produced.items():
            for number in range(first, first + BATCH):
                self._producer.produce(self.topic, b"%d" % number, partition=partition)
            self.produced[partition] += BATCH
        assert self._producer.flush(WAIT_S) == 0

    def expected(self):
        return {(at, offset) for at, end in self.produced.items() for offset in range(end)}

    def poll(self):
        """Returns records, none of which was confirmed before."""
        rows = soon(lambda: self.member.poll(200), "no record comes")
        got = [(row[1], row[2], row[4]) for row in rows]
        again = {(partition, offset) for partition, offset, _count in got} & self.kept
        assert not again, f"delivered after the acknowledgement was confirmed: {sorted(again)}"
        assert all(row[3] == str(row[2]) for row in rows)
        self.delivered += got
        return rows

    def commit(self, rows):
        """Accepts the records. Returns the answer for each partition."""
        for row in rows:
            self.member.acknowledge(row, "ACCEPT")
        told = self.member.commit()
        answers = {int(name.rpartition("-")[2]): error for name, error in told.items()}
        self.kept |= {(row[1], row[2]) for row in rows if answers.get(row[1]) == "none"}
        return answers

    def finish(self):
        """Reads and accepts until every record's acknowledgement is confirmed."""
        while self.kept != self.expected():
            self.commit(self.poll())

    def lags(self):
        """Returns the number of records of each partition that are not accepted, as the group
        coordinator learns it from the share coordinators and the leaders."""
        ask = request(90)
        topic = ask.struct("groups.topics")(
            topicName=self.topic, partitions=list(range(PARTITIONS))
        )
        group = ask.struct("groups")(groupId=self.group, topics=[topic])

        def described():
            at = self.coordinator(self.group, kind=0)
            with Wire(self.cluster.brokers[at].address) as wire:
                [told] = wire.call(90, 1, ask.cls(groups=[group])).groups
            rows = told.topics[0].partitions if told.errorCode == 0 else []
            codes = [told.errorCode, *(row.errorCode for row in rows)]
            # A leader may not have heard yet that it leads.
            return rows if codes == [0] * (PARTITIONS + 1) else None

        rows = soon(described, "the offsets cannot be described")
        return {row.partitionIndex: row.lag for row in rows}


def test_each_record_of_partitions_on_all_brokers_is_delivered_once(cluster, clients):
    history = History(cluster, clients, "once")
    leaders, coordinators = history.leaders(), history.share_coordinators()
    assert set(leaders.values()) == set(IDS)
    assert any(leaders[at] != coordinators[at] for at in leaders), "no request between brokers"
    history.produce()
    history.finish()
    history.produce()
    history.finish()
    assert sorted(history.delivered) == sorted((at, offset, 1) for at, offset in history.expected())
    assert set(history.lags().values()) == {0}
    history.member.close()


def test_a_killed_leader_loses_no_record_and_repeats_no_confirmed_one(cluster, clients):
    history = History(cluster, clients, "leader")
    history.produce()
    history.finish()
    history.produce()
    rows = history.poll()
    leaders = history.leaders()
    victim = cluster.brokers[leaders[rows[0][1]]]
    victim.kill()
    answers = history.commit(rows)
    refused = {at for at, error in answers.items() if error != "none"}
    assert refused and all(leaders[at] == victim.node_id for at in refused), (answers, leaders)
    lost = {(row[1], row[2]) for row in rows if row[1] in refused}
    history.finish()
    soon(lambda: len(history.leaders()) == PARTITIONS, "a partition has no leader")
    history.produce()
    history.finish()
    assert all(sum(row[:2] == place for row in history.delivered) > 1 for place in lost)
    victim.start()
    history.wait_for_replicas()
    elect_preferred(cluster, history)  # the broker leads again, and reads what others have written
    history.produce()
    history.finish()
    history.member.close()


def elect_preferred(cluster, history):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def lead():
        with suppress(KafkaException):  # the controller does not know the latest ISR yet
            admin.elect_leaders(ElectionType.PREFERRED, None).result(WAIT_S)
        return history.leaders() == PREFERRED

    soon(lead, "the preferred replicas do not lead")


def test_a_share_coordinator_is_killed_and_another_one_loads_its_log(cluster, clients):
    history = History(cluster, clients, "coordinator")
    history.produce()
    history.finish()
    leaders, coordinators = history.leaders(), history.share_coordinators()
    victim = cluster.brokers[next(id_ for at, id_ in coordinators.items() if leaders[at] != id_)]
    moved = {at for at in leaders if coordinators[at] == victim.node_id != leaders[at]}
    history.produce()
    rows = history.poll()
    while not moved & {row[1] for row in rows}:
        history.commit(rows)
        rows = history.poll()
    victim.kill()
    answers = history.commit(rows)
    assert {answers[at] for at in moved & answers.keys()} == {"none"}, answers
    now = history.share_coordinators()
    assert victim.node_id not in now.values()
    history.finish()
    assert set(history.lags().values()) == {0}
    victim.start()
    history.wait_for_replicas()
    history.member.close()


@pytest.mark.only_long
def test_a_leader_that_was_paused_past_its_session_acknowledges_nothing(cluster, clients):
    """Its acknowledgement reaches it while it still believes to lead: the share coordinator, on
    another broker, has heard of a later leader epoch."""
    history = History(cluster, clients, "zombie")
    history.produce()
    history.finish()
    history.member.close()
    leaders, coordinators = history.leaders(), history.share_coordinators()
    partition = next(at for at in leaders if leaders[at] != coordinators[at])
    zombie = cluster.brokers[leaders[partition]]
    history.produce()
    taken = (partition, BATCH, 2 * BATCH - 1, 1)
    former = member_at(zombie, history, partition, "former")
    soon(lambda: former.fetch(wait_ms=500) == [taken], "the leader gives out no records")
    zombie.pause()
    told = []
    asks = threading.Thread(
        target=lambda: told.append(former.acknowledge(*taken[1:3], ACCEPT, partition=partition))
    )
    asks.start()  # waits in the socket of the paused process
    soon(lambda: history.leaders().get(partition) not in (None, zombie.node_id), "no new leader")
    leader = cluster.brokers[history.leaders()[partition]]
    present = member_at(leader, history, partition, "present")
    soon(lambda: present.fetch(wait_ms=500) == [taken], "the new leader gives out no records")
    assert told == []
    zombie.resume()
    asks.join()
    assert told == [NOT_LEADER_OR_FOLLOWER]
    assert present.acknowledge(*taken[1:3], ACCEPT, partition=partition) == 0
    history.wait_for_replicas()


def member_at(broker, history, partition, name):
    """A member on a connection to one broker, which fetches from one partition."""
    member = ShareMember(broker.address, history.group, name)
    member.assigned = {history.topic_id: [partition]}
    return member


@pytest.mark.only_long
def test_nothing_is_lost_or_repeated_while_brokers_are_killed_and_paused(cluster, clients):
    seed = int(os.environ.get("BARNABAS_HISTORY_SEED", 0)) or SystemRandom().getrandbits(32)
    print(f"BARNABAS_HISTORY_SEED={seed}")
    random = Random(seed)
    history = History(cluster, clients, f"load-{seed}")
    for _ in range(FAULTS):
        victim = cluster.brokers[random.choice(IDS)]
        fault = random.choice(("kill", "pause"))
        history.produce()
        rows = history.poll()
        getattr(victim, fault)()
        history.commit(rows)
        history.produce()
        for _ in range(random.randrange(4)):
            if history.kept != history.expected():
                history.commit(history.poll())
        if fault == "kill":
            victim.start()
        else:
            victim.resume()
        history.finish()
        history.wait_for_replicas()
    assert set(history.lags().values()) == {0}
    again = len(history.delivered) - len(history.expected())
    print(f"{len(history.expected())} records, {again} delivered again, {FAULTS} faults")
    history.member.close()


@pytest.mark.only_long
def test_a_dead_letter_goes_to_the_broker_that_leads_its_partition(cluster, clients):
    letters = {at: f"dlq.letters-{at}" for at in IDS}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    new = [
        NewTopic(
            letters[at],
            num_partitions=1,
            replica_assignment=[sorted(IDS, key=lambda id_, at=at: id_ != at)],
            config={"errors.deadletterqueue.group.enable": "true"},
        )
        for at in IDS
    ]
    for made in admin.create_topics(new).values():
        made.result(WAIT_S)
    for at in IDS:
        topic = letters[at]
        history = History(
            cluster, clients, f"given-up-{at}", errors_deadletterqueue_topic_name=topic
        )
        history.produce()
        rejected = set()
        while rejected != history.expected():
            rows = history.poll()
            for row in rows:
                history.member.acknowledge(row, "REJECT")
            assert set(history.member.commit().values()) == {"none"}
            rejected |= {(row[1], row[2]) for row in rows}
        history.member.close()
        assert origins(cluster, topic, len(rejected)) == rejected


def origins(cluster, topic, count):
    """Returns partition and offset of the records whose dead letters the topic has."""
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "letters",
            "log_level": 0,
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found = []
    while len(found) < count:
        message = reader.poll(WAIT_S)
        assert message is not None and message.error() is None, (found, message)
        headers = dict(message.headers())
        found.append((int(headers["__dlq.errors.partition"]), int(headers["__dlq.errors.offset"])))
    reader.close()
    assert len(found) == len(set(found))
    return set(found)
