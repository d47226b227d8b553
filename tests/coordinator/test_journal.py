"""The journal of a coordinator: order, batching, durability, loading, fencing, limits."""

import threading
import time

import pytest

import barnabas.coordinator.journal
from barnabas import Broker
from barnabas.cext.log.log_handle import TRUSTED
from barnabas.cext.record.records import Record
from barnabas.controller.internal_topics import internal_topic
from barnabas.coordinator.journal import CoordinatorLog, id_hash
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    MessageTooLarge,
    NotCoordinator,
)
from barnabas.wire.batches import decode_batches, encode_batch
from barnabas.wire.internal import CONSUMER_OFFSETS, TRANSACTION_STATE

PATIENCE_S = 30


class Replayed:
    """A coordinator that records its calls. `gate` delays the replay."""

    def __init__(self):
        self.records = []
        self.ready = []
        self.gone = []
        self.began = False
        self.gate = threading.Event()
        self.gate.set()
        self.all_ready = threading.Event()
        self.expected = 50

    def replay(self, partition, batch):
        self.began = True
        assert self.gate.wait(PATIENCE_S)
        self.records += [(partition, record.key, record.value) for record in batch.records]

    def loaded(self, partition):
        self.ready.append(partition)
        if len(self.ready) == self.expected:
            self.all_ready.set()

    def unloaded(self, partition):
        self.gone.append(partition)


@pytest.fixture
def broker(tmp_path):
    with Broker({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}) as started:
        yield started


@pytest.fixture
def journal(broker):
    opened = log_of(broker)
    yield opened
    opened.stop()


def log_of(broker, replayed=None, topic="__test_state", **options):
    """A journal in `topic`, which has the settings of __transaction_state."""
    node = broker.node

    def create():
        asked = internal_topic(TRANSACTION_STATE, node.dynamic, is_cluster=False)
        node.serving.administration.topics.create(type(asked)(**{**_fields(asked), "name": topic}))

    log = CoordinatorLog(
        topic,
        node_id=node.node_id,
        replicas=node.loaded.replicas,
        create=create,
        wall_ms=node.system.wall_ms,
        commit_timeout_ms=lambda: 5000,
        **options,
    )
    log.attach(replayed or Replayed())
    node.loaded.replicas.on_applied.append(log.apply)
    log.apply(node.cluster())
    return log


def _fields(topic):
    return {name: getattr(topic, name) for name in type(topic).__slots__}


def append(log, partition, *entries):
    """Appends and waits. Returns the error."""
    finished, told = threading.Event(), []
    log.append(partition, entries, lambda error: (told.append(error), finished.set()))
    assert finished.wait(PATIENCE_S)
    return told[0]


def batches_in(broker, partition, topic="__test_state"):
    handle = broker.node.loaded.replicas.log(topic, partition)
    data = handle.read(0, 1 << 24)
    return list(decode_batches(data, size_max=1 << 24))


@pytest.mark.parametrize(
    ("name", "hashed"),
    # Java's "...".hashCode(), made positive; the last one is Integer.MIN_VALUE.
    [
        ("", 0),
        ("a", 97),
        ("console-consumer-1", 35782224),
        ("grüppe", 1233264812),
        ("\U0001f600", 1772899),
        ("polygenelubricants", 0),
    ],
)
def test_ids_hash_as_java_does(name, hashed):
    assert id_hash(name) == hashed


def test_the_topic_is_made_on_first_use_and_compacted(broker, journal):
    assert (journal.partition_count, journal.partition_of("g")) == (0, -1)
    with pytest.raises(NotCoordinator):
        journal.check(0)
    journal.ensure()
    assert journal.partition_count == 50
    assert journal.partition_of("g") == id_hash("g") % 50
    assert journal.led_partitions() == dict.fromkeys(range(50), True)
    config = broker.node.loaded.replicas.topic_config("__test_state")
    assert config.names("cleanup.policy") == ("compact",)
    assert config.integer("min.insync.replicas") == 1


def test_an_append_is_reported_when_it_is_durable(broker, journal):
    journal.ensure()
    handle = broker.node.loaded.replicas.log("__test_state", 3)
    told = []
    finished = threading.Event()

    def done(error):
        told.append((error, handle.flushed_offset))
        finished.set()

    journal.append(3, [(b"k", b"v"), (b"gone", None)], done)
    assert finished.wait(PATIENCE_S)
    assert told == [(None, 2)]
    (batch,) = batches_in(broker, 3)
    assert [(r.key, r.value) for r in batch.records] == [(b"k", b"v"), (b"gone", None)]
    assert (batch.leader_epoch, batch.producer_id) == (0, -1)


