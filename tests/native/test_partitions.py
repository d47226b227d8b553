"""The partition table compared with a dict; its limits and memory; readers during changes."""

import gc
import threading
import time
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.produce import batch, partitions_of, produce_answer, produce_frame

from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition.partitions import PartitionTable


def table_of(durability: str = "os", **options) -> PartitionTable:
    return PartitionTable(SystemCalls(), Epochs(), node_id=1, durability=durability, **options)


NAMES = [f"t{i}" for i in range(40)] + ["a", "a-b", "ä" * 100, "x" * 249]
STEP = st.tuples(
    st.sampled_from(["topic", "gone", "partition", "less"]),
    st.sampled_from(NAMES),
    st.integers(0, 9),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=120))
def test_against_a_dict(steps):
    table = table_of()
    model: dict[str, tuple[bytes, set[int]]] = {}
    for what, name, index in steps:
        if what == "topic" and name not in model:
            model[name] = (uuid.uuid4().bytes, set())
            table.add_topic(name, model[name][0])
        elif what == "gone" and name in model:
            del model[name]
            table.remove_topic(name)
        elif what == "partition" and name in model and index not in model[name][1]:
            model[name][1].add(index)
            table.add_partition(name, index, None)
        elif what == "less" and name in model and index in model[name][1]:
            model[name][1].remove(index)
            table.remove_partition(name, index)
    assert sorted(table.topics()) == sorted((n, i, len(p)) for n, (i, p) in model.items())
    for name in NAMES:
        topic_id, indexes = model.get(name, (None, set()))
        for index in (-1, *range(12)):
            handle = table.partition(name, index)
            assert (handle is not None) == (index in indexes)
            if handle is not None:
                assert (handle.topic, handle.topic_id, handle.index) == (name, topic_id, index)
                assert table.find(topic_id, index).generation == handle.generation


def test_refusals():
    table = table_of()
    topic_id = uuid.uuid4().bytes
    table.add_topic("orders", topic_id)
    table.add_partition("orders", 0, None)
    for call in (
        lambda: table.add_topic("orders", uuid.uuid4().bytes),
        lambda: table.add_topic("other", topic_id),
        lambda: table.add_topic("other", bytes(16)),
        lambda: table.add_topic("other", b"short"),
        lambda: table.add_topic("", uuid.uuid4().bytes),
        lambda: table.add_partition("orders", 0, None),
        lambda: table.add_partition("orders", -1, None),
        lambda: table.add_partition("orders", 1_000_000, None),
        lambda: table.set_policy("orders", codec=7),
        lambda: PartitionTable(SystemCalls(), Epochs(), node_id=1, durability="none"),
    ):
        with pytest.raises(ValueError):
            call()
    for call in (
        lambda: table.remove_topic("other"),
        lambda: table.set_leader("orders", 3, leader_id=1, leader_epoch=1),
        lambda: table.add_partition("other", 0, None),
    ):
        with pytest.raises(KeyError):
            call()
    with pytest.raises(TypeError):
        table.set_policy("orders", colour=1)


def test_policy_is_replaced_whole():
    table = table_of()
    table.add_topic("orders", uuid.uuid4().bytes, message_bytes_max=10)
    table.set_policy("orders", append_time=True)
    policy = table.policy("orders")
    assert (policy["message_bytes_max"], policy["append_time"]) == (10, True)
    assert policy["timestamp_after_max_ms"] == 3_600_000


def test_partition_without_a_log_is_a_storage_error(broker):
    broker.table.add_topic("orders", uuid.uuid4().bytes)
    handle = broker.table.add_partition("orders", 0, None)
    assert handle.offline
    assert broker.one("orders", 0, batch()).errorCode == 56
    assert not handle.commit(10)


def test_offline_partition(broker):
    handle = broker.topic("orders")
    assert broker.one("orders", 0, batch()).errorCode == 0
    broker.table.set_offline("orders", 0)
    assert broker.one("orders", 0, batch()).errorCode == 56
    assert handle.offline


def test_generations_are_never_the_same(broker):
    handle = broker.topic("orders")
    broker.table.remove_partition("orders", 0)
    again = broker.table.add_partition("orders", 0, None)
    assert again.generation > handle.generation
    assert not handle.alive
    assert again.alive


def test_20000_partitions_take_little_memory():
    table = table_of()
    began = time.monotonic()
    for i in range(200):
        table.add_topic(f"topic-{i}", uuid.uuid4().bytes)
        for index in range(100):
            table.add_partition(f"topic-{i}", index, None)
    assert table.memory_bytes() / 20_000 < 450
    for i in range(200):
        assert table.partition(f"topic-{i}", 99).index == 99
        table.remove_topic(f"topic-{i}")
    assert table.topics() == []
    assert time.monotonic() - began < 20


def test_lookups_beside_changes(make_broker):
    """Produce requests while topics are created and deleted: the error is 0 or 3, and nothing
    crashes."""
    broker = make_broker("os")
    broker.topic("steady")
    stop = threading.Event()
    seen: set[int] = set()
    failures = []

    def produce() -> None:
        parts = [("steady", 0, batch(1)), ("fleeting", 0, batch(1))]
        frame = produce_frame(parts, 9)
        try:
            while not stop.is_set():
                broker.native.repeat(frame, 50)
                answer = partitions_of(produce_answer(broker.native.handle_frame(frame)))
                assert answer[0].errorCode == 0
                seen.add(answer[1].errorCode)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=produce) for _ in range(3)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 3
    count = 0
    while time.monotonic() < until:
        broker.topic("fleeting")
        broker.table.set_policy("steady", timestamp_after_max_ms=10**15)
        time.sleep(0.002)
        broker.table.remove_topic("fleeting")
        for i in range(3):
            broker.table.add_topic(f"other-{i}", uuid.uuid4().bytes)
        for i in range(3):
            broker.table.remove_topic(f"other-{i}")
        count += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert count > 3
    assert seen == {0, 3}
    gc.collect()


def test_waiting_threads_beside_flushes(make_broker):
    """acks=all from several threads: each is answered in time, and only when its records are
    visible."""
    broker = make_broker("fsync", 2)
    broker.topic("orders", partitions=3)
    failures = []

    def produce(seed: int) -> None:
        try:
            for i in range(150):
                got = broker.one("orders", (seed + i) % 3, batch(1), timeout_ms=20_000)
                assert got.errorCode == 0
                handle = broker.table.partition("orders", (seed + i) % 3)
                assert handle.high_watermark > got.baseOffset
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=produce, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_closed_log_is_refused(broker):
    broker.topic("orders")
    log = broker.open_log("orders", 1)
    log.close()
    with pytest.raises(ValueError, match="the log of orders-1 is closed"):
        broker.table.add_partition("orders", 1, log, directory=broker.directory)
    assert broker.table.partition("orders", 1) is None
