"""The power of all brokers is cut at once, or that of the last replica in sync.

The disks of the brokers are file systems of their own, which lose what was not flushed. The tests
read every acknowledged record from the files of each replica.
"""

import pytest
from cluster.acknowledged import BATCH_BYTES_MAX, Sender, equal_replicas, leaders_and_isrs
from cluster.disks import disks
from cluster.disks import missing as no_disk
from cluster.faults import IDS, IMPATIENT, Direct, rig
from cluster.network import missing as no_network
from cluster.three_brokers import Cluster
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

from barnabas.storage import checkpoints
from barnabas.wire.batches import decode_batches

pytestmark = [pytest.mark.slow, pytest.mark.takes(seconds=60)]

TOPIC, PARTITIONS = "cut", 3
MEGABYTES = 256
NO_LEADER = -1


@pytest.fixture
def mounted(tmp_path):
    reason = no_disk()
    if reason:
        pytest.skip(reason)
    with disks(tmp_path, IDS, MEGABYTES) as made:
        yield made


def create(cluster):
    config = {"min.insync.replicas": "2"}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, config=config)])[TOPIC].result(30)
    wait_in_sync(cluster)


def wait_in_sync(cluster):
    def all_in_sync():
        found = [leaders_and_isrs(broker.address, TOPIC) for broker in cluster.brokers.values()]
        isrs = [isr for rows in found for leader, isr in rows.values() if leader in IDS]
        return isrs == [list(IDS)] * (PARTITIONS * len(IDS))

    soon(all_in_sync, "not in sync", patience_s=90)


def cut_power(brokers, mounted):
    """Cuts the power of brokers. It stops all processes before it cuts the first disk, so no record
    is acknowledged between the cuts."""
    for broker in brokers:
        broker.pause()
    for broker in brokers:
        mounted[broker.node_id].cut_power()
    for broker in brokers:
        broker.kill()
        mounted[broker.node_id].mount_again()


def records(broker):
    """Returns the records in the files of a broker, by partition and offset."""
    return {
        (index, record.offset): record.value
        for index in range(PARTITIONS)
        for _offset, _epoch, batch in broker.batches(TOPIC, index)
        for decoded in decode_batches(batch, size_max=BATCH_BYTES_MAX)
        for record in decoded.records
    }


def test_a_power_cut_of_all_three_loses_nothing_with_fsync(own_zookeeper, tmp_path, mounted):
    connect = own_zookeeper.connect("/c")
    settings = {"log_durability": "fsync", "zookeeper_session_timeout_ms": "30000"}
    with Cluster(tmp_path, connect, **settings) as cluster:
        create(cluster)
        sender = Sender(cluster.bootstrap_servers, TOPIC, PARTITIONS, more=IMPATIENT)
        sender.wait_for_more(600)
        brokers = list(cluster.brokers.values())
        cut_power(brokers, mounted)
        for broker in brokers:
            found, acknowledged = records(broker), dict(sender.acknowledged)
            lost = [place for place, value in acknowledged.items() if found.get(place) != value]
            assert not lost, f"broker {broker.node_id} lost {len(lost)} flushed records"
        for broker in brokers:
            broker.start()
        wait_in_sync(cluster)
        sender.wait_for_more(600)
        sender.stop()
        sender.check(cluster.bootstrap_servers)
        for broker in brokers:
            broker.stop()
        print(f"{len(sender.acknowledged)} records, {sender.check_files(brokers)} batches")