def test_many_appends_share_batches_and_keep_their_order(broker, journal):
    journal.ensure()
    count, order, finished = 2000, [], threading.Event()

    def done(at):
        def tell(error):
            assert error is None
            order.append(at)
            if len(order) == count:
                finished.set()

        return tell

    for at in range(count):
        journal.append(at % 2, [(b"%d" % at, b"v")], done(at))
    assert finished.wait(PATIENCE_S)
    for partition in (0, 1):
        mine = [at for at in order if at % 2 == partition]
        assert mine == sorted(mine)
        stored = [int(r.key) for batch in batches_in(broker, partition) for r in batch.records]
        assert stored == mine
    assert journal.appended_records == count
    assert journal.appended_batches < count / 4


def test_what_was_written_is_replayed_after_a_restart(tmp_path):
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(settings) as broker:
        log = log_of(broker)
        log.ensure()
        assert append(log, 4, (b"k", b"1")) is None
        assert append(log, 4, (b"k", b"2")) is None
        assert append(log, 5, (b"x", None)) is None
        log.stop()
    with Broker(settings) as broker:
        replayed = Replayed()
        replayed.gate.clear()
        log = log_of(broker, replayed)
        with pytest.raises(CoordinatorLoadInProgress):
            log.check(4)
        with pytest.raises(CoordinatorLoadInProgress):
            append(log, 5, (b"early", b""))
        log.check(0)  # empty: ready at once
        replayed.gate.set()
        assert replayed.all_ready.wait(PATIENCE_S)
        assert replayed.records == [(4, b"k", b"1"), (4, b"k", b"2"), (5, b"x", None)]
        assert append(log, 4, (b"k", b"3")) is None
        log.stop()


def test_what_comes_to_a_partition_while_it_is_loaded_is_replayed_too(tmp_path):
    """For example markers from a transaction coordinator that has loaded earlier."""
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(settings) as broker:
        log = log_of(broker)
        log.ensure()
        assert append(log, 4, (b"k", b"1")) is None
        log.stop()
    with Broker(settings) as broker:
        replayed = Replayed()
        replayed.gate.clear()
        log = log_of(broker, replayed)
        handle = broker.node.loaded.replicas.partition("__test_state", 4)
        deadline = time.monotonic() + PATIENCE_S
        while not replayed.began:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        late = encode_batch([Record(b"2", b"k", timestamp=1)])
        handle.log.append(bytearray(late), leader_epoch=handle.leader_epoch, verification=TRUSTED)
        handle.appended(wanted=True)
        replayed.gate.set()
        assert replayed.all_ready.wait(PATIENCE_S)
        assert replayed.records == [(4, b"k", b"1"), (4, b"k", b"2")]
        log.stop()


def lead_with_a_follower(broker, index, *isr):
    """Gives a partition a second replica, which never fetches. `isr`: the other members."""
    node = broker.node
    epoch = node.loaded.replicas.partition("__test_state", index).leader_epoch
    node.loaded.table.set_leader(
        "__test_state", index, leader_id=node.node_id, leader_epoch=epoch,
        replicas=[node.node_id, 99], isr=[node.node_id, *isr],
    )  # fmt: skip


def test_a_partition_is_ready_when_what_it_has_loaded_is_committed(tmp_path):
    """A new leader answered from records that its followers lacked: when they were cut off later,
    partitions had records of a transaction that no coordinator knew, and no marker came."""
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(settings) as broker:
        log = log_of(broker)
        log.ensure()
        assert [append(log, index, (b"k", b"1")) for index in (4, 5)] == [None, None]
        log.stop()
    with Broker(settings) as broker:
        lead_with_a_follower(broker, 4, 99)
        handle = broker.node.loaded.replicas.partition("__test_state", 4)
        late = encode_batch([Record(b"2", b"k", timestamp=1)])
        handle.log.append(bytearray(late), leader_epoch=handle.leader_epoch, verification=TRUSTED)
        handle.appended(wanted=True)
        assert (handle.high_watermark, handle.log.end_offset) == (1, 2)
        replayed = Replayed()
        replayed.expected = 49
        log = log_of(broker, replayed, waits_for_commit=True)
        assert replayed.all_ready.wait(PATIENCE_S)  # 5 is loaded after 4
        assert replayed.records == [(4, b"k", b"1"), (4, b"k", b"2"), (5, b"k", b"1")]
        with pytest.raises(CoordinatorLoadInProgress):
            log.check(4)
        assert log.led_partitions() == {index: index != 4 for index in range(50)}
        replayed.all_ready.clear()
        replayed.expected = 50
        lead_with_a_follower(broker, 4)
        assert replayed.all_ready.wait(PATIENCE_S)
        assert replayed.ready[-1] == 4
        log.stop()


