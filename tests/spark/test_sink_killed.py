"""The sink when task, driver or broker is killed at each step: a reader of committed records sees
each row exactly once, and no transaction stays open. With our broker and with Apache Kafka."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compat.killable import killable
from compat.support import KAFKA, rival
from long_form import pick
from scan.scan_rows import consumed
from spark.sink_query import DRIVER_STEPS, TASK_STEPS, values

from barnabas.client import LATEST, Cluster, NewTopic, create_topics, list_offsets

HERE = Path(__file__).parent
SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    "auto.create.topics.enable": "false",
    "log.segment.bytes": "16777216",
}
TASKS, ROWS, PARTITIONS = 2, 40, 3
HOWS = ("kill", "wait")
SEEDS = pick(short=1, long=10)
KINDS = [
    "barnabas",
    pytest.param(
        "kafka",
        marks=[
            pytest.mark.java,
            pytest.mark.skipif(rival.missing(KAFKA) is not None, reason=str(rival.missing(KAFKA))),
        ],
    ),
]


class Place:
    """A topic and the runs of one query. options: how the query reaches the broker that the test
    reads by bootstrap_servers."""

    def __init__(self, folder, bootstrap_servers):
        self.folder, self.bootstrap_servers, self.batches = folder, bootstrap_servers, 0
        self.options = {"kafka.bootstrap.servers": bootstrap_servers}
        with Cluster(self.bootstrap_servers, patient=True) as cluster:
            create_topics(cluster, [NewTopic("t", PARTITIONS, 1)])

    def run(self, fault=None):
        """Runs the query to its end or to its fault. Returns its output."""
        given = {
            "options": {
                **self.options,
                "topic": "t",
                "kafka.batch.size": "200",
            },
            "key": "stream/q",
            "checkpoint": str(self.folder / "next"),
            "batches": self.batches,
            "tasks": TASKS,
            "rows": ROWS,
            "fault": fault,
        }
        process = subprocess.Popen(
            [sys.executable, str(HERE / "sink_query.py"), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        )
        said = []
        for line in process.stdout:
            said.append(line.rstrip("\n"))
            if said[-1] == "waiting":
                self.broker.kill()
                self.broker.start()
                process.stdin.write("\n")
                process.stdin.flush()
        process.stdin.close()
        return process.wait(60), said

    def survive(self, fault):
        """A run that first finishes the batch of the previous run, and then has its fault, which
        is proved to have fired."""
        status, said = self.run(fault)
        at = said.index(f"batch {fault['batch']}: {fault['step']}")
        if fault["how"] == "wait":
            assert said[at + 1] == "waiting"
        elif fault["step"].startswith("task "):
            assert any(line.endswith("attempt 0 -9") for line in said[at:]), said
        else:
            assert (status, said[-1]) == (-9, said[at]), said

    def end(self):
        status, said = self.run()
        assert (status, said[-1]) == (0, "query ended"), said

    def check(self):
        """Waits until no transaction is open, because markers come after the sink's commit."""
        deadline = time.monotonic() + 60
        while self.is_open():
            assert time.monotonic() < deadline, "a transaction stayed open"
            time.sleep(0.05)
        rows = sorted(row[5].decode() for row in consumed(self, "t"))
        assert rows == values(self.batches, TASKS, ROWS)

    def is_open(self):
        with Cluster(self.bootstrap_servers) as cluster:
            times = dict.fromkeys(range(PARTITIONS), LATEST)
            ends = [list_offsets(cluster, "t", times, isolation=level) for level in (0, 1)]
            return ends[0] != ends[1]


class PlaceOfItsOwn(Place):
    """A topic on a broker that may be killed."""

    def __init__(self, kind, folder):
        self.broker = killable(kind, folder / "broker", SETTINGS)
        self.broker.start()
        super().__init__(folder, self.broker.address)


@pytest.fixture
def place(tmp_path):
    made = []

    def make(kind):
        made.append(PlaceOfItsOwn(kind, tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.broker.stop()


TASK = [f"task 1 {step}" for step in TASK_STEPS]
# Each costs one or two starts; Apache Kafka, and a broker that restarts, get the most important
# ones.
TELLING = ["task 1 half", "tasks written", "decision written", "decided", "ended 1", "done"]


def survive_all(found, steps, how):
    for batch, step in enumerate(steps):
        found.batches = batch + 1
        found.survive({"batch": batch, "step": step, "how": how})
    found.end()
    found.check()


@pytest.mark.parametrize("kind", KINDS)
def test_driver_and_task_killed_at_each_step(place, kind):
    steps = [*TASK, *DRIVER_STEPS] if kind == "barnabas" else TELLING[2:5]
    survive_all(place(kind), steps, "kill")


def test_broker_killed_at_each_step(place):
    survive_all(place("barnabas"), TELLING, "wait")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_kills_at_random(place, seed):
    """Three kills of random processes; some hit the batch that an earlier kill interrupted."""
    chance = random.Random(seed)
    found = place("barnabas")
    steps = [f"task {chance.randrange(TASKS)} {step}" for step in TASK_STEPS]
    steps += ["tasks written", "claimed", "decision written", "decided", "ended 1", "done"]
    began = found.folder / "next"
    for _ in range(3):
        batch = int(began.read_text()) if began.exists() else 0
        found.batches = batch + 1
        fault = {"batch": batch, "step": chance.choice(steps), "how": chance.choice(HOWS)}
        _, said = found.run(fault)
        # A batch that an earlier run has decided does not reach every step.
        fired = said[-1] != "query ended" or any(
            line == "waiting" or line.endswith("attempt 0 -9") for line in said
        )
        assert fired or f"batch {batch}: {fault['step']}" not in said, (seed, fault, said)
    found.batches = 4
    found.end()
    found.check()
