"""Scans of a running broker return the rows that Fetch and a consumer return, for every kind of
record."""

import json
import random
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer as ConfluentProducer
from scan.scan_rows import KEPT, consumed, produce, rows_of, scanned

from barnabas import Broker
from barnabas.client import Cluster, list_offsets
from barnabas.scan import (
    DamagedFiles,
    NoFilesHere,
    OutOfRange,
    TopicRecreated,
    scan,
    seal,
)

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SMALL = {**KEPT, "segment.bytes": 20_000, "index.interval.bytes": 1000}


def several(count, size=60):
    """Null keys, null and empty values, headers with and without values."""
    return [
        (
            None if i % 3 == 0 else b"k%d" % (i % 7),
            None if i % 11 == 5 else b"" if i % 11 == 6 else b"%05d" % i + b"v" * (i % size),
            [("a", b"%d" % i), ("empty", None)] if i % 5 == 0 else None,
        )
        for i in range(count)
    ]


@pytest.fixture
def broker():
    with Broker({"log.cleaner.backoff.ms": "50"}) as running:
        yield running


def all_three(broker, topic, **options):
    files = scanned(broker, topic, source="files", **options)
    assert scanned(broker, topic, source="wire", **options) == files
    return files


@pytest.mark.parametrize("codec", CODECS)
def test_rows_are_those_of_the_wire_and_of_a_consumer(session_broker, topic, codec):
    produce(session_broker, topic, several(700), codec=codec)
    found = all_three(session_broker, topic)
    assert len(found) == 700
    assert found == consumed(session_broker, topic)


@pytest.mark.topic(partitions=3, configs=SMALL)
def test_many_segments_and_partitions(session_broker, topic):
    for partition, codec in enumerate(["none", "zstd", "lz4"]):
        produce(session_broker, topic, several(1500), codec=codec, partition=partition)
    scan_ = scan(topic, bootstrap_servers=session_broker.bootstrap_servers, source="files")
    assert len(scan_.parts[0].directory.segments()) > 2
    found = all_three(session_broker, topic)
    assert len(found) == 4500
    assert found == consumed(session_broker, topic)
    small = all_three(session_broker, topic, batch_bytes=3000)
    assert small == found
    assert len(list(scan(topic, bootstrap_servers=session_broker.bootstrap_servers))) == 3


def test_a_table_comes_in_larger_pieces_than_batches_do(session_broker, topic):
    produce(session_broker, topic, [(None, b"v" * 10_000, None)] * 500)
    for source in ("files", "wire"):
        found = scan(topic, bootstrap_servers=session_broker.bootstrap_servers, source=source)
        batches = [columns.size_bytes for columns in found.batches()]
        pieces = [columns.size_bytes for columns in found.columns()]
        assert sum(batches) == sum(pieces)
        assert len(batches) > len(pieces) == 2
        said = scan(
            topic,
            bootstrap_servers=session_broker.bootstrap_servers,
            source=source,
            batch_bytes=2_000_000,
        )
        assert len(list(said.batches())) == len(said.columns()) > 2


@pytest.mark.topic(configs={"message.timestamp.type": "LogAppendTime"})
def test_times_of_appending(session_broker, topic):
    produce(session_broker, topic, several(20), codec="gzip")
    produce(session_broker, topic, several(20))
    found = all_three(session_broker, topic)
    assert found == consumed(session_broker, topic)
    assert all(row[3] for row in found)


def transact(broker, topic, name, steps):
    """steps: (first number, count, whether it commits); None leaves it open."""
    producer = ConfluentProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "linger.ms": 2}
    )
    producer.init_transactions(20)
    for first, count, committed in steps:
        producer.begin_transaction()
        for i in range(first, first + count):
            producer.produce(topic, value=b"%s %d" % (name.encode(), i) + bytes(100), partition=0)
            if i % 25 == 0:
                producer.flush(10)
        producer.flush(10)
        if committed:
            producer.commit_transaction(20)
        elif committed is not None:
            producer.abort_transaction(20)
    return producer


