"""A replica that truncates by leader epoch changes no file that has another name: what `cp -al`, an
import by links or a backup by links made before it stays as it was."""

import hashlib
import os

import pytest
from cluster.acknowledged import leaders_and_isrs
from cluster.three_brokers import Cluster
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

pytestmark = [pytest.mark.only_long, pytest.mark.takes(seconds=20)]

TOPIC = "t"
FIRST, SECOND = 1, 2
NO_LEADER = -1
SETTINGS = {"unclean.leader.election.enable": "true", "segment.bytes": "20000"}


def fill(address, value, count):
    producer = Producer({"bootstrap.servers": address, "batch.num.messages": 10})
    for _ in range(count):
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(60) == 0


def sums(folder):
    """The checksum of each file of the replica."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    }


def values_of(broker):
    return b"".join(batch for _base, _epoch, batch in broker.batches(TOPIC, 0))


def test_a_truncation_by_epoch_leaves_other_names_as_they_are(shared_zookeeper, tmp_path):
    with Cluster(tmp_path, shared_zookeeper.connect("/linked-files")) as cluster:
        first, second, third = cluster.brokers.values()

        def is_led_by(leader, isr):
            soon(lambda: leaders_and_isrs(third.address, TOPIC).get(0) == (leader, isr))

        new = NewTopic(TOPIC, 1, replica_assignment=[[FIRST, SECOND]], config=SETTINGS)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([new])[TOPIC].result(30)
        is_led_by(FIRST, [FIRST, SECOND])
        fill(cluster.bootstrap_servers, b"on both" * 20, 300)
        second.kill()
        is_led_by(FIRST, [FIRST])
        fill(cluster.bootstrap_servers, b"on one " * 20, 300)
        first.kill()
        own, copy = first.data / f"{TOPIC}-0", tmp_path / "copy"
        copy.mkdir()
        for path in own.iterdir():
            os.link(path, copy / path.name)
        before = sums(copy)
        is_led_by(NO_LEADER, [FIRST])
        second.start()
        is_led_by(SECOND, [SECOND])
        fill(second.address, b"after  " * 20, 300)
        first.start()
        is_led_by(SECOND, [FIRST, SECOND])
        for broker in (first, second):
            assert broker.stop() == 0
        kept = values_of(first)
        assert kept == values_of(second) and b"after" in kept and b"on one" not in kept
        names = sorted(path.name for path in copy.glob("*.log"))
        own_again = [name for name in names if not (own / name).samefile(copy / name)]
        assert 0 < len(own_again) < len(names)
        # The first of them is the one in which the truncation cut: it begins as it did.
        assert (own / own_again[0]).read_bytes()[:1000] == (copy / own_again[0]).read_bytes()[:1000]
        assert sums(copy) == before
