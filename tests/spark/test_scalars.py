"""Spark's workers read and load without importing pandas."""

import json
import subprocess
import sys

import pyarrow as pa
import pytest
from scan.scan_rows import produce
from spark.loading import KEPT
from spark.some_rows import rows

from barnabas.spark.scalars import scalar

LOAD = """
import json, sys
from barnabas.spark.batch import plan_batch, read_task
from barnabas.spark.load.delta import _rows_by_hour
from barnabas.spark.load.task import LoadTask, load_range
from barnabas.spark.options import parse_options

tasks = plan_batch(parse_options(json.loads(sys.argv[1])))
counts = [load_range(LoadTask(task, sys.argv[2], "staged", 10**6)).records for task in tasks]
counts += [sum(map(len, _rows_by_hour(task, {}))) for task in tasks]
print(json.dumps([counts, "pandas" in sys.modules]))
"""


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("ä name", pa.string()),
        ("", pa.string()),
        (-7, pa.int32()),
        (2**40, pa.int64()),
        (20_000, pa.date32()),
        (-1, pa.timestamp("ms")),
        (None, pa.int64()),
        (None, pa.date32()),
    ],
)
def test_a_scalar_is_pyarrows_own(value, kind):
    found = scalar(value, kind)
    assert found.equals(pa.scalar(value, kind)) and pa.repeat(found, 3).type == kind


@pytest.mark.topic(configs=KEPT)
def test_what_a_worker_does_takes_no_pandas(session_broker, topic, tmp_path):
    pytest.importorskip("pandas")
    produce(session_broker, topic, rows(200))
    given = {"kafka.bootstrap.servers": session_broker.bootstrap_servers, "subscribe": topic}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, json.dumps(given), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [[200, 200], False]