@pytest.mark.topic(configs=SMALL)
def test_records_of_aborted_and_of_open_transactions(session_broker, topic):
    produce(session_broker, topic, several(60))
    transact(session_broker, topic, "one", [(0, 80, True), (100, 90, False), (200, 70, True)])
    produce(session_broker, topic, several(60), codec="lz4")
    transact(session_broker, topic, "two", [(0, 150, False), (200, 20, False), (300, 10, True)])
    open_one = transact(session_broker, topic, "open", [(0, 30, None)])
    produce(session_broker, topic, several(40))
    committed = all_three(session_broker, topic)
    assert committed == consumed(session_broker, topic)
    values = [row[5].rstrip(b"\0") for row in committed if row[5]]
    sent = [v for v in values if v.startswith((b"one ", b"two ", b"open "))]
    numbers = [*range(80), *range(200, 270)]
    assert sent == [b"one %d" % i for i in numbers] + [b"two %d" % i for i in range(300, 310)]
    everything = all_three(session_broker, topic, isolation="read_uncommitted")
    assert everything == consumed(session_broker, topic, isolation="read_uncommitted")
    assert len(everything) == 160 + 240 + 180 + 30
    # From the middle of an aborted transaction: its beginning is not read.
    middle = next(row[1] for row in everything if row[5] and row[5].startswith(b"one 150"))
    later = all_three(session_broker, topic, start=middle)
    assert later == [row for row in committed if row[1] >= middle]
    open_one.abort_transaction(20)


def clean(cleaner):
    """Waits until no log needs cleaning and no cleaner thread is working."""
    deadline = time.monotonic() + 20
    while cleaner.run() or cleaner._busy:
        assert time.monotonic() < deadline, "it does not end"
        time.sleep(0.02)
    assert cleaner.passes > 0


def test_a_compacted_topic(broker):
    topic = broker.create_topic(
        "c", configs={**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}
    )
    noise = random.Random(7).randbytes
    rows = [(b"k%d" % (i % 9), None if i % 50 == 8 else b"%d" % i + noise(90)) for i in range(900)]
    for codec in ("none", "snappy", "zstd"):
        produce(broker, topic, [(*row, [("h", b"x")]) for row in rows], codec=codec)
    clean(broker.node.running.cleaner)
    found = all_three(broker, topic)
    assert found == consumed(broker, topic)
    assert 9 <= len(found) <= 900
    for start in (0, 1, 500, 1500, found[-1][1]):
        assert all_three(broker, topic, start=start) == [r for r in found if r[1] >= start]


def test_a_scan_goes_on_while_segments_are_swapped_and_deleted(broker):
    """The scan returns each key's last value although the files change meanwhile."""
    topic = broker.create_topic(
        "c", configs={**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}
    )
    rows = [(b"k%d" % (i % 9), b"%d" % i + bytes(90), None) for i in range(900)]
    produce(broker, topic, rows)
    for round_ in range(6):
        produce(broker, topic, [(b"r%d" % round_, b"x", None), *rows])
        last = {}
        for row in scanned(broker, topic, source="files", batch_bytes=2000):
            last[row[4]] = row[5]
        assert set(last) == {b"k%d" % i for i in range(9)} | {b"r%d" % i for i in range(round_ + 1)}
        assert all(last[b"k%d" % (i % 9)] == rows[i][1] for i in range(891, 900))


@pytest.mark.topic(configs=SMALL)
def test_offsets_and_times_are_sought(session_broker, topic):
    base = 1_700_000_000_000
    producer = ConfluentProducer({"bootstrap.servers": session_broker.bootstrap_servers})
    # Timestamps are not in order: a later one may be anywhere after an index entry.
    times = [base + i * 10 + (i * 37 % 50) * 7 for i in range(800)]
    for i, at in enumerate(times):
        producer.produce(topic, value=b"%d" % i + bytes(80), timestamp=at, partition=0)
        if i % 20 == 0:
            producer.flush(10)
    assert producer.flush(10) == 0
    everything = all_three(session_broker, topic)
    for start, end in [(0, 1), (17, 633), (399, 400), (799, 800), (800, 800), (5, 5)]:
        found = all_three(session_broker, topic, start=start, end=end)
        assert found == [row for row in everything if start <= row[1] < end]
    for ms in (base - 5, base, base + 4321, times[-1], base + 10**7):
        at = datetime.fromtimestamp(ms / 1000, UTC)
        first = next((i for i, t in enumerate(times) if t >= ms), 800)
        assert all_three(session_broker, topic, start=at) == everything[first:]
        assert all_three(session_broker, topic, end={0: at}) == everything[:first]
    with pytest.raises(OutOfRange, match=r"partition 0 of topic .* has offsets 0 to 800: 801"):
        scanned(session_broker, topic, start=801)
    with pytest.raises(ValueError, match="no time zone"):
        scanned(session_broker, topic, start=datetime(2026, 1, 1))


