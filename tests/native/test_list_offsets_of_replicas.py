"""ListOffsets of a partition with followers: the end is the high watermark, and nobody waits."""

from types import SimpleNamespace

import pytest
from native.led import EPOCH, RECORDS, Led

from barnabas.api import k02_list_offsets as list_offsets
from barnabas.api.call import Call
from barnabas.errors import LeaderNotAvailable, OffsetNotAvailable
from barnabas.wire import request

LATEST, EARLIEST = -1, -2


@pytest.fixture(params=["os", "fsync"])
def led(make_broker, request):
    made = Led(make_broker(request.param))
    yield made
    made.fetches.stop()


def asked(led, time, version=7):
    """The error code and the offset for a time."""
    made = request(2)
    row = made.struct("topics.partitions")(partitionIndex=0, timestamp=time)
    topics = [made.struct("topics")(name="orders", partitions=[row])]
    replicas = SimpleNamespace(partition=led.table.partition)
    call = Call(SimpleNamespace(replicas=replicas), 2, version, None)
    [topic] = list_offsets.handle(made.cls(topics=topics), call).topics
    [found] = topic.partitions
    return found.errorCode, found.offset


def test_the_end_is_answered_at_once_while_followers_lack_records(led, monkeypatch):
    monkeypatch.setattr(list_offsets, "COMMIT_WAIT_MS", 0)  # a wait would be an error
    led.lead()
    led.append()
    assert asked(led, LATEST) == (0, 0)
    assert asked(led, 0) == (0, -1)
    for follower in (2, 3):
        led.fetch(follower, RECORDS)
    assert asked(led, LATEST) == (0, led.high_watermark)


def test_a_new_leader_that_does_not_know_the_end_says_so(led):
    """KIP-207. The former leader may have told clients of a later end."""
    led.lead()
    led.append()
    log = led.log
    assert log.leader_epochs() == [(EPOCH, 0)]
    log.assign_epoch(EPOCH + 1)
    led.table.set_leader(
        "orders", 0, leader_id=1, leader_epoch=EPOCH + 1, replicas=(1, 2, 3), isr=(1, 2, 3)
    )
    assert led.high_watermark < log.end_offset
    assert asked(led, EARLIEST) == (0, 0)
    assert asked(led, LATEST, version=5)[0] == OffsetNotAvailable.code
    assert asked(led, LATEST, version=4)[0] == LeaderNotAvailable.code
    assert asked(led, 0)[0] == OffsetNotAvailable.code
    for follower in (2, 3):
        led.fetch(follower, RECORDS, epoch=EPOCH + 1)
    assert asked(led, LATEST) == (0, RECORDS)
