"""Settings of logs: of the broker, of a topic, at the start and changed while the broker runs."""

import threading
import time
from contextlib import contextmanager

import pytest
from api.admin_calls import BROKER, DELETE, SET, TOPIC, admin_on
from durability.test_flush_settings import reaches
from node.test_settings import batches, create, files, produce

from barnabas.storage.log_manager import LogManager

HOUR_MS = 3_600_000
OK, TOO_LARGE, INVALID_TIMESTAMP, BAD_FACTOR = 0, 10, 32, 38


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A broker whose settings each test changes and restores."""
    path = tmp_path_factory.mktemp("live")
    with admin_on(
        path, node_id="1", log_durability="os", log_flush_scheduler_interval_ms="20"
    ) as a:
        yield a


@contextmanager
def altered(admin, **settings):
    names = {name.replace("_", "."): value for name, value in settings.items()}
    wanted = [(name, SET, str(value)) for name, value in names.items()]
    assert admin.alter(BROKER, "", *wanted) == (OK, None)
    yield
    assert admin.alter(BROKER, "", *[(name, DELETE, None) for name in names]) == (OK, None)


def wire_of(admin):
    return admin._wire


def now_ms():
    return int(time.time() * 1000)


def code(admin, topic, *values, **how):
    return produce(wire_of(admin), topic, *(values or (b"v",)), **how).errorCode


def count(admin, topic):
    return len(files(admin.broker, topic))


def start_offset(admin, topic):
    return admin.broker.node.loaded.logs.get(topic, 0).handle.start_offset


def test_compression_type_live(shared):
    create(wire_of(shared), "compression")
    with altered(shared, compression_type="lz4"):
        assert code(shared, "compression", b"v" * 99, codec=1) == OK
    assert code(shared, "compression", b"v" * 99, codec=1) == OK
    assert [batch.codec for batch in batches(wire_of(shared), "compression")] == [3, 1]


def test_message_timestamp_type_live(shared):
    create(wire_of(shared), "stamps")
    create(wire_of(shared), "own-stamps", {"message.timestamp.type": "CreateTime"})
    with altered(shared, log_message_timestamp_type="LogAppendTime"):
        assert produce(wire_of(shared), "stamps", b"v").logAppendTimeMs > 0
        assert produce(wire_of(shared), "own-stamps", b"v").logAppendTimeMs == -1
    assert produce(wire_of(shared), "stamps", b"v").logAppendTimeMs == -1


@pytest.mark.parametrize(
    ("name", "of_topic", "off_ms"),
    [
        ("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms", -100_000),
        ("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms", 100_000),
    ],
)
def test_message_timestamp_bounds_live(shared, name, of_topic, off_ms):
    create(wire_of(shared), f"all-{name}")
    create(wire_of(shared), f"own-{name}", {of_topic: 200_000})
    with altered(shared, **{name: 50_000}):
        assert code(shared, f"all-{name}", timestamp=now_ms() + off_ms) == INVALID_TIMESTAMP
        assert code(shared, f"own-{name}", timestamp=now_ms() + off_ms) == OK
    assert code(shared, f"all-{name}", timestamp=now_ms() + off_ms) == OK
    assert code(shared, f"own-{name}", timestamp=now_ms() + 3 * off_ms) == INVALID_TIMESTAMP


def test_message_timestamp_difference_max_ms(tmp_path):
    with admin_on(tmp_path, log_message_timestamp_difference_max_ms="50000") as a:
        a.create("all")
        own = {"message.timestamp.difference.max.ms": "200000"}
        create(wire_of(a), "own", own)
        for off_ms in (-100_000, 100_000):
            assert code(a, "all", timestamp=now_ms() + off_ms) == INVALID_TIMESTAMP, (
                "log.message.timestamp.difference.max.ms"
            )
            assert code(a, "own", timestamp=now_ms() + off_ms) == OK
            assert code(a, "own", timestamp=now_ms() + 3 * off_ms) == INVALID_TIMESTAMP


def test_segment_bytes_live(shared):
    create(wire_of(shared), "sized")
    create(wire_of(shared), "own-size", {"segment.bytes": 1 << 20})
    with altered(shared, log_segment_bytes=2000):
        for _ in range(6):
            assert code(shared, "sized", bytes(900)) == code(shared, "own-size", bytes(900)) == OK
        assert count(shared, "sized") == 3, "log.segment.bytes"
    for _ in range(6):
        assert code(shared, "sized", bytes(900)) == OK
    assert (count(shared, "sized"), count(shared, "own-size")) == (3, 1)


def test_indexes_live(shared):
    with altered(shared, log_index_size_max_bytes=4096, log_index_interval_bytes=0):
        create(wire_of(shared), "indexed")
        for _ in range(9):
            assert code(shared, "indexed", bytes(100)) == OK
        [index] = files(shared.broker, "indexed", ".index")
        assert index.stat().st_size == 4096, "log.index.size.max.bytes"
        assert len(index.read_bytes().rstrip(b"\0")) > 50, "log.index.interval.bytes"


def test_roll_ms_live(shared):
    create(wire_of(shared), "rolled")
    with altered(shared, log_roll_ms=1000):
        began = now_ms()
        for late_ms in (-5000, -4900, -1000):
            assert code(shared, "rolled", timestamp=began + late_ms) == OK
        assert count(shared, "rolled") == 2, "log.roll.ms"
    assert code(shared, "rolled", timestamp=now_ms() + 1000) == OK
    assert count(shared, "rolled") == 2


@pytest.mark.parametrize(
    ("settings", "segments"),
    [
        ({"log.roll.hours": "1"}, 2),
        ({"log.roll.hours": "3"}, 1),
        ({"log.roll.hours": "1", "log.roll.ms": str(3 * HOUR_MS)}, 1),
    ],
)
def test_roll_hours_and_their_precedence(tmp_path, settings, segments):
    with admin_on(tmp_path, **settings) as a:
        a.create("t")
        for late_ms in (2 * HOUR_MS, 0):
            assert code(a, "t", timestamp=now_ms() - late_ms) == OK
        assert count(a, "t") == segments


def test_roll_jitter_spreads_the_rolls(shared):
    """Half of segment.ms has passed: some of the 40 logs have rolled, some have not."""

    def rolled(topic):
        for partition in range(40):
            for late_ms in (50_000, 0):
                when = now_ms() - late_ms
                assert code(shared, topic, timestamp=when, partition=partition) == OK
        found = [shared.broker.node.loaded.logs.get(topic, n).handle for n in range(40)]
        return sum(len(handle.segments()) - 1 for handle in found)

    create(wire_of(shared), "even", {"segment.ms": 100_000}, partitions=40)
    settings = {"segment.ms": 100_000, "segment.jitter.ms": 99_999}
    create(wire_of(shared), "spread", settings, partitions=40)
    assert rolled("even") == 0
    assert 0 < rolled("spread") < 40, "segment.jitter.ms"
    with altered(shared, log_roll_ms=100_000, log_roll_jitter_ms=99_999):
        create(wire_of(shared), "spread-too", partitions=40)
        assert 0 < rolled("spread-too") < 40, "log.roll.jitter.ms"


def test_roll_jitter_hours(tmp_path):
    with admin_on(tmp_path, log_roll_hours="1000", log_roll_jitter_hours="1000") as a:
        a.create("t", partitions=40)
        for partition in range(40):
            for late_ms in (500 * HOUR_MS, 0):
                assert code(a, "t", timestamp=now_ms() - late_ms, partition=partition) == OK
        found = [a.broker.node.loaded.logs.get("t", n).handle for n in range(40)]
        rolled = sum(len(handle.segments()) - 1 for handle in found)
    assert 0 < rolled < 40, "log.roll.jitter.hours"


def test_preallocate(shared):
    create(wire_of(shared), "plain", {"segment.bytes": 50_000})
    create(wire_of(shared), "filled", {"segment.bytes": 50_000, "preallocate": "true"})
    with altered(shared, log_preallocate="true"):
        create(wire_of(shared), "filled-too", {"segment.bytes": 50_000})
        for name, size in (("plain", 0), ("filled", 50_000), ("filled-too", 50_000)):
            assert files(shared.broker, name)[0].stat().st_size == size, "log.preallocate"


def three_old_segments(admin, topic, late_ms=2 * HOUR_MS):
    create(wire_of(admin), topic, {"segment.bytes": 1024})
    for _ in range(3):
        assert code(admin, topic, bytes(700), timestamp=now_ms() - late_ms) == OK


def test_retention_live(shared):
    three_old_segments(shared, "kept")
    shared.broker.node.running.retention.run()
    assert start_offset(shared, "kept") == 0
    with altered(shared, log_retention_bytes=1000):
        shared.broker.node.running.retention.run()
        assert start_offset(shared, "kept") == 1, "log.retention.bytes"
    with altered(shared, log_retention_ms=HOUR_MS):
        shared.broker.node.running.retention.run()
        assert start_offset(shared, "kept") == 3, "log.retention.ms"


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        ({"log.retention.hours": "1"}, 3),
        ({"log.retention.minutes": "60"}, 3),
        ({"log.retention.hours": "1", "log.retention.minutes": "180"}, 0),
        ({"log.retention.minutes": "60", "log.retention.ms": str(3 * HOUR_MS)}, 0),
        ({"log.retention.hours": "1", "log.retention.ms": "-1"}, 0),
    ],
)
def test_retention_by_time_and_which_unit_goes_before(tmp_path, settings, start):
    with admin_on(tmp_path, **settings) as a:
        three_old_segments(a, "t")
        a.broker.node.running.retention.run()
        assert start_offset(a, "t") == start


def test_segment_delete_delay_live(shared):
    three_old_segments(shared, "doomed")
    shared.alter(TOPIC, "doomed", ("retention.ms", SET, "1000"))
    with altered(shared, log_segment_delete_delay_ms=10_000_000):
        shared.broker.node.running.retention.run()
        assert len(files(shared.broker, "doomed", ".deleted")) > 0
    create(wire_of(shared), "doomed-soon", {"segment.bytes": 1024, "retention.ms": 1000})
    with altered(shared, log_segment_delete_delay_ms=0):
        for _ in range(3):
            stamp = now_ms() - HOUR_MS
            assert code(shared, "doomed-soon", bytes(700), timestamp=stamp) == OK
        shared.broker.node.running.retention.run()
        assert start_offset(shared, "doomed-soon") == 3
        assert files(shared.broker, "doomed-soon", ".deleted") == [], "log.segment.delete.delay.ms"
    assert len(files(shared.broker, "doomed", ".deleted")) > 0


def test_flush_settings_live(shared):
    create(wire_of(shared), "flushed")
    for _ in range(3):
        assert code(shared, "flushed") == OK
    assert shared.broker.node.loaded.logs.get("flushed", 0).handle.flushed_offset == 0
    with altered(shared, log_flush_interval_messages=2):
        assert code(shared, "flushed") == OK
        assert reaches(shared.broker, 4, topic="flushed"), "log.flush.interval.messages"
    assert code(shared, "flushed") == OK
    with altered(shared, log_flush_interval_ms=30):
        assert reaches(shared.broker, 5, topic="flushed"), "log.flush.interval.ms"


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_max_decompressed_bytes(codec, small):
    assert code(small, "t", bytes(4000), codec=codec) == OK
    assert code(small, "t", bytes(6000), codec=codec) == TOO_LARGE, "max.decompressed.bytes"
    assert code(small, "own", bytes(3000), codec=codec) == TOO_LARGE
    with altered(small, max_decompressed_message_bytes=3000):
        assert code(small, "t", bytes(4000), codec=codec) == TOO_LARGE
        assert code(small, "t", bytes(2000), codec=codec) == OK
    assert code(small, "t", bytes(4000), codec=codec) == OK, "max.decompressed.message.bytes"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small")
    with admin_on(path, max_decompressed_bytes="5000") as a:
        create(wire_of(a), "t")
        create(wire_of(a), "own", {"max.decompressed.message.bytes": 2000})
        yield a


def appears(path, seconds=5.0):
    end = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return path.exists()


def test_checkpoint_intervals(tmp_path):
    checkpoints = {
        "log.flush.offset.checkpoint.interval.ms": "recovery-point-offset-checkpoint",
        "replica.high.watermark.checkpoint.interval.ms": "replication-offset-checkpoint",
        "log.flush.start.offset.checkpoint.interval.ms": "log-start-offset-checkpoint",
    }
    with admin_on(tmp_path / "often", **dict.fromkeys(checkpoints, "30")) as often:
        with admin_on(tmp_path / "seldom", **dict.fromkeys(checkpoints, "600000")) as seldom:
            for admin in (often, seldom):
                for name in checkpoints.values():
                    (admin.data / name).unlink(missing_ok=True)
            for setting, name in checkpoints.items():
                assert appears(often.data / name), setting
                assert not (seldom.data / name).exists(), setting


def test_retention_check_interval(tmp_path):
    def goes(admin, seconds):
        end = time.monotonic() + seconds
        while start_offset(admin, "t") < 3 and time.monotonic() < end:
            time.sleep(0.01)
        return start_offset(admin, "t") == 3

    often = {"log.retention.check.interval.ms": "30", "log.initial.task.delay.ms": "1"}
    hour = {"log.retention.hours": "1"}
    with admin_on(tmp_path / "1", **often, **hour) as a:
        three_old_segments(a, "t")
        assert goes(a, 60)
    with admin_on(tmp_path / "2", **often | {"log.initial.task.delay.ms": "60000"}, **hour) as a:
        three_old_segments(a, "t")
        assert not goes(a, 0.3), "log.initial.task.delay.ms"
    seldom = {"log.retention.check.interval.ms": "600000"}
    with admin_on(tmp_path / "3", **often | seldom, **hour) as a:
        time.sleep(0.2)  # the first check is due
        assert a.broker.node.background.settle(60)
        three_old_segments(a, "t")
        assert not goes(a, 0.3), "log.retention.check.interval.ms"


def test_log_dir_is_the_single_form_of_log_dirs(tmp_path):
    from barnabas import Broker

    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(listeners | {"log.dir": str(tmp_path / "one")}):
        assert (tmp_path / "one" / "meta.properties").exists(), "log.dir"
    both = {"log.dir": str(tmp_path / "three"), "log.dirs": str(tmp_path / "two")}
    with Broker(listeners | both):
        assert (tmp_path / "two" / "meta.properties").exists()
        assert not (tmp_path / "three").exists()


def test_default_replication_factor(tmp_path):
    with admin_on(tmp_path, default_replication_factor="3") as a:
        topic = {"name": "t", "numPartitions": 1, "replicationFactor": -1}
        topic |= {"assignments": [], "configs": []}
        answer = a.call(19, 5, topics=[topic], timeoutMs=9000, validateOnly=False)
        assert answer.topics[0].errorCode == BAD_FACTOR, "default.replication.factor"
        a.create("one")


def test_producer_id_expiration_check_interval(tmp_path):
    from node.test_idempotence import create_topic, send

    def known(admin):
        return len(admin.broker.node.loaded.logs.get("t", 0).handle.producers())

    settings = {"producer.id.expiration.ms": "50"}
    name = "producer.id.expiration.check.interval.ms"
    for interval, left in (("30", 0), ("600000", 1)):
        with admin_on(tmp_path / interval, **settings | {name: interval}) as a:
            create_topic(a.broker.bootstrap_servers, "t")
            assert send(a.broker, 9, 0) == (0, 0)
            a.broker.clock.advance(seconds=1)
            assert known(a) == left, name


def test_producer_id_expiration_ms_live(tmp_path):
    from node.test_idempotence import create_topic, send

    settings = {"producer.id.expiration.check.interval.ms": "30"}
    with admin_on(tmp_path, **settings) as a:
        create_topic(a.broker.bootstrap_servers, "t")
        assert send(a.broker, 9, 0) == (0, 0)
        handle = a.broker.node.loaded.logs.get("t", 0).handle
        a.broker.clock.advance(seconds=1)
        assert len(handle.producers()) == 1
        with altered(a, producer_id_expiration_ms=50):
            a.broker.clock.advance(seconds=1)
            assert not handle.producers(), "producer.id.expiration.ms"


def test_num_recovery_threads_per_data_dir(tmp_path, monkeypatch):
    """After an unclean stop, so many logs are opened at the same time in each directory."""
    name = "num.recovery.threads.per.data.dir"
    with admin_on(tmp_path, **{name: "3"}) as a:
        a.create("t", partitions=12)
        mark = a.data / ".kafka_cleanshutdown"
        assert a.alter(BROKER, "", (name, SET, "7"))[0] == 42
    opened = LogManager._open_found
    lock = threading.Lock()
    at_once = [0]
    seen = []

    def slow(*given):
        with lock:
            at_once[0] += 1
            seen.append(at_once[0])
        time.sleep(0.05)
        with lock:
            at_once[0] -= 1
        return opened(*given)

    monkeypatch.setattr(LogManager, "_open_found", slow)
    for most, then in ((3, "5"), (5, "4")):  # the altered value applies at the next start
        mark.unlink()
        seen.clear()
        with admin_on(tmp_path, **{name: "3"}) as a:
            assert (len(seen), max(seen)) == (12, most)
            assert a.alter(BROKER, "", (name, SET, then)) == (OK, None)