def test_records_below_the_log_start_are_not_seen(broker):
    topic = broker.create_topic("t", configs=SMALL)
    produce(broker, topic, several(100))
    from barnabas.client import delete_records

    with Cluster(broker.bootstrap_servers) as cluster:
        delete_records(cluster, topic, {0: 33})
    assert [row[1] for row in all_three(broker, topic)] == list(range(33, 100))
    with pytest.raises(OutOfRange):
        scanned(broker, topic, start=32)


def test_a_snapshot_is_read_without_the_broker(broker, tmp_path):
    topic = broker.create_topic("t", partitions=2, configs=SMALL)
    produce(broker, topic, several(500), codec="lz4")
    transact(broker, topic, "one", [(0, 80, False), (100, 40, True)])
    produce(broker, topic, several(300), codec="gzip", partition=1)
    transact(broker, topic, "open", [(0, 10, None)])
    wanted = scanned(broker, topic)
    with Cluster(broker.bootstrap_servers) as cluster:
        at = {ms: list_offsets(cluster, topic, {0: ms, 1: ms}) for ms in (0, 10**13)}
    taken = seal(topic, tmp_path / "taken", bootstrap_servers=broker.bootstrap_servers)
    produce(broker, topic, several(50))
    broker.delete_topic(topic)
    broker.stop()
    found = scan(snapshot=taken)
    assert rows_of(found.to_arrow()) == wanted
    early = scan(snapshot=taken, start=datetime(1970, 1, 1, tzinfo=UTC), partitions=[0])
    assert early.ranges[0].start == at[0][0].offset
    assert scan(snapshot=taken, start=datetime(2200, 1, 1, tzinfo=UTC)).ranges == []
    assert at[10**13][0].offset == -1
    with pytest.raises(NoFilesHere, match="not of other"):
        scan("other", snapshot=taken)
    (taken / "sealed.json").write_text('{"version": 2}')
    with pytest.raises(DamagedFiles, match=r"sealed.json: version 2"):
        scan(snapshot=taken)


def test_a_snapshot_answers_times_as_the_broker_does(broker, tmp_path):
    topic = broker.create_topic("t", configs=SMALL)
    base = 1_700_000_000_000
    producer = ConfluentProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "gzip"}
    )
    for i in range(600):
        at = base + i * 10 + (i * 37 % 50) * 7
        producer.produce(topic, value=bytes(90), timestamp=at, partition=0)
        if i % 20 == 0:
            producer.flush(10)
    assert producer.flush(10) == 0
    taken = seal(topic, tmp_path / "taken", bootstrap_servers=broker.bootstrap_servers)
    with Cluster(broker.bootstrap_servers) as cluster:
        for ms in range(base - 100, base + 6400, 97):
            wanted = list_offsets(cluster, topic, {0: ms})[0].offset
            at = datetime.fromtimestamp(ms / 1000, UTC)
            found = scan(snapshot=taken, start=at).ranges
            assert [r.start for r in found] == ([wanted] if wanted >= 0 else []), ms


def test_a_topic_made_anew_is_another_one(broker):
    topic = broker.create_topic("t")
    produce(broker, topic, several(10))
    before = {
        source: scan(topic, bootstrap_servers=broker.bootstrap_servers, source=source)
        for source in ("files", "wire")
    }
    broker.delete_topic(topic)
    broker.create_topic(topic)
    produce(broker, topic, several(30))
    with pytest.raises(TopicRecreated, match="its id was"):
        before["wire"].to_arrow()
    with pytest.raises(TopicRecreated, match="its id was"):
        before["files"].to_arrow()


