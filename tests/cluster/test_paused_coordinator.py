"""A coordinator of groups and transactions is paused past its session in ZooKeeper, and resumed.

Requests that clients sent to it meanwhile are in its sockets. It handles them before it learns that
its session has expired and that another broker coordinates. Nothing that it writes then is
acknowledged, because no replica fetches from it any more. It may answer from its memory, as Apache
Kafka does: the long form shows the same with three brokers of Kafka 3.9.2.

The checker judges the history of what clients were told by the coordinators of their time.
"""

import threading
import time
from pathlib import Path

import pytest
from cluster.kafka_brokers import KAFKA, KafkaProcess
from cluster.three_brokers import Cluster
from compat.support import Wire, rival
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from history.checker import check
from history.model import Operation, Outcome, Read, Send, now
from kazoo.client import KazooClient
from long_form import pick
from waiting import soon

from barnabas.cext.record.records import Record
from barnabas.wire import request
from barnabas.wire.batches import encode_batch

pytestmark = [pytest.mark.slow, pytest.mark.takes(seconds=20)]

ZOMBIE, OTHERS = 3, (1, 2)
TOPIC, RECORDS, POSITIONS = "data", 0, 1  # a partition for records, one for positions
WAIT_S = 60
OK, NOT_COORDINATOR = 0, 16
GROUP, TRANSACTION = 0, 1  # kinds of coordinators
SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class KafkaCluster:
    """Brokers 1 to 3 of Kafka, with the interface of Cluster."""

    def __init__(self, folder, zookeeper, chroot):
        client = KazooClient(zookeeper.address)
        client.start(30)
        client.ensure_path(chroot)
        client.stop()
        client.close()
        connect = zookeeper.connect(chroot)
        self.brokers = {
            broker_id: KafkaProcess(folder, broker_id, connect, SETTINGS)
            for broker_id in (*OTHERS, ZOMBIE)
        }

    @property
    def bootstrap_servers(self):
        return ",".join(broker.address for broker in self.brokers.values())

    def __enter__(self):
        for broker in self.brokers.values():
            broker.start()
        return self

    def __exit__(self, *_exc):
        for broker in self.brokers.values():
            if broker.is_running:
                broker.resume()
                broker.kill()


@pytest.fixture(params=pick(short=["barnabas"], long=["barnabas", "kafka"]))
def cluster(request, own_zookeeper, tmp_path):
    if request.param == "kafka":
        reason = rival.missing(KAFKA)
        if reason:
            pytest.skip(reason)
        made = KafkaCluster(tmp_path, own_zookeeper, "/paused")
    else:
        made = Cluster(tmp_path, own_zookeeper.connect("/paused"), **SETTINGS)
    with made:
        yield made


class Asking:
    """A connection to one broker. `later` sends a request without waiting for its answer."""

    def __init__(self, broker):
        self._wire = Wire(broker.address)
        self._answer = None
        self._thread = None

    def now(self, key, version, body):
        return self._wire.call(key, version, body)

    def later(self, key, version, body):
        def ask():
            self._answer = self._wire.call(key, version, body)

        self._thread = threading.Thread(target=ask, daemon=True)
        self._thread.start()

    @property
    def is_answered(self):
        return self._answer is not None

    def answer(self):
        self._thread.join(WAIT_S)
        assert self._answer is not None, "the resumed broker does not answer"
        return self._answer


# -- requests and what their answers say ----------------------------------------------------------


def find(name, kind):
    return 10, 4, request(10).cls(coordinatorKeys=[name], keyType=kind)


def coordinator(broker, name, kind):
    """The coordinator that a broker answers; None when it answers an error."""
    with Wire(broker.address) as wire:
        [row] = wire.call(*find(name, kind)).coordinators
    return row.nodeId if row.errorCode == OK else None


def commit(group, offset):
    ask = request(8)
    row = ask.struct("topics.partitions")(partitionIndex=POSITIONS, committedOffset=offset)
    topic = ask.struct("topics")(name=TOPIC, partitions=[row])
    return 8, 7, ask.cls(groupId=group, generationIdOrMemberEpoch=-1, memberId="", topics=[topic])


def committed(answer):
    [row] = answer.topics[0].partitions
    return row.errorCode


def fetch(group, is_stable=True):
    """`is_stable`: Kafka 3.9 refuses while a commit is pending, Kafka 4 only for transactions."""
    ask = request(9)
    topic = ask.struct("topics")(name=TOPIC, partitionIndexes=[POSITIONS])
    return 9, 7, ask.cls(groupId=group, topics=[topic], requireStable=is_stable)


def fetched(answer):
    """(error code, position)"""
    if answer.errorCode:
        return answer.errorCode, None
    [row] = answer.topics[0].partitions
    return row.errorCode, row.committedOffset


def join(group, member_id=""):
    ask = request(11)
    protocol = ask.struct("protocols")(name="range", metadata=b"")
    body = ask.cls(
        groupId=group,
        sessionTimeoutMs=30_000,
        rebalanceTimeoutMs=30_000,
        memberId=member_id,
        protocolType="consumer",
        protocols=[protocol],
    )
    return 11, 2, body


