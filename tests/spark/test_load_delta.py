"""Loads into Delta tables, which Delta itself reads back: each record once, whichever process is
killed."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path

import pytest
from scan.scan_rows import consumed, produce
from spark.conftest import DELTA_SETTINGS
from spark.loading import HOUR_MS, HOURS, KEPT, KEPT_TEXT, load, loader_of, send
from spark.some_rows import rows
from spark.store_fixtures import place_of
from spark.test_spark_load import RUN_S, children_of, command, wait_for

from barnabas.client import Cluster, NewTopic, create_topics, delete_records
from barnabas.spark.checkpoint import Checkpoint
from barnabas.spark.failures import CheckpointError, ConcurrentWriter
from barnabas.spark.files import files_at
from barnabas.spark.load.delta import ROWS, DeltaPublisher, DeltaTasks
from barnabas.spark.load.delta_table import DeltaTable, spark_url
from barnabas.spark.load.session import LoadFailed

pytestmark = pytest.mark.java


def into(session):
    """The arguments of a loader for Delta."""
    return {"run": DeltaTasks(session), "publisher": partial(DeltaPublisher, session=session)}


def table_url(place, topic):
    return f"{spark_url(str(place))}/lake/{topic}"


def table_at(session, place, topic):
    return session.read.format("delta").load(table_url(place, topic))


def pairs_of(frame):
    return sorted((row["partition"], row["offset"]) for row in frame.collect())


def audit_of(place, topic, batch_id):
    return json.loads(files_at(f"{place}/lake").read(f"{topic}/_loads/batch={batch_id}/_SUCCESS"))


def commits(place, topic):
    log = Path(place) / "lake" / topic / "_delta_log"
    return sorted(int(p.stem) for p in log.glob("*.json"))


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_the_table_has_what_a_consumer_reads(delta, session_broker, topic, tmp_path):
    for partition, codec in ((0, "zstd"), (1, "none")):
        produce(session_broker, topic, rows(60), codec=codec, partition=partition)
    told = []
    work = into(delta) | {"run": DeltaTasks(delta, lambda *values: told.append(values))}
    (report,) = load(session_broker, topic, tmp_path, **work)
    frame = table_at(delta, tmp_path, topic)
    kinds = dict(frame.dtypes)
    assert kinds["headers"] == "array<struct<key:string,value:binary>>"
    assert (kinds["timestamp"], kinds["date"], kinds["hour"]) == ("timestamp", "date", "int")
    found = frame.selectExpr("*", "unix_millis(timestamp) as at").collect()
    assert sorted(
        (
            row["partition"],
            row["offset"],
            row["at"],
            row["timestampType"] == 1,
            None if row["key"] is None else bytes(row["key"]),
            None if row["value"] is None else bytes(row["value"]),
            tuple(
                (h["key"].encode(), None if h["value"] is None else bytes(h["value"]))
                for h in row["headers"] or ()
            ),
        )
        for row in found
    ) == consumed(session_broker, topic)
    (audit,) = report.audits
    assert audit.records == 120 and sum(r["records"] for r in audit.rows()) == 120
    assert told[-1] == (2, 120, audit.body_bytes)
    before = commits(tmp_path, topic)
    assert before == [0] and load(session_broker, topic, tmp_path, **into(delta)) == []
    assert commits(tmp_path, topic) == before


def test_two_topics_by_hours_on_hdfs(delta, session_broker, request, monkeypatch):
    place, names = place_of("hdfs", request, monkeypatch), ("delta-a", "delta-b")
    with Cluster(session_broker.bootstrap_servers) as cluster:
        create_topics(cluster, [NewTopic(n, partition_count=1, configs=KEPT_TEXT) for n in names])
    for name in names:
        send(session_broker, name, 12, step_ms=HOUR_MS // 7)
    (report,) = load(session_broker, names, place, **into(delta))
    assert [audit.records for audit in report.audits] == [12, 12]
    for name in names:
        frame = table_at(delta, place, name)
        assert pairs_of(frame) == [(0, i) for i in range(12)]
        assert frame.where("date = '2025-11-24' and hour = 17").count() == 4
        assert sorted(n.rpartition("/")[0] for n in audit_of(place, name, 0)["files"]) == [
            f"date=2025-11-24/hour={hour}" for hour in (16, 17)
        ]
    assert load(session_broker, names, place, **into(delta)) == []
    assert Checkpoint(files_at(f"{place}/cp")).verify().problems == []


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_late_records_and_a_lost_audit(delta, session_broker, topic, tmp_path):
    """The driver dies after the commit, before its audit and before the checkpoint's."""
    now = [HOURS + 3 * HOUR_MS]

    def go():
        return loader_of(
            session_broker, topic, tmp_path, now=lambda: now[0], lateness_ms=0, **into(delta)
        )

    for partition in (0, 1):
        send(session_broker, topic, 6, partition=partition, step_ms=HOUR_MS // 4)
    (report,) = go().batches()
    assert report.complete == {topic: [490_000, 490_001, 490_002]}
    first = audit_of(tmp_path, topic, 0)
    assert [(r["hour"], r["partition"], r["records"]) for r in first["hours"]] == [
        (f"2025-11-24T{hour}", p, n) for hour, n in ((16, 4), (17, 2)) for p in (0, 1)
    ]
    send(session_broker, topic, 3, partition=1)
    send(session_broker, topic, 1, at_ms=HOURS + 4 * HOUR_MS)
    loader = go()
    loader.checkpoint.commit_batch = lambda batch_id: 1 / 0
    with pytest.raises(ZeroDivisionError):
        list(loader.batches())
    audits = Path(tmp_path) / "lake" / topic / "_loads"
    told = audit_of(tmp_path, topic, 1)
    assert [(r["hour"][-2:], r["records"], r["late"]) for r in told["hours"]] == [
        ("16", 3, True),
        ("20", 1, False),
    ]
    for place in (audits / "batch=1").iterdir():
        place.unlink()
    delta.sql(f"OPTIMIZE delta.`{table_url(tmp_path, topic)}`").collect()
    before = commits(tmp_path, topic)
    (report,) = go().batches()
    assert report.is_repeated and report.audits[0].late_records() == 3
    assert audit_of(tmp_path, topic, 1) == told  # counted in the table: also bytes, late, open
    assert commits(tmp_path, topic) == before == [0, 1, 2]
    late = json.loads((audits.parent / "_complete/2025-11-24T16+late+1.json").read_text())
    assert (late["records"], late["partitions"]) == (3, {"1": {"records": 3, "bytes": 36}})
    frame = table_at(delta, tmp_path, topic)
    assert frame.count() == frame.select("partition", "offset").distinct().count() == 16
    assert frame.where("hour = 16").agg({"date": "max"}).collect()[0][0] == date(2025, 11, 24)


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_a_rewind_wants_the_table_restored(delta, session_broker, topic, tmp_path):
    """Delta skips a batch with a number that it has seen, which must lose no records."""
    for start in (0, 5):
        send(session_broker, topic, 5, start=start)
        load(session_broker, topic, tmp_path, **into(delta))
    Checkpoint(files_at(f"{tmp_path}/cp")).rewind(0)
    send(session_broker, topic, 5)
    with pytest.raises(ConcurrentWriter, match="RESTORE the table to version 0, and remove"):
        load(session_broker, topic, tmp_path, **into(delta))
    delta.sql(f"RESTORE TABLE delta.`{table_url(tmp_path, topic)}` TO VERSION AS OF 0")
    with pytest.raises(ConcurrentWriter, match=r"remove .*/_loads/batch=1 and later"):
        load(session_broker, topic, tmp_path, **into(delta))
    assert table_at(delta, tmp_path, topic).count() == 5
    files_at(f"{tmp_path}/lake").delete_tree(f"{topic}/_loads/batch=1")
    (report,) = load(session_broker, topic, tmp_path, **into(delta))
    assert report.audits[0].ends == {0: (5, 15)}
    send(session_broker, topic, 1)
    load(session_broker, topic, tmp_path, **into(delta))
    assert pairs_of(table_at(delta, tmp_path, topic)) == [(0, i) for i in range(16)]


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_what_is_there_is_not_mixed_with(delta, session_broker, topic, tmp_path):
    send(session_broker, topic, 4)
    load(session_broker, topic, tmp_path, **into(delta))
    other = loader_of(session_broker, topic, tmp_path, **into(delta))
    other.checkpoint = Checkpoint(files_at(f"{tmp_path}/other"))
    with pytest.raises(ConcurrentWriter, match="Use one checkpoint for one place"):
        list(other.batches())
    plain = loader_of(session_broker, topic, tmp_path)
    plain.checkpoint = Checkpoint(files_at(f"{tmp_path}/plain"))
    with pytest.raises(ConcurrentWriter, match="it is a Delta table"):
        list(plain.batches())
    load(session_broker, topic, tmp_path / "2")
    table = loader_of(session_broker, topic, tmp_path / "2", **into(delta))
    table.checkpoint = Checkpoint(files_at(f"{tmp_path}/other"))
    with pytest.raises(ConcurrentWriter, match="parquet files of another load"):
        list(table.batches())
    assert table_at(delta, tmp_path, topic).count() == 4


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_a_mark_without_a_batch_and_a_failed_task_are_reported(
    delta, session_broker, topic, tmp_path
):
    send(session_broker, topic, 4)
    tasks = DeltaTasks(delta)

    def gone(work):
        with Cluster(session_broker.bootstrap_servers) as cluster:
            delete_records(cluster, topic, {0: 2})
        return tasks(work)

    work = into(delta) | {"run": gone}
    loader = loader_of(session_broker, topic, tmp_path, source="wire", **work)
    with pytest.raises(LoadFailed, match="a task failed 4 times: DataLoss: partition 0 of topic"):
        list(loader.batches())
    assert commits(tmp_path, topic) == []
    query_id = Checkpoint(files_at(f"{tmp_path}/cp")).query_id()
    options = {"txnAppId": query_id, "txnVersion": 0}
    frame = delta.sql("select cast(null as binary) as key").where("key is not null")
    frame.write.format("delta").options(**options).save(table_url(tmp_path, topic))
    loader = loader_of(session_broker, topic, tmp_path, failOnDataLoss="false", **into(delta))
    with pytest.raises(CheckpointError, match="has the transaction mark of batch 0, but its log"):
        list(loader.batches())
    assert not (tmp_path / "cp/commits/0").exists()


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_files_of_the_table_have_about_the_size_asked_for(delta, session_broker, topic, tmp_path):
    """In an existing table with another layout."""
    values = [(None, os.urandom(20_000), None) for _ in range(300)]
    produce(session_broker, topic, values, codec="none")
    delta.sql(
        f"CREATE TABLE delta.`{table_url(tmp_path, topic)}` ({ROWS}) USING delta"
        " PARTITIONED BY (date)"
    )
    (report,) = load(session_broker, topic, tmp_path, file_bytes=1_500_000, **into(delta))
    place = Path(tmp_path) / "lake" / topic
    sizes = [(place / name).stat().st_size for name in report.audits[0].files]
    assert len(sizes) in (4, 5) and max(sizes) < 1_700_000
    assert sum(sizes) > 6_000_000
    assert {name.count("/") for name in report.audits[0].files} == {1}


def test_a_restore_by_time_is_refused(tmp_path):
    info = {"operation": "RESTORE", "operationParameters": {"version": None, "timestamp": "now"}}
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{7:020d}.json").write_text(json.dumps({"commitInfo": info}) + "\n")
    with pytest.raises(CheckpointError, match=r"0007.json: a RESTORE by time"):
        DeltaTable(None, files_at(str(tmp_path)), str(tmp_path), "t").state()


# ------------------------------------------------------------------------- the command


def delta_command(broker, topic, place, jars, *words):
    settings = DELTA_SETTINGS | {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.shuffle.partitions": "2",
    }
    confs = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    return command(broker, topic, place, "--format", "delta", *confs, *words)


def data_files(place, topic):
    return [
        path
        for path in Path(place, "lake", topic).glob("date=*/hour=*/part-*.parquet")
        if path.stat().st_size
    ]


def stop(process, number):
    """Stops a command and its child processes."""
    for pid in children_of(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_stopped_before_the_commit_and_woken_late_then_killed_after_it(
    delta, delta_jars, session_broker, topic, tmp_path
):
    """A driver that is stopped while files are written, until another has loaded its batch; and
    kill -9 when Delta has committed and the checkpoint has not."""

    def begin():
        words = ("--option", "source=wire", "--option", "batchBytes=200000", "--file-size", "1")
        return subprocess.Popen(
            delta_command(session_broker, topic, tmp_path, delta_jars, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def produced(count):
        for partition in (0, 1):
            values = [(None, os.urandom(600), None) for _ in range(count)]
            produce(session_broker, topic, values, codec="none", partition=partition)

    log, checkpoint = tmp_path / "lake" / topic / "_delta_log", tmp_path / "cp"

    def is_committed(batch_id):
        return (log / f"{batch_id:020d}.json").exists()

    def loaded(batch_id, records, is_repeated=True):
        (report,) = load(session_broker, topic, tmp_path, **into(delta))
        assert (report.is_repeated, report.batch_id) == (is_repeated, batch_id)
        assert report.audits[0].records == records

    produced(100)
    loaded(0, 200, is_repeated=False)

    produced(7_000)
    before = set(data_files(tmp_path, topic))
    sleeper = begin()
    wait_for(lambda: set(data_files(tmp_path, topic)) - before, sleeper)
    (jvm,) = [pid for pid, line in children_of(sleeper.pid).items() if "SparkSubmit" in line]
    os.kill(jvm, signal.SIGSTOP)
    assert (checkpoint / "offsets/1").exists() and not is_committed(1)
    loaded(1, 14_000)
    os.kill(jvm, signal.SIGCONT)
    _, err = sleeper.communicate(timeout=RUN_S)
    assert sleeper.returncode == 1 and f"{checkpoint}/commits/1: it already exists" in err
    assert commits(tmp_path, topic) == [0, 1]

    produced(500)
    process = begin()
    wait_for(lambda: is_committed(2), process)
    stop(process, signal.SIGKILL)
    process.communicate()
    assert not (checkpoint / "commits/2").exists(), "the fault came too late"
    loaded(2, 1_000)
    assert commits(tmp_path, topic) == [0, 1, 2]
    frame = table_at(delta, tmp_path, topic)
    assert frame.count() == frame.select("partition", "offset").distinct().count() == 15_200


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_the_connector_is_not_there(session_broker, topic, tmp_path):
    pytest.importorskip("pyspark", reason="needs barnabas[spark]")
    send(session_broker, topic, 1)
    done = subprocess.run(
        command(session_broker, topic, tmp_path, "--format", "delta"),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 1 and done.stdout == ""
    (line,) = [one for one in done.stderr.splitlines() if "--format delta" in one]
    assert "spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0" in line
    assert not (tmp_path / "lake").exists() and not (tmp_path / "cp").exists()