def test_files_of_another_cluster_or_topic_are_not_taken(broker, tmp_path):
    topic = broker.create_topic("t")
    produce(broker, topic, several(10))
    with Broker() as other:
        other.create_topic("t")
        produce(other, topic, several(10))
        with pytest.raises(NoFilesHere, match="of another topic"):
            scanned(other, topic, log_dirs=[broker.directory])
    with pytest.raises(NoFilesHere, match="no t-0 in"):
        scanned(broker, topic, log_dirs=[tmp_path])
    assert len(scanned(broker, topic, log_dirs=[broker.directory])) == 10
    meta = broker.directory / "meta.properties"
    text = meta.read_text()
    try:
        meta.write_text(text.replace("cluster.id=", "cluster.id=x"))
        with pytest.raises(NoFilesHere, match="not on this machine"):
            scanned(broker, topic, source="files")
        assert len(scanned(broker, topic)) == 10  # over the wire
    finally:
        meta.write_text(text)


def test_damage_names_the_file(broker):
    topic = broker.create_topic("t")
    produce(broker, topic, several(10))
    found = scan(topic, bootstrap_servers=broker.bootstrap_servers, source="files")
    path = found.parts[0].directory.path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    with open(path, "r+b") as file:
        file.write(data)
    with pytest.raises(DamagedFiles, match=f"{path}, partition 0 of topic t: .*checksum"):
        found.to_arrow()


def test_an_empty_topic(session_broker, topic):
    table = scan(topic, bootstrap_servers=session_broker.bootstrap_servers).to_arrow()
    assert table.num_rows == 0
    assert table.column_names == [
        "partition",
        "offset",
        "timestamp",
        "timestamp_type",
        "key",
        "value",
        "headers",
    ]


def test_every_reader_of_arrow_takes_it(session_broker, topic):
    import duckdb
    import polars
    import pyarrow

    produce(session_broker, topic, several(300))
    found = scan(topic, bootstrap_servers=session_broker.bootstrap_servers, batch_bytes=4000)
    table = found.to_arrow()
    assert table.num_rows == 300 and table.column("value").num_chunks > 2
    table.validate(full=True)
    assert pyarrow.table(found).equals(table)
    frame = found.to_polars()
    assert frame.shape == (300, 7)
    assert frame["value"].to_list() == table["value"].to_pylist()
    assert frame["timestamp"].dtype == polars.Datetime("ms", "UTC")
    pandas = found.to_pandas()
    assert list(pandas["key"]) == table["key"].to_pylist()
    counted = found.to_duckdb().aggregate("count(*), sum(octet_length(value)), max(headers[1].key)")
    size = sum(len(value) for value in table["value"].to_pylist() if value is not None)
    assert counted.fetchall() == [(300, size, b"a")]
    records = table  # noqa: F841 (duckdb finds it by its name)
    assert duckdb.sql('select max("offset") from records').fetchall() == [(299,)]


def test_an_error_on_the_way_reaches_the_reader_of_a_stream(broker):
    import pyarrow

    topic = broker.create_topic("t")
    produce(broker, topic, several(10))
    found = scan(topic, bootstrap_servers=broker.bootstrap_servers)
    broker.delete_topic(topic)
    deadline = time.monotonic() + 10
    while found.parts[0].directory.path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(OSError, match="NoFilesHere"):
        pyarrow.table(found)


LAZY = """
import json, sys
from barnabas.scan import scan
rows = sum(len(columns) for columns in scan(sys.argv[1], bootstrap_servers=sys.argv[2]))
print(json.dumps([rows, [m for m in ("pyarrow", "numpy", "pandas", "polars") if m in sys.modules]]))
"""


def test_nothing_of_arrow_is_imported_before_it_is_asked_for(session_broker, topic):
    produce(session_broker, topic, several(10))
    servers = session_broker.bootstrap_servers
    done = subprocess.run(
        [sys.executable, "-c", LAZY, topic, servers], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [10, []]
