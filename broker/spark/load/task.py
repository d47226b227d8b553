"""A worker's task: writes one range of a partition into files, with its offsets beside them."""

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.batch import Task, read_task
from barnabas.spark.files import files_at
from barnabas.spark.load.hour_files import HourFiles
from barnabas.spark.load.layout import Loaded

if TYPE_CHECKING:
    import pyarrow

COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True)
class LoadTask:
    """A task in plain values, because Spark pickles it. All of its paths are valid on every
    machine."""

    source: Task
    to: str  # URL of the load's target
    staging: str  # the directory of this run, below `to`
    file_bytes: int


def source_schema() -> "pyarrow.Schema":
    """Returns the schema of the rows that a batch reads, in spark-sql-kafka's order."""
    import pyarrow as pa

    element = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.field("element", element))),
        ]
    )


def load_range(task: LoadTask, attempt: int = 0) -> Loaded:
    """Reads a range and writes its files. Readers see the files only after they are published; each
    attempt has a directory of its own. Raises the errors of reading (scan, client, brokers) and
    OSError."""
    piece = task.source.piece
    files = files_at(task.to)
    directory = f"{task.staging}/{uuid.uuid4()}"
    stem = f"{piece.topic}+{piece.partition:05d}"
    with HourFiles(files, directory, stem, task.file_bytes) as hours:
        for batch in read_task(task.source, source_schema()):
            hours.add(batch.select(COLUMNS))
    found = Loaded(
        topic=piece.topic,
        partition=piece.partition,
        start=piece.start,
        end=piece.end,
        attempt=attempt,
        directory=directory,
        files=tuple(hours.done),
        hours=hours.counts,
    )
    with files.create(f"{directory}/{found.offsets_name}") as file:
        file.write(json.dumps(found.document(), indent=1, ensure_ascii=False).encode())
    return found
