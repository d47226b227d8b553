"""A share group (KIP-932) of Apache Kafka whose records are in every state.

    0-9 accepted    10-14 released twice    15-19 rejected    20-29 released once, delivered again
    30-39 delivered once    40-59 never delivered

What 20-39 wait for is known to the running broker alone: the stored deliveries of 20-29 are 1.

`python -m takeover.kafka_share VERSION` (in tests/) writes recorded/share-VERSION.tar.xz: the log
directory after a clean stop, for a test that starts no Java."""

import sys
import tarfile
import tempfile
import time
from pathlib import Path

from compat.support import QUICK_HEAP, create_topic, produce_batch, rival
from share.share_member import ShareMember, configure
from takeover.kafka_before import RECORDED

ACCEPT, RELEASE, REJECT = 1, 2, 3
TOPIC, GROUP, RECORDS = "t", "g", 60
FIRST, SECOND = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"  # members
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}
# How often each offset was delivered, when it is delivered by the next broker.
DELIVERIES = (
    dict.fromkeys(range(10, 15), 3)
    | dict.fromkeys(range(20, 30), 2)
    | dict.fromkeys(range(30, RECORDS), 1)
)
PATIENCE_S = 30


def kafka(version, folder):
    return rival.Rival(version, folder / "kafka", settings=SETTINGS, heap=QUICK_HEAP)


def fetched(member, count):
    """Returns the deliveries of each offset, as soon as there are so many."""
    found, deadline = {}, time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        rows = member.fetch(wait_ms=500)
        found |= {offset: n for _p, first, last, n in rows for offset in range(first, last + 1)}
    return found


def fill(address):
    """Returns the member, which stays connected."""
    create_topic(address, TOPIC, configs={"retention.ms": "-1"})
    produce_batch(address, TOPIC, [b"%d" % number for number in range(40)])
    assert configure(address, GROUP, share_auto_offset_reset="earliest") == 0
    member = ShareMember(address, GROUP, FIRST).join(TOPIC)
    assert fetched(member, 40) == dict.fromkeys(range(40), 1)
    for first, last, kind in ((0, 9, ACCEPT), (10, 14, RELEASE), (15, 19, REJECT)):
        assert member.acknowledge(first, last, kind) == 0
    assert member.acknowledge(20, 29, RELEASE) == 0
    assert fetched(member, 15) == dict.fromkeys([*range(10, 15), *range(20, 30)], 2)
    assert member.acknowledge(10, 14, RELEASE) == 0
    produce_batch(address, TOPIC, [b"%d" % number for number in range(40, RECORDS)])
    return member


def delivered(address):
    """Returns the deliveries of each offset that another member gets, and the stored start."""
    member = ShareMember(address, GROUP, SECOND).join(TOPIC)
    found = fetched(member, len(DELIVERIES))
    assert member.fetch() == []
    start, _complete = member.state(next(iter(member.assigned)))
    member.close()
    return found, start


def recorded(version, folder):
    """Unpacks the recorded log directory of a version. Returns its path."""
    with tarfile.open(RECORDED / f"share-{version}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "data"


def record(version):
    with tempfile.TemporaryDirectory() as folder, kafka(version, Path(folder)) as before:
        member = fill(before.address)
        before.stop()
        member.close()
        with tarfile.open(RECORDED / f"share-{version}.tar.xz", "w:xz") as archive:
            archive.add(before.log_dir, "data")


if __name__ == "__main__":
    record(sys.argv[1])
