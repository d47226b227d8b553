"""kill -9 of a worker, of the driver, or of the broker, in the middle of a batch: afterwards each
record is in the sink exactly once. The long form runs ten seeds of each.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from durability.broker_process import BrokerProcess, free_port
from long_form import pick
from spark.conftest import session_settings
from spark.queries import landed, run_once, stream
from spark.spark_home import environment

from barnabas.client import Cluster, NewTopic, create_topics
from barnabas.spark.batch import plan_batch, read_task
from barnabas.spark.options import parse_options

pytestmark = pytest.mark.java

PARTITIONS, RECORDS = 4, 10_000  # of each partition
OFFSETS = pa.schema([("offset", pa.int64())])
DRIVER = Path(__file__).with_name("driver.py")


def seeds(count):
    return range(pick(short=count, long=10))


class Topic:
    """A topic with records, on a broker in another process, which tests kill and start again."""

    def __init__(self, folder):
        self._arguments = (folder / "data", free_port())
        self.process = BrokerProcess(*self._arguments)
        self.bootstrap_servers = self.process.address
        self.name = "loaded"
        with Cluster(self.bootstrap_servers) as cluster:
            create_topics(cluster, [NewTopic(self.name, partition_count=PARTITIONS)])
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "queue.buffering.max.messages": 10**6,
                "batch.num.messages": 400,  # batches are not split, and a task must return several
            }
        )
        for partition in range(PARTITIONS):
            for i in range(RECORDS):
                producer.produce(self.name, b"%0100d" % i, partition=partition)
        assert producer.flush(60) == 0

    def start_again(self):
        self.process.process.wait(20)
        self.process = BrokerProcess(*self._arguments)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    topic = Topic(tmp_path_factory.mktemp("killed"))
    yield topic
    topic.process.__exit__()


@pytest.fixture
def all_of_it():
    return [(partition, i) for partition in range(PARTITIONS) for i in range(RECORDS)]


def striking_source(name, marker, after, pid):
    """A format that kills a process with -9 (pid 0: the worker itself) after one of its tasks has
    passed on a number of Arrow batches, once."""
    from barnabas.spark.readers import StreamReader
    from barnabas.spark.source import BarnabasSource

    class Striking(StreamReader):
        def read(self, partition):
            for count, batch in enumerate(super().read(partition)):
                yield batch
                if count == after:
                    try:
                        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                    except FileExistsError:
                        continue
                    os.kill(pid or os.getpid(), signal.SIGKILL)

    class Source(BarnabasSource):
        @classmethod
        def name(cls):
            return name

        def streamReader(self, schema):
            plain = super().streamReader(schema)
            return Striking(plain.options, plain.schema)

    return Source


def options_of(topic, source, seed):
    chance = random.Random(seed)
    return {
        "subscribe": topic.name,
        "startingOffsets": "earliest",
        "source": source,
        "batchBytes": 50_000,
        "maxOffsetsPerTrigger": chance.choice([12_500, 22_500, 50_000]),
    }


@pytest.mark.parametrize("seed", seeds(2))
def test_a_worker_is_killed(spark, loaded, tmp_path, all_of_it, seed):
    marker = tmp_path / "struck"
    kind = f"worker-{seed}"
    after = random.Random(seed).randrange(4)
    spark.dataSource.register(striking_source(kind, str(marker), after, 0))
    source = ("files", "wire")[seed % 2]
    frame = stream(spark, loaded, kind, **options_of(loaded, source, seed))
    run_once(frame, tmp_path)  # Spark runs the task again
    assert marker.exists()
    assert landed(spark, tmp_path) == all_of_it


@pytest.mark.parametrize("seed", seeds(2))
def test_the_broker_is_killed(spark, loaded, tmp_path, all_of_it, seed):
    marker = tmp_path / "struck"
    kind = f"broker-{seed}"
    after = random.Random(seed).randrange(4)
    pid = loaded.process.process.pid
    spark.dataSource.register(striking_source(kind, str(marker), after, pid))
    back = threading.Thread(target=loaded.start_again)
    source = ("wire", "files")[seed % 2]
    frame = stream(spark, loaded, kind, **options_of(loaded, source, seed))
    guard = loaded.process.process
    back.start()
    try:
        run_once(frame, tmp_path)
    finally:
        back.join(60)
    assert marker.exists() and guard.returncode == -signal.SIGKILL
    assert landed(spark, tmp_path) == all_of_it


def test_a_task_waits_for_a_broker_that_comes_back(loaded):
    """A task that begins while the broker is down waits, because the driver has reached the
    broker."""
    given = {"kafka.bootstrap.servers": loaded.bootstrap_servers, "source": "wire"}
    tasks = plan_batch(parse_options(given | {"subscribe": loaded.name}))
    loaded.process.kill()
    back = threading.Timer(1, loaded.start_again)
    back.start()
    try:
        found = sum(len(batch) for batch in read_task(tasks[0], OFFSETS))
    finally:
        back.join(60)
    assert found == RECORDS


def batches(place, name):
    folder = place / "checkpoint" / name
    found = os.listdir(folder) if folder.exists() else []
    return {int(n) for n in found if n.isdecimal()}


def kill_between_offsets_and_commits(command, place, batch, pause_s):
    """Returns whether the kill hit a batch that was planned and not committed."""
    driver = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # the processes of Python and its JVM
        env=os.environ | environment(),
    )
    said = threading.Thread(target=lambda: lines.extend(driver.stderr), daemon=True)
    lines: list[str] = []
    said.start()
    deadline = time.monotonic() + 120
    while batch not in batches(place, "offsets"):
        assert driver.poll() is None, "".join(lines)[-3000:]
        assert time.monotonic() < deadline, "the batch is not planned"
        time.sleep(0.005)
    time.sleep(pause_s)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(20)
    said.join(20)
    return max(batches(place, "offsets")) not in batches(place, "commits")


@pytest.mark.parametrize("seed", seeds(1))
def test_the_driver_is_killed(spark, loaded, tmp_path, all_of_it, seed):
    chance = random.Random(seed)
    options = options_of(loaded, ("files", "wire")[seed % 2], seed)
    given = {
        "settings": session_settings(tmp_path / "warehouse"),
        "format": "barnabas",
        "options": {name: str(value) for name, value in options.items()}
        | {"kafka.bootstrap.servers": loaded.bootstrap_servers},
        "place": str(tmp_path),
        "pause_s": 0.3,  # a batch has several Arrow batches, so that the kill comes before its end
    }
    is_one_batch = options["maxOffsetsPerTrigger"] >= PARTITIONS * RECORDS
    fired = kill_between_offsets_and_commits(
        [sys.executable, str(DRIVER), json.dumps(given)],
        tmp_path,
        min(chance.randrange(2), 0 if is_one_batch else 1),
        chance.uniform(0, 0.6),
    )
    assert fired, "the batch was committed before the kill"
    run_once(stream(spark, loaded, **options), tmp_path)
    assert landed(spark, tmp_path) == all_of_it
