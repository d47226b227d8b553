"""Loads without Spark: which files are written where; a crash at any point loses and duplicates
nothing."""

import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scan.scan_rows import consumed, produce
from spark.loading import (
    COLUMNS,
    HOUR_MS,
    HOURS,
    KEPT,
    KEPT_TEXT,
    dataset,
    in_process,
    load,
    loader_of,
    published,
    send,
    tree,
)
from spark.some_rows import rows

from barnabas.client import (
    Cluster,
    NewTopic,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
)
from barnabas.client.groups import commit_offsets, committed_offsets
from barnabas.spark.checkpoint import Checkpoint
from barnabas.spark.failures import ConcurrentWriter, TruncatedFile, UnknownVersion
from barnabas.spark.files import LocalFiles, files_at
from barnabas.spark.offsets import offsets_json
from barnabas.spark.planner import DataLoss


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_parquet_has_what_a_consumer_reads(session_broker, topic, tmp_path):
    for partition, codec in ((0, "zstd"), (1, "none")):
        produce(session_broker, topic, rows(500), codec=codec, partition=partition)
    (report,) = load(session_broker, topic, tmp_path)
    table = dataset(tmp_path / "lake" / topic).to_table()
    assert table.column_names == [*COLUMNS, "batch", "date", "hour"]
    found = sorted(
        (
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"] == 1,
            row["key"],
            row["value"],
            tuple((h["key"].encode(), h["value"]) for h in row["headers"] or ()),
        )
        for row in table.to_pylist()
    )
    assert found == consumed(session_broker, topic)
    assert set(table["topic"].to_pylist()) == {topic}
    frame = dataset(tmp_path / "lake" / topic).to_table().to_pandas()
    assert frame.groupby("partition")["offset"].nunique().to_dict() == {0: 500, 1: 500}
    (name,) = {path for path in tree(str(tmp_path / "lake"), topic) if "+00001+" in path}
    kinds = pq.read_schema(tmp_path / "lake" / name)
    assert kinds.names == COLUMNS
    assert kinds.field("timestamp").type == pa.timestamp("us", "UTC")
    assert report.audits[0].records == 1000
    assert load(session_broker, topic, tmp_path) == []


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_directories_are_hours_of_the_records(session_broker, topic, tmp_path):
    for partition in (0, 1):
        send(session_broker, topic, 90, partition=partition, step_ms=HOUR_MS // 30)
    (report,) = load(session_broker, topic, tmp_path)
    place = f"{topic}/batch=0"
    names = tree(str(tmp_path / "lake"), place)
    assert [n.removeprefix(place) for n in names if n.endswith(".parquet")] == [
        f"/date=2025-11-24/hour={hour}/{topic}+{p:05d}+{(hour - 16) * 30:020d}.parquet"
        for hour in (16, 17, 18)
        for p in (0, 1)
    ]
    for name in names:
        if name.endswith(".parquet"):
            hour = int(name.split("hour=")[1][:2])
            times = pq.read_table(tmp_path / "lake" / name)["timestamp"].to_pylist()
            assert {time.hour for time in times} == {hour} and len(times) == 30
    beside = tmp_path / "lake" / place / f"_offsets/00001+{0:020d}.json"
    offsets = json.loads(beside.read_text())
    assert (offsets["start"], offsets["end"], offsets["records"]) == (0, 90, 90)
    assert [row["name"] for row in offsets["files"]] == [
        n.removeprefix(f"{place}/") for n in names if "+00001+" in n and n.endswith(".parquet")
    ]
    assert [(r["hour"], r["partition"], r["records"]) for r in report.audits[0].rows()] == [
        (f"2025-11-24T{hour}", p, 30) for hour in (16, 17, 18) for p in (0, 1)
    ]


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_files_have_about_the_size_asked_for(session_broker, topic, tmp_path):
    import os

    produce(
        session_broker,
        topic,
        [(None, os.urandom(20_000), None) for _ in range(300)],
        codec="none",
    )
    load(session_broker, topic, tmp_path, file_bytes=1_000_000)
    sizes = [
        (tmp_path / "lake" / name).stat().st_size
        for name in tree(str(tmp_path / "lake"), topic)
        if name.endswith(".parquet")
    ]
    assert 2 <= len(sizes) <= 6 and max(sizes) < 6_000_000
    assert len(published(str(tmp_path / "lake"), topic)[0]) == 300


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_audits_are_what_a_recount_gives(session_broker, topic, store):
    for partition in range(2):
        count = 40 * (partition + 1)
        send(session_broker, topic, count, partition=partition, step_ms=HOUR_MS // 50)
    first = load(session_broker, topic, store, maxOffsetsPerTrigger=80)
    assert len(first) >= 2
    rows_found, audits = published(f"{store}/lake", topic)
    assert sorted(rows_found)[0][:2] == (0, 0) and len(rows_found) == 120
    counts, sizes = Counter(), Counter()
    for partition, offset, value in rows_found:
        hour = f"2025-11-24T{16 + offset // 50}"
        counts[partition, hour] += 1
        sizes[partition, hour] += len(value) + 2
    told, told_bytes = Counter(), Counter()
    for audit in audits:
        for row in audit["hours"]:
            told[row["partition"], row["hour"]] += row["records"]
            told_bytes[row["partition"], row["hour"]] += row["bytes"]
    assert told == counts and told_bytes == sizes
    assert load(session_broker, topic, store) == []
    assert tree(f"{store}/lake", "_staging") == []
    send(session_broker, topic, 5, partition=1)
    (report,) = load(session_broker, topic, store)
    assert report.audits[0].ends == {1: (80, 85)}
    assert Checkpoint(files_at(f"{store}/cp")).verify().problems == []


# ------------------------------------------------------------------------------ crashes


class Crash(BaseException):
    """Acts as a kill: only `finally` blocks run."""


class DyingFiles(LocalFiles):
    """A disk whose process is killed at its n-th change."""

    left = 10**9

    def _live(self):
        if DyingFiles.left == 0:
            raise Crash
        DyingFiles.left -= 1

    def put_if_absent(self, path, data):
        self._live()
        super().put_if_absent(path, data)

    def create(self, path):
        self._live()
        return super().create(path)

    def delete(self, path):
        self._live()
        super().delete(path)

    def delete_tree(self, directory):
        self._live()
        super().delete_tree(directory)

    def publish(self, files, directory, *, gathered):
        self._live()
        super().publish(files, directory, gathered=gathered)
        self._live()  # after the change, before the return


def test_a_crash_at_every_change_loses_and_doubles_nothing(session_broker, tmp_path, monkeypatch):
    names = ("crash-a", "crash-b")
    with Cluster(session_broker.bootstrap_servers) as cluster:
        create_topics(
            cluster, [NewTopic(name, partition_count=1, configs=KEPT_TEXT) for name in names]
        )
    for name in names:
        send(session_broker, name, 12, step_ms=HOUR_MS // 7)
    import barnabas.spark.load.loader as module
    import barnabas.spark.load.task as task_module

    for patched in (module, task_module):
        monkeypatch.setattr(patched, "files_at", DyingFiles)
    crashes = 0
    for at in range(200):
        place = tmp_path / str(at)
        DyingFiles.left = at
        try:
            load(session_broker, names, place, maxOffsetsPerTrigger=15)
            came_through = True
        except Crash:
            crashes, came_through = crashes + 1, False
        DyingFiles.left = 10**9
        again = load(session_broker, names, place, maxOffsetsPerTrigger=15)
        for name in names:
            found, audits = published(str(place / "lake"), name)
            offsets = [(p, o) for p, o, _ in found]
            assert len(offsets) == len(set(offsets)) == 12, (at, name)
            assert sum(a["records"] for a in audits) == 12
        assert tree(str(place / "lake"), "_staging") == []
        assert Checkpoint(LocalFiles(place / "cp")).verify().problems == []
        if came_through:
            assert again == []
            break
    assert crashes == at > 20


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_two_loaders_of_one_checkpoint(session_broker, topic, store):
    """The second starts while the first works: one gets an error, and each record is loaded
    once."""
    send(session_broker, topic, 50)
    told = []

    def second_comes(tasks):
        if not told:
            told.append(load(session_broker, topic, store))
        return in_process(tasks)

    with pytest.raises(ConcurrentWriter) as raised:
        load(session_broker, topic, store, run=second_comes)
    assert raised.value.path == f"{store}/cp/commits/0"
    assert told[0][0].is_repeated
    assert len(published(f"{store}/lake", topic)[0]) == 50
    assert load(session_broker, topic, store) == []


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_another_load_is_not_overwritten(session_broker, topic, store):
    send(session_broker, topic, 20)
    load(session_broker, topic, store)
    before = {n: files_at(f"{store}/lake").read(n) for n in tree(f"{store}/lake", topic)}
    loader = loader_of(session_broker, topic, store)
    other = loader_of(session_broker, topic, store)
    other.checkpoint = Checkpoint(files_at(f"{store}/other"))
    with pytest.raises(ConcurrentWriter) as raised:
        list(other.batches())
    assert raised.value.path == f"{store}/lake/{topic}/batch=0"
    # As after a rewind with new records: the batch would have other offsets.
    send(session_broker, topic, 5)
    loader.checkpoint.files.delete("commits/0")
    loader.checkpoint.files.delete("offsets/0")
    with pytest.raises(ConcurrentWriter, match="remove the batches that are read again"):
        list(loader.batches())
    assert before == {n: files_at(f"{store}/lake").read(n) for n in tree(f"{store}/lake", topic)}


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_a_task_that_fails_leaves_nothing(session_broker, topic, tmp_path):
    send(session_broker, topic, 20)

    def half(tasks):
        in_process(tasks)
        raise OSError(28, "no space", "worker")

    with pytest.raises(OSError, match="no space"):
        load(session_broker, topic, tmp_path, run=half)
    assert not tree(str(tmp_path / "lake"), topic)
    assert not [n for n in tree(str(tmp_path / "lake"), "_staging") if "." in n]
    (report,) = load(session_broker, topic, tmp_path)
    assert report.is_repeated and report.audits[0].records == 20


def everything(store):
    """The checkpoint's bytes and the names of the loaded files."""
    files = files_at(store)
    loaded = [name for name in tree(store, "lake", files) if "/_staging" not in name]
    return {name: files.read(name) for name in tree(store, "cp", files)} | {"lake": loaded}


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_damage_of_what_a_load_wrote_is_named(session_broker, topic, store):
    send(session_broker, topic, 20)
    load(session_broker, topic, store)
    files = files_at(f"{store}/lake")
    success = f"{topic}/batch=0/_SUCCESS"
    files.replace(success, files.read(success)[:-40])
    send(session_broker, topic, 1)
    with pytest.raises(TruncatedFile) as raised:
        load(session_broker, topic, store)
    assert raised.value.path == f"{store}/lake/{success}"
    before = everything(store)
    for name, damage, kind in (
        ("cp/offsets/1", lambda data: data[:-9], TruncatedFile),
        ("cp/offsets/1", lambda data: data.replace(b"v1", b"v2"), UnknownVersion),
        ("cp/commits/0", lambda data: b"", TruncatedFile),
    ):
        root = files_at(store)
        root.replace(name, damage(before[name]))
        damaged = everything(store)
        with pytest.raises(kind) as raised:
            load(session_broker, topic, store)
        assert raised.value.path == f"{store}/{name}"
        assert everything(store) == damaged
        root.replace(name, before[name])


# ------------------------------------------------------------------------------ completeness


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_hours_are_complete_once_and_late_records_are_reported(session_broker, topic, store):
    lake, now = f"{store}/lake", [HOURS + 3 * HOUR_MS + 599_000]

    def go():
        return load(session_broker, topic, store, now=lambda: now[0], lateness_ms=600_000)

    def complete():
        files = files_at(lake)
        return {
            name.removesuffix(".json"): json.loads(files.read(f"{topic}/_complete/{name}"))
            for name in files.names(f"{topic}/_complete")
        }

    # Hours 16 and 18 in one partition, 16 in the other; none at 17.
    send(session_broker, topic, 10)
    send(session_broker, topic, 4, at_ms=HOURS + 2 * HOUR_MS)
    send(session_broker, topic, 7, partition=1)
    (report,) = go()
    assert report.complete == {topic: [490_000, 490_001]}
    assert list(complete()) == ["2025-11-24T16", "2025-11-24T17"]
    whole = complete()["2025-11-24T16"]
    assert (whole["records"], whole["partitions"]["1"]["records"]) == (17, 7)
    assert complete()["2025-11-24T17"]["records"] == 0
    now[0] += 1000
    send(session_broker, topic, 3, partition=1, at_ms=HOURS + 2 * HOUR_MS)
    send(session_broker, topic, 2, partition=1)  # too late
    (report,) = go()
    assert report.complete == {topic: [490_002]}
    assert complete()["2025-11-24T18"]["records"] == 7  # of both batches
    assert report.audits[0].late_records() == 2
    assert [r["late"] for r in report.audits[0].rows()] == [True, False]
    late = complete()["2025-11-24T16+late+1"]
    assert (late["records"], late["batch"], late["partitions"]["1"]["records"]) == (2, 1, 2)
    assert complete()["2025-11-24T16"] == whole
    now[0] += 2 * HOUR_MS
    assert go() == []  # no new records, and two more hours have passed
    assert complete()["2025-11-24T20"]["records"] == 0


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_an_hour_is_not_complete_before_all_is_read(session_broker, topic, tmp_path):
    send(session_broker, topic, 100)
    loader = loader_of(session_broker, topic, tmp_path, maxOffsetsPerTrigger=40)
    reports = loader.batches()
    for _ in range(2):
        assert next(reports).complete == {}
    assert next(reports).complete == {topic: [490_000]}
    assert list(reports) == []
    assert len(published(str(tmp_path / "lake"), topic)[0]) == 100


# ------------------------------------------------------------------------------ topics change


def test_a_new_partition_and_a_new_topic_are_read_from_their_start(session_broker, tmp_path):
    with Cluster(session_broker.bootstrap_servers) as cluster:
        create_topics(
            cluster,
            [
                NewTopic("grow", partition_count=1, configs=KEPT_TEXT),
                NewTopic("other", configs=KEPT_TEXT),
            ],
        )
        send(session_broker, "grow", 10)
        send(session_broker, "other", 3)
        load(session_broker, "grow", tmp_path)
        create_partitions(cluster, {"grow": 2})
    send(session_broker, "grow", 5, partition=1)
    (report,) = load(session_broker, ["grow", "other"], tmp_path)
    assert {a.topic: a.ends for a in report.audits} == {"grow": {1: (0, 5)}, "other": {0: (0, 3)}}
    send(session_broker, "other", 2)
    send(session_broker, "grow", 1)
    (report,) = load(session_broker, "grow", tmp_path)
    assert Checkpoint(LocalFiles(tmp_path / "cp")).last_committed().kafka()["other"] == {0: 3}
    (report,) = load(session_broker, ["grow", "other"], tmp_path)
    assert {a.topic: a.ends for a in report.audits} == {"other": {0: (3, 5)}}


def test_missing_records_are_reported(session_broker, tmp_path):
    with Cluster(session_broker.bootstrap_servers) as cluster:
        create_topics(cluster, [NewTopic("gone", partition_count=1, configs=KEPT_TEXT)])
        send(session_broker, "gone", 10)
        load(session_broker, "gone", tmp_path)
        send(session_broker, "gone", 20)
        delete_records(cluster, "gone", {0: 15})
        with pytest.raises(DataLoss, match="offset 10 is wanted, but the log has offsets 15 to 30"):
            load(session_broker, "gone", tmp_path)
        loader = loader_of(session_broker, "gone", tmp_path, failOnDataLoss="false")
        (report,) = loader.batches()
        assert report.audits[0].ends == {0: (15, 30)} and len(loader.lost) == 1
        delete_topics(cluster, ["gone"])
        create_topics(cluster, [NewTopic("gone", partition_count=1, configs=KEPT_TEXT)])
        send(session_broker, "gone", 40)
        with pytest.raises(DataLoss, match="topic gone was deleted and created again"):
            load(session_broker, "gone", tmp_path)
        (report,) = load(session_broker, "gone", tmp_path, failOnDataLoss="false")
        assert report.audits[0].ends == {0: (0, 40)}


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_offsets_of_a_group(session_broker, topic, tmp_path):
    send(session_broker, topic, 10)
    group = f"{topic}-group"
    with Cluster(session_broker.bootstrap_servers) as cluster:
        commit_offsets(cluster, group, {topic: {0: 4}})
        (report,) = load(
            session_broker, topic, tmp_path, startingOffsets="group", commitOffsetsToGroup=group
        )
        assert report.audits[0].ends == {0: (4, 10)}
        assert committed_offsets(cluster, group) == {topic: {0: 10}}
    (tmp_path / "2").mkdir()
    assert load(session_broker, topic, tmp_path / "2", startingOffsets="latest") == []
    send(session_broker, topic, 1)
    (report,) = load(session_broker, topic, tmp_path / "2")
    assert report.audits[0].ends == {0: (10, 11)}


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_a_batch_that_spark_planned_is_loaded(session_broker, topic, tmp_path):
    """A checkpoint of a streaming query whose last batch is not committed."""
    send(session_broker, topic, 10)
    checkpoint = Checkpoint(LocalFiles(tmp_path / "cp"))
    checkpoint.create()
    checkpoint.begin_at({topic: {0: 2}}, now_ms=1)
    checkpoint.plan(1, [offsets_json({topic: {0: 6}})], now_ms=1)
    reports = load(session_broker, topic, tmp_path)
    assert [report.audits[0].ends for report in reports] == [{0: (2, 6)}, {0: (6, 10)}]
    assert [report.is_repeated for report in reports] == [True, False]


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_a_batch_that_spark_planned_of_a_topic_made_anew(session_broker, topic, tmp_path):
    """With failOnDataLoss=false the batch begins at the start of the new topic."""
    send(session_broker, topic, 10)
    checkpoint = Checkpoint(LocalFiles(tmp_path / "cp"))
    checkpoint.create()
    with Cluster(session_broker.bootstrap_servers) as cluster:
        ids = {topic: cluster.topic(topic).topic_id}
    checkpoint.plan(0, [offsets_json({topic: {0: 5}}, {topic: b"\1" * 16})], now_ms=1)
    checkpoint.commit_batch(0)
    checkpoint.plan(1, [offsets_json({topic: {0: 7}}, ids)], now_ms=1)
    reports = load(session_broker, topic, tmp_path)
    assert [report.audits[0].ends for report in reports] == [{0: (0, 7)}, {0: (7, 10)}]
    assert checkpoint.last_committed().topic_ids() == ids


def test_a_topic_made_anew_before_its_batch_is_run_again(session_broker, tmp_path):
    """The offsets of the batch exist in the new topic, too: only its id is different."""

    def fails(tasks):
        raise OSError(5, "no", "worker")

    with Cluster(session_broker.bootstrap_servers) as cluster:
        create_topics(cluster, [NewTopic("anew", partition_count=1, configs=KEPT_TEXT)])
        send(session_broker, "anew", 10)
        with pytest.raises(OSError):
            load(session_broker, "anew", tmp_path, run=fails)
        delete_topics(cluster, ["anew"])
        create_topics(cluster, [NewTopic("anew", partition_count=1, configs=KEPT_TEXT)])
    send(session_broker, "anew", 15)
    with pytest.raises(DataLoss, match="topic anew was deleted before batch 0 could read it"):
        load(session_broker, "anew", tmp_path)
    reports = load(session_broker, "anew", tmp_path, failOnDataLoss="false")
    assert [[audit.ends for audit in report.audits] for report in reports] == [[], [{0: (0, 15)}]]
    assert len(reports[0].lost) == 1