@pytest.mark.parametrize(
    ("places", "lost"),
    [
        ([(0, 70)], [0]),
        ([(1, 70), (2, 61)], [1, 2]),
        ([(5, 70)], [5]),
        ([(1, 8)], [1, 2]),  # its length: the batches after it in the segment cannot be found
    ],
    ids=["first", "neighbours", "last", "length"],
)
def test_a_flipped_bit_costs_its_batch_and_the_rest_is_loaded(tmp_path, caplog, places, lost):
    """F49: clients got COORDINATOR_LOAD_IN_PROGRESS without end, and the log a traceback."""
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(settings) as broker:
        log = log_of(broker)
        log.ensure()
        handle = broker.node.loaded.replicas.log("__test_state", 4)
        for at in range(6):  # three in a sealed segment, three in the active one
            assert append(log, 4, (b"k%d" % at, b"value")) is None
            if at == 2:
                handle.roll()
        log.stop()
    folder = tmp_path / "__test_state-4"
    for batch, byte in places:
        path = folder / f"{3 * (batch // 3):020d}.log"
        data = bytearray(path.read_bytes())
        data[len(data) // 3 * (batch % 3) + byte] ^= 4
        path.write_bytes(data)
    with Broker(settings) as broker:
        replayed = Replayed()
        log = log_of(broker, replayed)
        assert replayed.all_ready.wait(PATIENCE_S), "it loads for ever"
        assert [key for _, key, _ in replayed.records] == [
            b"k%d" % at for at in range(6) if at not in lost
        ]
        assert append(log, 4, (b"k6", b"value")) is None
        log.stop()
    said = [row for row in caplog.records if row.name == "barnabas.coordinator"]
    assert len(said) == len({batch for batch, _ in places})
    batch, _ = places[0]
    path = folder / f"{3 * (batch // 3):020d}.log"
    at = path.stat().st_size // 3 * (batch % 3) if batch < 3 else 2 * (len(data) // 3)
    assert f"the batch at byte {at} of {path} is damaged" in said[0].getMessage()
    assert "put a good copy of the file in its place" in said[0].getMessage()
    assert all(row.levelname == "ERROR" and row.exc_info is None for row in said)


def test_a_partition_that_goes_is_forgotten_and_its_appends_refused(broker):
    replayed = Replayed()
    log = log_of(broker, replayed)
    log.ensure()
    assert append(log, 1, (b"k", b"v")) is None
    broker.node.serving.administration.deletion.delete(["__test_state"])
    assert sorted(replayed.gone) == list(range(50))
    with pytest.raises(NotCoordinator):
        append(log, 1, (b"k", b"v"))
    log.stop()


def test_a_failing_disk_is_reported_and_nothing_is_called_durable(broker, journal):
    journal.ensure()
    system = broker.node.system
    rule = system.fault("fdatasync", "error", errno=5, count=1000, path_contains="__test_state-2")
    error = append(journal, 2, (b"k", b"v"))
    assert system.fired(rule) > 0
    system.clear_faults()
    assert isinstance(error, NotCoordinator)
    assert append(journal, 3, (b"k", b"v")) is None


def test_limits(broker, journal, monkeypatch):
    journal.ensure()
    with pytest.raises(MessageTooLarge):
        append(journal, 0, (b"k", bytes(2 << 20)))
    assert append(journal, 0, (b"k", bytes(900_000))) is None
    monkeypatch.setattr(barnabas.coordinator.journal, "PENDING_BYTES_MAX", 1000)
    with pytest.raises(CoordinatorNotAvailable):
        append(journal, 0, (b"k", bytes(2000)))


def test_a_done_that_fails_does_not_stop_the_others(broker, journal, caplog):
    journal.ensure()
    journal.append(0, [(b"a", b"1")], lambda _: 1 / 0)
    assert append(journal, 0, (b"b", b"2")) is None
    assert "ZeroDivisionError" in caplog.text


def test_after_the_stop_nothing_is_taken_and_what_waited_was_written(broker):
    log = log_of(broker)
    log.ensure()
    told = []
    for at in range(100):
        log.append(at % 50, [(b"k%d" % at, b"v")], told.append)
    log.stop()
    assert told == [None] * 100
    with pytest.raises(CoordinatorNotAvailable):
        log.append(0, [(b"k", b"v")], told.append)


def test_consumer_offsets_has_its_own_settings(broker):
    dynamic = broker.node.dynamic
    asked = internal_topic(CONSUMER_OFFSETS, dynamic, is_cluster=False)
    assert (asked.partition_count, asked.replication_factor) == (50, 1)
    assert asked.configs["segment.bytes"] == "104857600"
    assert internal_topic(CONSUMER_OFFSETS, dynamic, is_cluster=True).replication_factor == 3
    assert internal_topic("t", dynamic, is_cluster=True) is None
