"""A broker is killed before a system call of a run that appends, rolls, compacts, deletes and
commits. After the restart everything that was acknowledged is there, and no offset is given twice.

In CI one random call of each kind; in the long form each call of the run, one after the other.
"""

import random
import time
from dataclasses import dataclass, field

import pytest
from compat.support import Wire
from durability.armed_broker import KINDS, ArmedBroker
from long_form import LONG
from node.test_settings import batches, create, produce

from barnabas.client import ClientError, Cluster, delete_topics
from barnabas.client.admin import delete_records
from barnabas.client.groups import commit_offsets, committed_offsets
from barnabas.errors import KafkaError
from barnabas.wire import request

pytestmark = pytest.mark.takes(seconds=15)

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "0",
}
# A topic with small segments and indexes; the compacted one is cleaned during the run.
SMALL = {"segment.bytes": "4096", "index.interval.bytes": "512", "file.delete.delay.ms": "0"}
COMPACTED = SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
ROUNDS, KEYS, GROUP = 8, 3, "readers"
CLEANED_S = 30.0  # ten times as long as it takes beside other tests
ENDS = (OSError, KafkaError, ClientError)


@dataclass
class Acknowledged:
    """What a run has got an answer for, and what it asked for last."""

    plain: dict[int, bytes] = field(default_factory=dict)  # by offset
    kept: dict[bytes, bytes] = field(default_factory=dict)  # by key: the last value
    in_doubt: tuple[bytes, bytes] | None = None  # key and value of the next one
    created: tuple[str, ...] = ()
    start: int = 0  # of "plain", after records were deleted
    asked_start: int = 0
    position: int = -1
    asked_position: int = -1
    asked_deletion: bool = False
    deleted: bool = False
    is_whole: bool = False


def run(address: str, done: Acknowledged) -> None:
    """Raises one of ENDS when the broker dies."""
    quick = {"timeout_s": 3.0, "connect_timeout_s": 1.0, "answer_timeout_s": 10.0}
    with Wire(address) as wire, Cluster(address, **quick) as cluster:
        for topic, config in {"plain": SMALL, "kept": COMPACTED, "gone": SMALL}.items():
            create(wire, topic, config)
            done.created += (topic,)
        for number in range(ROUNDS):
            for _ in range(3):
                value = b"%d " % len(done.plain) + bytes(700)
                answer = produce(wire, "plain", value)
                assert answer.errorCode == 0
                done.plain[answer.baseOffset] = value
            key, value = b"k%d" % (number % KEYS), b"%d " % number + bytes(1500)
            done.in_doubt = key, value
            assert produce(wire, "kept", value, key=key).errorCode == 0
            done.kept[key], done.in_doubt = value, None
            assert produce(wire, "gone", bytes(1500)).errorCode == 0
            done.asked_position = number
            commit_offsets(cluster, GROUP, {"plain": {0: number}})
            done.position = number
            if number == ROUNDS // 2:
                done.asked_start = max(done.plain) // 2
                done.start = delete_records(cluster, "plain", {0: done.asked_start})[0]
        done.asked_deletion = True
        delete_topics(cluster, ["gone"])
        done.deleted = True
        until = time.monotonic() + CLEANED_S
        while time.monotonic() < until and batches(wire, "kept")[0].last_offset < KEYS:
            time.sleep(0.02)
        done.is_whole = True


def first_offset(wire, topic: str) -> int:
    ask = request(2)
    row = ask.struct("topics.partitions")(partitionIndex=0, timestamp=-2)
    topics = [ask.struct("topics")(name=topic, partitions=[row])]
    answer = wire.call(2, 5, ask.cls(replicaId=-1, topics=topics))
    return answer.topics[0].partitions[0].offset


def values_by_offset(wire) -> dict[int, bytes]:
    """Returns all records of "plain"."""
    found = {}
    at = first_offset(wire, "plain")
    while rows := batches(wire, "plain", offset=at, wait_ms=0):
        for batch in rows:
            for number, record in enumerate(batch.records):
                found[batch.base_offset + number] = record.value
        at = rows[-1].last_offset + 1
    return found


def check(address: str, done: Acknowledged) -> None:
    with Wire(address) as wire, Cluster(address) as cluster:
        topics = cluster.topics()
        assert set(done.created) - set(topics) <= ({"gone"} if done.asked_deletion else set())
        if done.plain:
            found = values_by_offset(wire)
            assert done.start <= min(found) <= done.asked_start
            for offset, value in done.plain.items():
                if offset >= min(found):
                    assert found[offset] == value, f"offset {offset} is lost"
            assert sorted(found) == list(range(min(found), max(found) + 1))
            answer = produce(wire, "plain", b"after")
            assert (answer.errorCode, answer.baseOffset) == (0, max(found) + 1)
        if done.kept:
            last = {}
            at = 0
            while rows := batches(wire, "kept", offset=at, wait_ms=0):
                for batch in rows:
                    last.update((row.key, row.value) for row in batch.records)
                at = rows[-1].last_offset + 1
            for key, value in done.kept.items():
                assert last.get(key) == value or (key, last.get(key)) == done.in_doubt, key
        if done.position >= 0:
            committed = committed_offsets(cluster, GROUP)["plain"][0]
            assert done.position <= committed <= done.asked_position
        if done.deleted:
            assert "gone" not in topics


def killed_run(folder, call: str, nth: int) -> bool:
    """Returns whether the broker was killed before its nth call. Then it starts again, and has what
    it acknowledged."""
    done = Acknowledged()
    broker = ArmedBroker(folder, SETTINGS)
    try:
        broker.kill_before(call, nth, str(folder))
        try:
            run(broker.address, done)
        except ENDS:
            assert broker.killed(10), "it answered with an error, or closed a connection"
        was_killed = broker.killed()
    finally:
        broker.end()
    assert was_killed or done.is_whole
    again = ArmedBroker(folder, SETTINGS)
    try:
        check(again.address, done)
    finally:
        again.end()
    return was_killed


def calls_of_a_run(folder) -> dict[str, int]:
    broker = ArmedBroker(folder, SETTINGS)
    try:
        broker.kill_before("open", 1_000_000, str(folder))  # starts the counters
        run(broker.address, Acknowledged())
        return broker.calls()
    finally:
        broker.end()


@pytest.mark.parametrize("call", KINDS)
def test_a_kill_before_a_call_loses_nothing(tmp_path, call):
    most = calls_of_a_run(tmp_path / "whole")[call]
    assert most > 0, f"a run makes no {call}"
    killed = []
    if LONG:
        killed = [nth for nth in range(1, most + 1) if killed_run(tmp_path / str(nth), call, nth)]
    else:
        nth = random.randint(1, most)
        while nth and not killed:
            if killed_run(tmp_path / str(nth), call, nth):
                killed.append(nth)
            nth //= 2  # the cleaner decides how many calls a run makes: this one made fewer
    assert killed, "the fault did not fire"
    print(call, most, "calls; killed before", killed)
