"""Kills all in-sync replicas of a partition, and starts a replica that lacks records. Without
unclean.leader.election.enable the partition waits and loses nothing. With it records are lost, and
clients learn this from the leader epoch."""

import pytest
from cluster.acknowledged import Sender, leaders_and_isrs
from cluster.faults import IMPATIENT, Direct
from cluster.three_brokers import Cluster
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

pytestmark = [pytest.mark.slow, pytest.mark.only_long, pytest.mark.takes(seconds=40)]

NO_LEADER = -1
OFFSET_OUT_OF_RANGE, NOT_LEADER, FENCED_LEADER_EPOCH = 1, 6, 74


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, zookeeper_server):
    connect = zookeeper_server.connect(zookeeper_server.new_chroot())
    with Cluster(tmp_path_factory.mktemp("unclean"), connect) as started:
        yield started


def begin(cluster, topic, **config):
    """Kills brokers so that broker 1 has records that broker 2 lacks. Returns the sender and the
    number of records that both have."""
    config = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, 1, replica_assignment=[[1, 2]], config=config)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([new])[topic].result(30)
    first, second, third = cluster.brokers.values()
    wait(third, topic, (1, [1, 2]))
    sender = Sender(cluster.bootstrap_servers, topic, more=IMPATIENT)
    sender.wait_for_more()
    second.kill()
    wait(third, topic, (1, [1]))
    sender.wait_for_more()
    sender.stop()
    first.kill()
    wait(third, topic, (NO_LEADER, [1]))
    second.start()
    [*_, (offset, _epoch, last)] = second.batches(topic, 0)
    return sender, offset + int.from_bytes(last[23:27], "big") + 1  # lastOffsetDelta


def wait(broker, topic, expected):
    def says():
        return leaders_and_isrs(broker.address, topic).get(0) == expected

    soon(says, f"{topic} is not {expected}")


def test_without_it_the_partition_waits_for_its_last_replica(cluster):
    topic = "waits"
    sender, common = begin(cluster, topic)
    first, second, third = cluster.brokers.values()
    assert common <= max(offset for _partition, offset in sender.acknowledged)
    direct = Direct(second, topic)
    for _ in range(5):
        assert direct.produce(b"no leader")[0] == NOT_LEADER
    wait(third, topic, (NO_LEADER, [1]))
    first.start()
    wait(third, topic, (1, [1, 2]))
    sender.check(cluster.bootstrap_servers)
    sender.check_files([first, second])


def test_with_it_records_are_lost_and_consumers_are_told(cluster):
    topic = "loses"
    sender, common = begin(cluster, topic, unclean_leader_election_enable="true")
    first, second, third = cluster.brokers.values()
    last = max(offset for _partition, offset in sender.acknowledged)
    assert common <= last
    wait(third, topic, (2, [2]))
    direct = Direct(second, topic)
    code, _end = direct.fetch(last + 1, leader_epoch=0)
    assert code == FENCED_LEADER_EPOCH
    code, _end = direct.fetch(last + 1)
    assert code == OFFSET_OUT_OF_RANGE
    assert direct.epoch_end(0) == common  # where a consumer of epoch 0 has to begin again
    code, offset = direct.produce(b"another record", acks=1)
    assert (code, offset) == (0, common)  # the offset of a lost record, in a later epoch
    first.start()
    wait(third, topic, (2, [1, 2]))
    said = f"{topic}-0: truncated from offset {last + 1} to {common}"
    assert any(said in line for line in first.lines)
    said = f"{topic}-0: broker 2 leads without having been in the ISR (1,)"
    assert any(said in line for broker in (second, third) for line in broker.lines)
    kept = {place: value for place, value in sender.acknowledged.items() if place[1] < common}
    assert len(kept) < len(sender.acknowledged)
    sender.acknowledged = kept
    sender.check_files([first, second])
