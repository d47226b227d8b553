"""Queries and loads on a standalone Spark cluster: executors are processes on other hosts, each in
its own directory, and Spark starts copies of slow tasks."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from long_form import pick
from scan.scan_rows import consumed, produce
from spark import mini_hdfs
from spark.loading import HOUR_MS, KEPT, send, tree

pytest.importorskip("pyspark", reason="needs barnabas[spark]")

from spark.load_process import (
    RUN_S,
    SUBMIT,
    children_of,
    command,
    driver_words,
    offsets_of,
    staged,
    submitted,
    wait_for,
)
from spark.mini_yarn import MiniYarn
from spark.standalone import Standalone

pytestmark = pytest.mark.java

DRIVER = Path(__file__).with_name("cluster_driver.py")
EXECUTOR, DAEMON = "CoarseGrainedExecutorBackend", "pyspark.daemon"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    running = Standalone(tmp_path_factory.mktemp("standalone"))
    yield running
    running.close()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The driver's directory."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    (tmp_path / "driver").mkdir()
    monkeypatch.chdir(tmp_path / "driver")
    return tmp_path


def conf(settings):
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


@pytest.mark.topic(partitions=4)
def test_a_batch_and_a_stream_whose_task_has_a_copy(session_broker, topic, home, cluster):
    """Rows that the stopped attempt had sent are never committed."""
    other = session_broker.create_topic(f"{topic}-other", partitions=2)
    for partition in range(4):
        rows = [(None, b"%0100d" % i, None) for i in range(2000)]
        produce(session_broker, topic, rows, partition=partition)
    given = {
        "servers": session_broker.bootstrap_servers,
        "topic": topic,
        "other": other,
        "place": str(home / "checkpoint"),
    }
    settings = cluster.settings() | {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "500",  # the driver stops at the third
    }
    words = [SUBMIT, "--master", cluster.url, *conf(settings), *driver_words(), str(DRIVER)]
    done = subprocess.run(
        [*words, json.dumps(given)],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["counted"] == [8000, 8000]
    assert len(said["places"]) == 2 and said["driver"] not in said["places"]

    found = [tuple(map(int, row[5].split(b"/"))) for row in consumed(session_broker, other)]
    pairs = [row[:2] for row in found]
    assert len(pairs) == 8000
    assert set(pairs) == {(partition, i) for partition in range(4) for i in range(2000)}
    assert {row[2] for row in found} == {0, 1}  # some rows are from a copy
    sent = consumed(session_broker, other, isolation="read_uncommitted")
    assert len(sent) > 8000  # and the stopped attempt had sent some rows
    session_broker.delete_topic(other)


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_a_load_whose_task_has_a_copy(session_broker, topic, home, cluster):
    """A load by spark-submit; one of its Python workers is stopped while it writes."""
    values = [(None, os.urandom(600), None) for _ in range(10_000)]
    more = {"batch.num.messages": 2000, "linger.ms": 5}
    for partition in (0, 1):
        for _ in range(2):
            produce(session_broker, topic, values, partition=partition, **more)
    words = ("--file-size", "1", "--min-tasks", "8", "--option", "batchBytes=500000")
    given = command(session_broker, topic, home, *words, *conf(cluster.settings()))
    by_submit, env = submitted(given, cluster.url)
    process = subprocess.Popen(
        by_submit, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    wait_for(lambda: len(staged(home)) > 3, process)
    (executor,) = [pid for pid, line in children_of(cluster.workers[1]).items() if EXECUTOR in line]
    assert os.readlink(f"/proc/{executor}/cwd") != os.readlink(f"/proc/{process.pid}/cwd")
    # The newest one was forked for the task; the oldest one forks them.
    _, *workers = sorted(pid for pid, line in children_of(executor).items() if DAEMON in line)
    stopped = workers[-1]
    os.kill(stopped, signal.SIGSTOP)
    try:
        out, err = process.communicate(timeout=RUN_S)
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGKILL)
    assert process.returncode == 0, err[-3000:]
    batch, end = map(json.loads, out.splitlines())
    assert end["complete"] and end["records"] == 40_000
    assert batch["retried"] >= 1  # the published files are those of the copy
    pairs = offsets_of(home, topic)
    assert len(pairs) == len(set(pairs)) == 40_000
    assert tree(f"{home}/lake", "_staging") == []


@pytest.fixture
def yarn(tmp_path_factory):
    reason = mini_hdfs.missing()
    if reason:
        pytest.skip(reason)
    running = MiniYarn(tmp_path_factory.mktemp("yarn"))
    yield running
    running.close()


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_loads_on_yarn(session_broker, topic, home, yarn):
    """With the driver on the cluster. In the long form first with the driver on this machine, and
    the second load continues from the first one's checkpoint."""
    for turn, mode in enumerate(pick(short=("cluster",), long=("client", "cluster"))):
        for partition in (0, 1):
            produce(
                session_broker, topic, [(None, b"%d" % i, None) for i in range(700)],
                partition=partition,
            )  # fmt: skip
        settings = yarn.settings(home / "staging") | {"spark.submit.deployMode": mode}
        words = ["--master", "yarn", "--option", "source=wire", *conf(settings)]
        done = subprocess.run(
            command(session_broker, topic, home, *words),
            env=yarn.environment(),
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        rows = [(partition, i) for partition in (0, 1) for i in range(700 * (turn + 1))]
        assert sorted(offsets_of(home, topic)) == rows
        # Each application has a master and an executor; the master of the second is its driver.
        said = yarn.said()
        assert len(said) == 2 * (turn + 1)
        report = ("".join(said) if mode == "cluster" else done.stdout).splitlines()
        assert json.loads(report[-1])["complete"] and json.loads(report[-1])["records"] == 1400


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_a_cluster_loads_into_hdfs(session_broker, topic, home, hdfs, monkeypatch, cluster):
    """The executor is another process, which cannot read the segment files."""
    for partition in (0, 1):
        send(session_broker, topic, 500, partition=partition, step_ms=HOUR_MS // 200)
    monkeypatch.setenv("HADOOP_CONF_DIR", hdfs.conf_dir())
    place = f"{hdfs.hdfs}/{topic}-load"
    settings = cluster.settings() | {
        "spark.cores.max": "1",
        "spark.executorEnv.HADOOP_CONF_DIR": hdfs.conf_dir(),
    }
    words = ["--master", cluster.url, "--option", "source=wire", *conf(settings)]
    done = subprocess.run(
        command(session_broker, topic, place, *words, report=()),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "1000 records: complete" in done.stderr and "into 6 files" in done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["topic", "partition", "hour", "records", "bytes", "late"],
        *(
            [topic, str(partition), f"2025-11-24T{16 + n}", str(count), str(12 * count), "0"]
            for partition in (0, 1)
            for n, count in enumerate((200, 200, 100))
        ),
    ]
    shown = subprocess.run(
        [sys.executable, "-m", "barnabas", "checkpoint", "export", f"{place}/cp"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown.stdout) == {topic: {"0": 500, "1": 500}}