def sync(group, member_id, generation):
    ask = request(14)
    rows = [ask.struct("assignments")(memberId=member_id, assignment=b"all")]
    body = ask.cls(groupId=group, generationId=generation, memberId=member_id, assignments=rows)
    return 14, 2, body


def heartbeat(group, member_id, generation):
    body = request(12).cls(groupId=group, generationId=generation, memberId=member_id)
    return 12, 2, body


def begin(name):
    return 22, 3, request(22).cls(transactionalId=name, transactionTimeoutMs=60_000)


def add(name, producer):
    ask = request(24)
    topic = ask.struct("v3AndBelowTopics")(name=TOPIC, partitions=[RECORDS])
    body = ask.cls(
        v3AndBelowTransactionalId=name,
        v3AndBelowProducerId=producer[0],
        v3AndBelowProducerEpoch=producer[1],
        v3AndBelowTopics=[topic],
    )
    return 24, 3, body


def end(name, producer):
    body = request(26).cls(
        transactionalId=name, producerId=producer[0], producerEpoch=producer[1], committed=True
    )
    return 26, 2, body


def record(name, producer, value):
    ask = request(0)
    batch = encode_batch(
        [Record(b"%d" % value, timestamp=time.time_ns() // 1_000_000)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        transactional=True,
    )
    row = ask.struct("topicData.partitionData")(index=RECORDS, records=batch)
    topic = ask.struct("topicData")(name=TOPIC, partitionData=[row])
    return 0, 7, ask.cls(transactionalId=name, acks=-1, timeoutMs=30_000, topicData=[topic])


class Clients:
    """The clients of one group and of one transactional id, which record each answer."""

    def __init__(self, cluster):
        self.brokers, self.history = cluster.brokers, []

    def note(self, began, **fields):
        self.history.append(Operation(process="client", began=began, ended=now(), **fields))

    def ask(self, name, kind, call, code, via=OTHERS[0]):
        """Asks the coordinator that broker `via` names, until there is no error."""
        told = []

        def is_done():
            found = coordinator(self.brokers[via], name, kind)
            if found is None:
                return False
            with Wire(self.brokers[found].address) as wire:
                told[:] = [wire.call(*call)]
            return code(told[0]) == OK

        soon(is_done, f"{name}: no answer without an error: {told}", WAIT_S)
        return told[0]

    def commit(self, group, offset):
        began = now()
        self.ask(group, GROUP, commit(group, offset), committed)
        self.note(began, group=group, commits={f"{TOPIC}/{POSITIONS}": offset})

    def position(self, group, via=OTHERS[0]):
        began = now()
        answer = self.ask(group, GROUP, fetch(group), lambda told: fetched(told)[0], via)
        self.note(began, group=group, positions={f"{TOPIC}/{POSITIONS}": fetched(answer)[1]})
        return fetched(answer)[1]

    def transaction(self, name):
        """Begins a transaction at its coordinator; returns the producer's id and epoch."""
        told = self.ask(name, TRANSACTION, begin(name), lambda answer: answer.errorCode)
        return told.producerId, told.producerEpoch

    def write(self, name, producer, value, ends):
        began = now()

        def added(answer):
            return answer.resultsByTopicV3AndBelow[0].resultsByPartition[0].partitionErrorCode

        self.ask(name, TRANSACTION, add(name, producer), added)
        with Wire(self.brokers[OTHERS[0]].address) as wire:
            [row] = wire.call(*record(name, producer, value)).responses[0].partitionResponses
        assert row.errorCode == OK
        deciding = now()
        if ends:
            self.ask(name, TRANSACTION, end(name, producer), lambda answer: answer.errorCode)
        sent = Send(f"{TOPIC}/{RECORDS}", value, row.baseOffset)
        outcome = Outcome.OK if ends else Outcome.FAIL  # the next transaction aborts it
        self.note(began, sends=(sent,), transactional=True, deciding=deciding, outcome=outcome)


def create(cluster):
    """Creates a topic that the first broker leads, with replicas on all three."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    config = {"min.insync.replicas": "2"}
    new = NewTopic(TOPIC, replica_assignment=[[1, 2, 3]] * 2, num_partitions=2, config=config)
    soon(lambda: len(admin.list_topics(timeout=10).brokers) == 3, "not all brokers are registered")
    admin.create_topics([new])[TOPIC].result(30)
    wait_in_sync(cluster, TOPIC)


def wait_in_sync(cluster, *topics):
    def are_in_sync(broker):
        found = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=10).topics
        return all(
            topic in found and all(len(row.isrs) == 3 for row in found[topic].partitions.values())
            for topic in topics
        )

    for broker in cluster.brokers.values():
        soon(lambda broker=broker: are_in_sync(broker), f"{topics} are not in sync")


def names_at(broker_id, broker, stem, kind, count):
    """Returns names that a broker coordinates."""
    found = []
    for number in range(100):
        name = f"{stem}-{number}"
        if soon(lambda name=name: coordinator(broker, name, kind), "no coordinator") == broker_id:
            found.append(name)
        if len(found) == count:
            return found
    raise AssertionError(f"broker {broker_id} coordinates no {stem}")


def read_committed(cluster):
    """Returns (offset, value) of all records up to the last stable offset."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer, found = Consumer(settings), []
    consumer.assign([TopicPartition(TOPIC, RECORDS, 0)])
    while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
        found.append((message.offset(), int(message.value())))
    consumer.close()
    assert message is not None
    return found


def test_a_coordinator_paused_past_its_session_acknowledges_no_write(cluster, tmp_path: Path):
    """SIGSTOP and SIGCONT."""
    create(cluster)
    zombie = cluster.brokers[ZOMBIE]
    clients = Clients(cluster)
    group, members = names_at(ZOMBIE, zombie, "group", GROUP, 2)
    [name] = names_at(ZOMBIE, zombie, "id", TRANSACTION, 1)
    wait_in_sync(cluster, "__consumer_offsets", "__transaction_state")
    clients.commit(group, 1)
    joined = clients.ask(members, GROUP, join(members), lambda answer: answer.errorCode)
    member = joined.memberId, joined.generationId
    clients.ask(members, GROUP, sync(members, *member), lambda answer: answer.errorCode)
    producer = clients.transaction(name)
    clients.write(name, producer, 1, ends=False)

    calls = {
        "commit": commit(group, 2),
        "end": end(name, producer),
        "fetch": fetch(group, is_stable=False),
        "heartbeat": heartbeat(members, *member),
        "find": find(group, GROUP),
        "join": join(members),
    }
    asked = {what: Asking(zombie) for what in calls}
    for one in asked.values():  # all connections are open, and served
        one.now(18, 0, request(18).cls())
    zombie.pause()
    for what, call in calls.items():
        asked[what].later(*call)

    def moved():
        found = [coordinator(cluster.brokers[OTHERS[0]], *row) for row in coordinated]
        return all(row in OTHERS for row in found)

    coordinated = [(group, GROUP), (members, GROUP), (name, TRANSACTION)]
    soon(moved, "no other broker coordinates", WAIT_S)
    clients.commit(group, 3)
    assert clients.position(group) == 3
    again = clients.transaction(name)  # fences the producer, and aborts what it has written
    assert again[0] == producer[0] and again[1] > producer[1]
    clients.write(name, again, 2, ends=True)
    assert not any(one.is_answered for one in asked.values())

    zombie.resume()
    answers = {what: one.answer() for what, one in asked.items() if what != "join"}
    assert committed(answers["commit"]) != OK, "a zombie acknowledged a commit"
    assert answers["end"].errorCode != OK, "a zombie ended a transaction"
    stale = fetched(answers["fetch"])
    assert stale[0] != OK or stale[1] == 1, "neither refused nor the position at the pause"
    [found] = answers["find"].coordinators
    print(
        f"the zombie answered: commit {committed(answers['commit'])},"
        f" EndTxn {answers['end'].errorCode}, OffsetFetch {stale},"
        f" Heartbeat {answers['heartbeat'].errorCode},"
        f" FindCoordinator {found.errorCode} {found.nodeId}"
    )
    assert clients.position(group) == 3

    def has_learnt():
        with Wire(zombie.address) as wire:
            codes = [fetched(wire.call(*fetch(group)))[0]]
            codes.append(wire.call(*heartbeat(members, *member)).errorCode)
        return codes == [NOT_COORDINATOR] * 2 and coordinator(zombie, group, GROUP) in OTHERS

    soon(has_learnt, "the zombie does not learn that another broker coordinates", WAIT_S)
    assert asked["join"].answer().errorCode != OK, "a zombie let a member in"
    assert clients.position(group, via=ZOMBIE) == 3

    # It coordinates again, from its own copy of the log.
    wait_in_sync(cluster, TOPIC, "__consumer_offsets", "__transaction_state")
    elect_preferred(cluster)
    soon(lambda: coordinator(zombie, group, GROUP) == ZOMBIE, "it coordinates no more", WAIT_S)
    assert clients.position(group, via=ZOMBIE) == 3
    clients.commit(group, 4)
    assert clients.position(group) == 4
    began, read = now(), read_committed(cluster)
    assert [value for _offset, value in read] == [2]
    rows = tuple(Read(f"{TOPIC}/{RECORDS}", offset, value) for offset, value in read)
    clients.note(began, reads=rows, scan=True, scanned=(f"{TOPIC}/{RECORDS}",))
    verdict = check(clients.history)
    assert verdict.valid is True, str(verdict)


def elect_preferred(cluster):
    """Makes the first replica of each partition its leader."""
    with Wire(cluster.brokers[OTHERS[0]].address) as wire:
        ask = request(3)
        controller = wire.call(3, 9, ask.cls(topics=[])).controllerId
    with Wire(cluster.brokers[controller].address) as wire:
        told = wire.call(43, 2, request(43).cls(topicPartitions=None, timeoutMs=30_000))
    assert told.errorCode == OK
