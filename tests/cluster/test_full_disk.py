"""Fills the disk of one of three brokers: clients continue to write to its partitions with two
replicas, and the broker joins the ISR again when space is free."""

import time

import pytest
from cluster.disks import disks
from cluster.disks import missing as no_disk
from cluster.faults import IDS, Direct, rig
from cluster.network import missing as no_network

pytestmark = [pytest.mark.slow, pytest.mark.only_long, pytest.mark.takes(seconds=60)]

FULL, MEGABYTES = 2, 48
PADDING_BYTES = 2000
KAFKA_STORAGE_ERROR, NOT_LEADER = 56, 6


@pytest.fixture
def three(tmp_path):
    reason = no_network() or no_disk()
    if reason:
        pytest.skip(reason)
    with disks(tmp_path, [FULL], MEGABYTES) as mounted, rig(tmp_path) as made:
        yield made, mounted[FULL]


def test_the_others_go_on_while_the_disk_of_one_is_full(three):
    three, disk = three
    others = tuple(broker_id for broker_id in IDS if broker_id != FULL)
    topics = {"led": FULL, "followed": others[0]}
    for topic, leader in topics.items():
        three.create(topic, leader)
    senders = {topic: three.sender(topic, PADDING_BYTES) for topic in topics}
    for sender in senders.values():
        sender.wait_for_more()
    disk.fill()
    began = time.monotonic()
    full = three.brokers[FULL]
    for topic in topics:
        three.wait_for(
            topic,
            lambda found: found[0] in others and found[1] == list(others),
            "the full one is still in the ISR",
            others,
        )
    without_s = time.monotonic() - began
    assert Direct(full, "led").produce(b"to a full disk")[0] in (KAFKA_STORAGE_ERROR, NOT_LEADER)
    assert any("No space left" in line for line in full.lines)
    for sender in senders.values():
        sender.wait_for_more()
    assert full.is_running
    disk.free()
    began = time.monotonic()
    for topic in topics:
        three.wait_for(topic, lambda found: found[1] == list(IDS), "it does not come back")
    back_s = time.monotonic() - began
    for topic, sender in senders.items():
        three.finish(topic, sender)
    print(f"without the full one after {without_s:.2f} s, with it again after {back_s:.2f} s")
