"""The files that a task of a load writes."""

import gc
import sys

import pyarrow as pa
import pytest

from barnabas.spark.files import LocalFiles
from barnabas.spark.load.hour_files import HourFiles


def batch(count):
    header = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    return pa.record_batch(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array([b"%0100d" % i for i in range(count)]),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([1_763_999_999_000_000] * count, pa.timestamp("us", "UTC")),
            "headers": pa.nulls(count, pa.list_(header)),
        }
    )


def test_files_of_a_failed_task_are_removed_silently(tmp_path, monkeypatch):
    """A Parquet writer that is freed while open would write its footer into the deleted file."""
    said = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    with pytest.raises(ConnectionError, match="gone"):
        with HourFiles(LocalFiles(str(tmp_path)), "staging", "part", 20_000) as files:
            files.add(batch(150))
            (file,) = files._open.values()
            file.write()
            assert file.size_bytes > 0 and list(tmp_path.rglob("*.parquet"))
            del file
            raise ConnectionError("gone")
    del files
    gc.collect()
    assert said == []
    assert not list(tmp_path.rglob("*.parquet"))
