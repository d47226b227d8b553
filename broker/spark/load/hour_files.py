"""Writes Parquet files by the hour of their records; closes a file at about the configured size.

A file buffers its records until they fill a row group. The buffers of all hours together have at
most BUFFERED_BYTES_MAX, and at most OPEN_FILES_MAX files are open. Beyond these limits the task
writes the largest buffer, or closes the least recently used file. So records that alternate between
many hours make more and smaller files.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from barnabas.spark.load.layout import HOUR_MAX, HOUR_US, Count, DataFile, hour_directory
from barnabas.spark.scalars import scalar
from barnabas.spark.store import Files

if TYPE_CHECKING:
    import pyarrow

ROW_GROUP_BYTES = 32 * 1024 * 1024
BUFFERED_BYTES_MAX = 64 * 1024 * 1024
OPEN_FILES_MAX = 16
COMPRESSION = "snappy"  # Spark's default for parquet


class HourFile:
    """A file in progress."""

    def __init__(self, files: Files, path: str, name: str, hour: int | None) -> None:
        self.name, self.hour = name, hour
        self.records, self.buffered_bytes = 0, 0
        self._batches: list[pyarrow.RecordBatch] = []
        self._writer: pyarrow.parquet.ParquetWriter | None = None
        self._context = ExitStack()
        self._sink = self._context.enter_context(files.create(path))

    @property
    def size_bytes(self) -> int:
        """Returns the bytes written so far."""
        return int(self._sink.tell())

    def add(self, batch: "pyarrow.RecordBatch") -> None:
        self._batches.append(batch)
        self.buffered_bytes += batch.nbytes
        self.records += batch.num_rows

    def write(self) -> None:
        """Writes the buffered records as a row group."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, table.schema, compression=COMPRESSION)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._batches, self.buffered_bytes = [], 0

    def close(self) -> DataFile:
        """Writes the buffered records, completes the file and returns its description."""
        self.write()
        assert self._writer is not None, "a file is begun for a record"
        self._writer.close()
        size_bytes = self.size_bytes
        self._context.close()
        return DataFile(self.name, self.hour, self.records, size_bytes)

    def abandon(self, error: BaseException) -> None:
        """Deletes the incomplete file."""
        if self._writer is not None:
            # When Python collects an open writer, it would write its footer into the closed file,
            # and fail.
            self._writer.is_open = False
        self._context.__exit__(type(error), error, error.__traceback__)


class HourFiles:
    """The files of one task. It is a context manager: an error inside deletes the open files."""

    def __init__(self, files: Files, directory: str, stem: str, file_bytes: int) -> None:
        self._files, self._directory, self._stem = files, directory, stem
        self._file_bytes = file_bytes
        self._open: OrderedDict[int | None, HourFile] = OrderedDict()
        self.done: list[DataFile] = []
        self.counts: dict[int | None, Count] = {}

    def __enter__(self) -> "HourFiles":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        for hour in list(self._open):
            if error is None:
                self._close(hour)
            else:
                self._open.pop(hour).abandon(error)

    def add(self, batch: "pyarrow.RecordBatch") -> None:
        """Adds rows to the files of their hours. Raises OSError."""
        for hour, rows in by_hour(batch):
            self.counts.setdefault(hour, Count()).add(rows.num_rows, body_bytes(rows))
            self._add(hour, rows)

    def _add(self, hour: int | None, rows: "pyarrow.RecordBatch") -> None:
        file = self._open.get(hour)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            first = rows["offset"][0].as_py()
            name = f"{hour_directory(hour)}/{self._stem}+{first:020d}.parquet"
            file = HourFile(self._files, f"{self._directory}/{name}", name, hour)
            self._open[hour] = file
        self._open.move_to_end(hour)
        file.add(rows)
        if file.buffered_bytes >= min(ROW_GROUP_BYTES, self._file_bytes):
            file.write()
        while sum(one.buffered_bytes for one in self._open.values()) > BUFFERED_BYTES_MAX:
            max(self._open.values(), key=lambda one: one.buffered_bytes).write()
        if file.size_bytes >= self._file_bytes:
            self._close(hour)

    def _close(self, hour: int | None) -> None:
        self.done.append(self._open.pop(hour).close())


def by_hour(batch: "pyarrow.RecordBatch") -> Iterator[tuple[int | None, "pyarrow.RecordBatch"]]:
    """Yields (hours since 1970 or None, the rows of that hour in the order of their offsets)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = batch["timestamp"].cast(pa.int64())
    none, first, last, hour = (scalar(n, pa.int64()) for n in (None, 0, HOUR_MAX, HOUR_US))
    hours = pc.divide(times, hour)
    known = pc.and_(pc.greater_equal(times, first), pc.less_equal(hours, last))
    hours = pc.if_else(known, hours, none)
    counts = pc.value_counts(hours)
    if len(counts) > 1:
        table = pa.table({"hour": hours, "offset": batch["offset"]})
        order = pc.sort_indices(table, [("hour", "ascending"), ("offset", "ascending")])
        batch, counts = batch.take(order), pc.value_counts(hours.take(order))
    at = 0
    for row in counts.to_pylist():
        yield row["values"], batch.slice(at, row["counts"])
        at += row["counts"]


def body_bytes(batch: "pyarrow.RecordBatch") -> int:
    """Returns the bytes of keys, values and headers."""
    import pyarrow.compute as pc

    headers = pc.list_flatten(batch["headers"])
    parts = [batch["key"], batch["value"], headers.field("key"), headers.field("value")]
    return sum(pc.sum(pc.binary_length(part)).as_py() or 0 for part in parts)
