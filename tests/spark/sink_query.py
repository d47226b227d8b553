"""A query of micro-batches without Spark, as a process that is killed: `sink_query.py JSON`.

It uses the sink as Spark does: batch after batch, with tasks in separate processes that are
retried when they die, then the commit, then a file with the number of the next batch. It prints
each step; at the step of the fault it kills itself, or waits for the signal to
continue (the broker is killed meanwhile).
"""

import json
import multiprocessing
import os
import signal
import sys
import uuid
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from barnabas.spark.sink_commit import commit_batch, now_ms
from barnabas.spark.sink_ledger import open_ledger
from barnabas.spark.sink_options import parse_sink_options
from barnabas.spark.sink_tasks import TaskPlace, write_task

ATTEMPTS = 4
TASK_STEPS = ("began", "half", "written")
DRIVER_STEPS = (
    "tasks written",
    "claimed",
    "decision written",
    "decided",
    "ended 1",
    "ended 2",
    "done",
    "others aborted",
    "committed",
)


def values(batches, tasks, rows):
    """The expected values of the topic."""
    return sorted(
        f"{batch}/{task}/{row}"
        for batch in range(batches)
        for task in range(tasks)
        for row in range(rows)
    )


def batch_of(text):
    """Made from CSV, because pyarrow would import pandas in each process to convert Python's
    values."""
    (found,) = csv.read_csv(pa.BufferReader(text.encode())).to_batches()
    return found


class Query:
    def __init__(self, given):
        self.given = given
        self.options = parse_sink_options(given["options"])
        self.run = uuid.uuid4().hex
        self.checkpoint = Path(given["checkpoint"])
        self.fault = given.get("fault") or {}
        self.told = os.dup(0)  # multiprocessing closes a child's standard input

    def reached(self, step, batch, attempt=0):
        print(f"batch {batch}: {step}", flush=True)
        fault = self.fault
        if (fault.get("batch"), fault.get("step"), attempt) != (batch, step, 0):
            return
        if fault["how"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        print("waiting", flush=True)
        assert os.read(self.told, 1)

    def go(self):
        with self.options.cluster() as cluster:
            open_ledger(cluster, self.options.ledger)
        begin = int(self.checkpoint.read_text()) if self.checkpoint.exists() else 0
        for batch in range(begin, self.given["batches"]):
            planned_ms = now_ms()
            written = [self.task(batch, task, planned_ms) for task in range(self.given["tasks"])]
            self.reached("tasks written", batch)
            commit_batch(
                self.options, written, reached=lambda step, batch=batch: self.reached(step, batch)
            )
            self.reached("committed", batch)
            self.checkpoint.write_text(str(batch + 1))
        print("query ended", flush=True)

    def task(self, batch, task, planned_ms):
        for attempt in range(ATTEMPTS):
            ours, theirs = multiprocessing.Pipe()
            place = TaskPlace(self.given["key"], self.run, batch, planned_ms, is_stream=True)
            child = multiprocessing.get_context("fork").Process(
                target=self.attempt, args=(theirs, place, task, attempt)
            )
            child.start()
            theirs.close()
            try:
                found = ours.recv()
            except EOFError:
                found = None
            child.join()
            print(f"batch {batch}: task {task} attempt {attempt} {child.exitcode}", flush=True)
            if found is not None and child.exitcode == 0:
                return found
        raise SystemExit("a task failed too often")

    def attempt(self, pipe, place, task, attempt):
        def pieces():
            self.reached(f"task {task} began", place.batch, attempt)
            rows = self.given["rows"]
            for begin, end in ((0, rows // 2), (rows // 2, rows)):
                names = [f"{place.batch}/{task}/{row}" for row in range(begin, end)]
                # They are larger than a batch, so that the producer has sent half of the rows.
                yield batch_of("\n".join(["value,key", *(f"{name},k{name}" for name in names)]))
                if begin == 0:
                    self.reached(f"task {task} half", place.batch, attempt)

        found = write_task(self.options, place, pieces())
        self.reached(f"task {task} written", place.batch, attempt)
        pipe.send(found)


if __name__ == "__main__":
    Query(json.loads(sys.argv[1])).go()