@pytest.mark.only_long
def test_a_power_cut_of_all_three_loses_what_the_leader_did_not_flush(
    own_zookeeper, tmp_path, mounted
):
    """log.durability=os, as in Kafka. The leader says where its log ends, and uses no offset again
    in the same leader epoch."""
    settings = {"replica_high_watermark_checkpoint_interval_ms": "200"}
    connect = own_zookeeper.connect("/c")
    with Cluster(tmp_path, connect, log_durability="os", **settings) as cluster:
        create(cluster)
        brokers = list(cluster.brokers.values())
        flushed = Sender(cluster.bootstrap_servers, TOPIC, PARTITIONS, more=IMPATIENT)
        flushed.wait_for_more(600)
        flushed.stop()
        for disk in mounted.values():
            disk.flush()
        sender = Sender(cluster.bootstrap_servers, TOPIC, PARTITIONS, more=IMPATIENT)
        sender.wait_for_more(600)
        sender.stop()
        first = brokers[0]
        soon(lambda: all(marks(first)[at] > ends(sender)[at] for at in ends(sender)), "no marks")
        epochs = [epoch for _offset, epoch, _batch in first.batches(TOPIC, 0)]
        cut_power(brokers, mounted)
        left = records(first)  # the first one that starts leads: no other member of the ISR lives
        lost = {place for place in sender.acknowledged if place not in left}
        assert lost, "the power cut has lost nothing"
        assert flushed.acknowledged.items() <= left.items()
        for broker in brokers:
            broker.start()
        wait_in_sync(cluster)
        for index in range(PARTITIONS):
            said = f"{TOPIC}-{index}: ends at offset"
            assert any(said in line and "power failure" in line for line in first.lines)
        more = Sender(cluster.bootstrap_servers, TOPIC, PARTITIONS, more=IMPATIENT)
        more.wait_for_more()
        more.stop()
        for broker in brokers:
            broker.stop()
        equal_replicas(brokers, TOPIC, PARTITIONS)
        found = records(first)
        assert left.items() <= found.items() and more.acknowledged.items() <= found.items()
        again = min(offset for partition, offset in more.acknowledged if partition == 0)
        later = [epoch for at, epoch, _batch in first.batches(TOPIC, 0) if at >= again]
        assert min(later) > max(epochs)
        print(f"{len(lost)} of {len(sender.acknowledged)} unflushed records are lost")


def marks(broker):
    """Returns the high watermarks that a broker has on its disk."""
    found = checkpoints.read_offsets(broker.data / checkpoints.HIGH_WATERMARK)
    return {index: found.get((TOPIC, index), 0) for index in range(PARTITIONS)}


def ends(sender):
    """Returns the last acknowledged offset of each partition."""
    return {
        index: max(offset for at, offset in sender.acknowledged if at == index)
        for index in range(PARTITIONS)
    }


@pytest.mark.only_long
@pytest.mark.parametrize("others", ["cut off", "dead"])
def test_the_power_of_the_last_replica_in_sync_is_cut(tmp_path, mounted, others):
    """KIP-966: the ISR has shrunk to the leader, below min.insync.replicas, and the leader loses
    what it has not flushed. Nothing that was acknowledged is lost, and the partition has no leader
    until that replica is back."""
    reason = no_network()
    if reason:
        pytest.skip(reason)
    with rig(tmp_path) as three:
        topic, leader = "last", 1
        three.create(topic, leader)
        sender = three.sender(topic)
        sender.wait_for_more()
        last = three.brokers[leader]
        for broker_id in IDS[1:]:
            if others == "dead":
                three.brokers[broker_id].kill()
            else:
                three.network.cut(str(leader), str(broker_id))
                three.network.cut(str(broker_id), str(leader))
                assert not three.network.is_heard(str(leader), str(broker_id))
        three.wait_for(topic, lambda found: found == (leader, [leader]), "not alone", (leader,))
        said = f"{topic}-0: flushed up to offset"
        soon(lambda: any(said in line for line in last.lines), "it does not flush")
        assert Direct(last, topic).produce(b"below min.insync.replicas")[0] != 0
        assert Direct(last, topic).produce(b"not flushed", acks=1)[0] == 0
        cut_power([last], mounted)
        three.network.heal()
        if others == "dead":
            for broker_id in IDS[1:]:
                three.brokers[broker_id].start()
        three.wait_for(topic, lambda found: found == (NO_LEADER, [leader]), "a leader", IDS[1:])
        last.start()
        batches = three.finish(topic, sender)
        print(f"{len(sender.acknowledged)} records, {batches} batches")
