"""The coordinator of a transaction is killed after it has decided the commit: before any marker is
written, or between the markers of two partitions. The next coordinator writes the rest: everything
is committed, on all partitions, and no reader waits.

The coordinator cannot send to the leader of a partition (its packets are dropped one way), so that
leader gets no marker. The third broker still follows the coordinator, which so decides the commit.
"""

import threading
import time

import pytest
from cluster.acknowledged import BATCH_BYTES_MAX, commits_transaction, equal_replicas
from cluster.faults import IDS, IMPATIENT, rig
from cluster.network import missing as no_network
from cluster.roles import TRANSACTION, coordinator
from cluster.three_brokers import batches_in
from confluent_kafka import Producer
from history.last_read import ends, scan
from history.model import History
from waiting import soon
from zookeeper_server import missing as no_zookeeper

from barnabas.coordinator.transactions.transaction import State
from barnabas.coordinator.transactions.transaction_records import read_transaction
from barnabas.wire.batches import decode_batches

pytestmark = [pytest.mark.slow, pytest.mark.only_long, pytest.mark.takes(seconds=60)]

COUNT = 20
STABLE_S = 30.0


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    reason = no_network() or no_zookeeper()
    if reason:
        pytest.skip(reason)
    with rig(tmp_path_factory.mktemp("coordinator")) as made:
        yield made


def decided(broker, transactional_id):
    """Returns the last state of a transaction in the files of a broker."""
    found = None
    for folder in broker.data.glob("__transaction_state-*"):
        for _offset, _epoch, batch in batches_in(folder):
            for decoded in decode_batches(batch, size_max=BATCH_BYTES_MAX):
                for record in decoded.records:
                    name, now = read_transaction(record)
                    if name == transactional_id and now is not None:
                        found = now.state
    return found


def markers(broker, topic):
    return sum(
        decoded.control
        for _offset, _epoch, batch in broker.batches(topic, 0)
        for decoded in decode_batches(batch, size_max=BATCH_BYTES_MAX)
    )


@pytest.mark.parametrize("kill", ["before the markers", "between the markers"])
def test_a_coordinator_killed_after_its_decision(three, kill):
    name = kill.replace(" ", "-")
    producer = Producer(
        {"bootstrap.servers": three.servers, "transactional.id": name, "log_level": 0, **IMPATIENT}
    )
    producer.init_transactions(60)
    killed = coordinator(three.cluster, name, TRANSACTION)
    out_of_reach, reached = (broker_id for broker_id in IDS if broker_id != killed)
    first = out_of_reach if kill == "before the markers" else reached
    leaders = {f"{name}-first": first, f"{name}-second": out_of_reach}
    for topic, leader in leaders.items():
        three.create(topic, leader)
    producer.begin_transaction()
    values = {topic: list(range(at * COUNT, (at + 1) * COUNT)) for at, topic in enumerate(leaders)}
    for topic, numbers in values.items():
        for number in numbers:
            producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0

    three.network.cut(str(killed), str(out_of_reach))
    assert not three.network.is_heard(str(killed), str(out_of_reach))
    assert three.network.is_heard(str(out_of_reach), str(killed))
    failed = []

    def commit():
        try:
            soon(lambda: commits_transaction(producer), "the commit does not end", patience_s=90)
        except Exception as error:
            failed.append(error)

    committing = threading.Thread(target=commit)
    committing.start()
    witness = three.brokers[reached]
    soon(lambda: decided(witness, name) == State.PREPARE_COMMIT, "no decision")
    written = {topic: int(leader == reached) for topic, leader in leaders.items()}
    soon(lambda: markers(witness, f"{name}-first") == written[f"{name}-first"], "no marker")
    assert {topic: markers(three.brokers[leader], topic) for topic, leader in leaders.items()} == (
        written
    )
    three.brokers[killed].kill()
    assert decided(witness, name) == State.PREPARE_COMMIT
    began = time.monotonic()
    three.network.heal()
    places = [(topic, 0) for topic in leaders]
    live = three.brokers[reached].address

    def stable():
        return all(end == high for end, high in ends(live, places).values())

    soon(stable, "readers wait", patience_s=STABLE_S)
    print(f"readers go on after {time.monotonic() - began:.2f} s")
    committing.join()
    assert failed == []
    history = History()
    scan(live, history, places, "last")
    found = {topic: [] for topic in leaders}
    for one in history.operations():
        for read in one.reads:
            found[read.partition.split("/")[0]].append(read.value)
    assert found == values
    three.brokers[killed].start()
    for topic in leaders:
        three.wait_for(topic, lambda state: state[1] == list(IDS), "not in sync at the end")
        for broker_id in IDS:
            three.wait_for_end(topic, broker_id)
        equal_replicas(list(three.brokers.values()), topic, 1)
