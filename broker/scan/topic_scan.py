"""`scan`: plans the ranges to read, and returns the records as columns, tables and frames."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from barnabas.cext.record.column_stream import arrow_stream
from barnabas.cext.record.columns import Columns, ColumnsBuilder
from barnabas.client import Cluster
from barnabas.scan.failures import NoFilesHere
from barnabas.scan.log_directory import LogDirectory
from barnabas.scan.plan import (
    Part,
    Places,
    ask_bounds,
    ask_times,
    checked_partitions,
    directories_here,
    directories_in,
    moments,
    ranges,
)
from barnabas.scan.readers import Limits, Range, read_files, read_wire
from barnabas.scan.sealed import read_manifest
from barnabas.scan.times import offset_at

# The bytes of one batch. Small batches make a process touch less new memory: a scan of 5 M records
# of 100 bytes takes 40 ns of CPU a record, and 43 ns with 4 MiB. Tables keep all batches, so theirs
# are larger.
BATCH_BYTES = 1024 * 1024
TABLE_BATCH_BYTES = 4 * 1024 * 1024
BATCH_BYTES_MAX = 1024 * 1024 * 1024  # one more record batch still fits Arrow's 2 GiB
BODY_BYTES_MAX = 256 * 1024 * 1024
ISOLATION = {"read_committed": True, "read_uncommitted": False}
Source = Literal["auto", "files", "wire"]


class Scan:
    """A planned scan of `ranges`. Each call of a method reads them again, and raises ScanError,
    OSError and errors of client and broker."""

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        parts: Sequence[Part],
        *,
        committed: bool,
        limits: Limits,
        table_batch_bytes: int,
        bootstrap_servers: str | None,
    ) -> None:
        self.topic, self.topic_id, self.parts = topic, topic_id, list(parts)
        self._committed, self._limits = committed, limits
        self._table_limits = replace(limits, batch_bytes=table_batch_bytes)
        self._bootstrap_servers = bootstrap_servers

    @property
    def ranges(self) -> list[Range]:
        """Returns the ranges that this scan reads, one for each partition with records."""
        return [part.wanted for part in self.parts]

    def __iter__(self) -> Iterator[Columns]:
        return self.batches()

    def batches(self) -> Iterator[Columns]:
        """Yields batches of records, partition by partition and by ascending offset, with one batch
        in memory at a time."""
        for part in self.parts:
            yield from self.batches_of(part)

    def batches_of(self, part: Part) -> Iterator[Columns]:
        """Yields the batches of one part of `parts`, by ascending offset. Use it to read parts in
        several processes."""
        return self._read(part, self._limits)

    def _read(self, part: Part, limits: Limits) -> Iterator[Columns]:
        if part.directory is not None:
            yield from read_files(
                part.directory,
                part.wanted,
                committed=self._committed,
                limits=limits,
                topic_id=self.topic_id,
            )
            return
        assert self._bootstrap_servers is not None, "a part without files has a broker"
        with Cluster(self._bootstrap_servers) as cluster:
            yield from read_wire(
                cluster,
                part.wanted,
                committed=self._committed,
                limits=limits,
                topic_id=self.topic_id,
            )

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Returns Arrow's stream of batches, for example for
        pyarrow.RecordBatchReader.from_stream(scan)."""
        return arrow_stream(self.batches())

    def columns(self, threads: int | None = None) -> list[Columns]:
        """Returns all records. `threads` read partitions in parallel; None: as many as there are
        cores."""
        count = min(threads or os.cpu_count() or 1, len(self.parts))

        def read(part: Part) -> list[Columns]:
            return list(self._read(part, self._table_limits))

        if count <= 1:
            found = [read(part) for part in self.parts]
        else:
            with ThreadPoolExecutor(count, "scan") as pool:
                found = list(pool.map(read, self.parts))
        return [columns for rows in found for columns in rows]

    def to_arrow(self, threads: int | None = None) -> Any:
        """Returns all records as a pyarrow.Table, whose memory they fill. `threads` as in
        `columns`. Needs pyarrow."""
        import pyarrow

        found = [pyarrow.record_batch(columns) for columns in self.columns(threads)]
        if not found:
            found = [pyarrow.record_batch(ColumnsBuilder().finish())]
        return pyarrow.Table.from_batches(found)

    def to_pandas(self, **options: Any) -> Any:
        """Returns a pandas.DataFrame (needs pyarrow too); `options` are those of
        Table.to_pandas."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """Returns all records as a polars.DataFrame. Needs polars, but not pyarrow."""
        import polars

        return polars.DataFrame(self)

    def to_duckdb(self, connection: Any = None) -> Any:
        """Returns a duckdb relation over the records in memory. `connection`: None for duckdb's
        default."""
        import duckdb

        table = self.to_arrow()
        return duckdb.from_arrow(table, connection=connection or duckdb.default_connection())


def scan(
    topic: str | None = None,
    *,
    bootstrap_servers: str = "127.0.0.1:9092",
    partitions: Iterable[int] | None = None,
    start: Places = "earliest",
    end: Places = "latest",
    isolation: str = "read_committed",
    source: Source = "auto",
    log_dirs: Iterable[str | os.PathLike[str]] | None = None,
    snapshot: str | os.PathLike[str] | None = None,
    batch_bytes: int | None = None,
    body_bytes_max: int = BODY_BYTES_MAX,
) -> Scan:
    """Plans a scan of a topic.

    `start`, `end`: an offset, "earliest", "latest", a datetime with a time zone (the first record
    at or after it), or a dict with one of these for each partition. The scan does not read `end`
    itself. `source`: "files" and "wire" allow only that way; "auto" prefers files. `log_dirs`:
    where this machine has the broker's log directories, if the paths differ from the broker's.
    `snapshot`: a directory that `seal` made; the scan then needs no broker. `batch_bytes`: the size
    at which a batch is yielded, None for BATCH_BYTES and, in tables, TABLE_BATCH_BYTES.
    `body_bytes_max`: the limit of the decompressed bytes of one batch.

    Raises ValueError, OutOfRange, NoFilesHere, UnknownTopicOrPartition and other errors of broker
    and client.
    """
    if isolation not in ISOLATION:
        raise ValueError(f"isolation is one of {', '.join(ISOLATION)}, not {isolation!r}")
    if source not in ("auto", "files", "wire"):
        raise ValueError(f"source is auto, files or wire, not {source!r}")
    if batch_bytes is not None and not 0 < batch_bytes <= BATCH_BYTES_MAX:
        raise ValueError(f"batch_bytes is 1 to {BATCH_BYTES_MAX}, not {batch_bytes}")
    committed = ISOLATION[isolation]
    limits = Limits(batch_bytes=batch_bytes or BATCH_BYTES, body_bytes_max=body_bytes_max)
    how: dict[str, Any] = {
        "committed": committed,
        "limits": limits,
        "table_batch_bytes": batch_bytes or TABLE_BATCH_BYTES,
    }
    if snapshot is not None:
        return _scan_snapshot(Path(snapshot), topic, partitions, start, end, how)
    if topic is None:
        raise ValueError("name a topic")
    with Cluster(bootstrap_servers) as cluster:
        known = cluster.topic(topic)
        indexes = checked_partitions(topic, known.partitions, partitions)
        bounds = ask_bounds(cluster, topic, indexes)
        of_time = ask_times(cluster, topic, moments(start, end, indexes))
        wanted = ranges(topic, bounds, start, end, committed, of_time)
        places = _places(cluster, topic, [r.partition for r in wanted], source, log_dirs)
    parts = [Part(r, places.get(r.partition)) for r in wanted]
    return Scan(
        topic,
        known.topic_id,
        parts,
        bootstrap_servers=bootstrap_servers,
        **how,
    )


def _places(
    cluster: Cluster,
    topic: str,
    partitions: Sequence[int],
    source: Source,
    log_dirs: Iterable[str | os.PathLike[str]] | None,
) -> dict[int, LogDirectory]:
    if source == "wire":
        return {}
    if log_dirs is not None:
        return directories_in(log_dirs, topic, partitions, cluster.topic(topic).topic_id)
    found = directories_here(cluster, topic, partitions)
    missing = sorted(set(partitions) - set(found))
    if source == "files" and missing:
        raise NoFilesHere(
            f"the files of partitions {missing} of topic {topic} are not on this machine"
        )
    return found


def _scan_snapshot(
    directory: Path,
    topic: str | None,
    partitions: Iterable[int] | None,
    start: Places,
    end: Places,
    how: dict[str, Any],
) -> Scan:
    name, topic_id, bounds = read_manifest(directory)
    if topic not in (None, name):
        raise NoFilesHere(f"{directory} is a snapshot of topic {name}, not of {topic}")
    indexes = checked_partitions(name, bounds, partitions)
    known = {index: bounds[index] for index in indexes}
    places = directories_in([directory], name, indexes, topic_id)
    of_time: dict[int, dict[int, int]] = {index: {} for index in indexes}
    for ms, asked in moments(start, end, indexes).items():
        for index in asked:
            whole = Range(name, index, known[index].earliest, known[index].high_watermark)
            of_time[index][ms] = offset_at(places[index], whole, ms, how["limits"])
    wanted = ranges(name, known, start, end, how["committed"], of_time)
    parts = [Part(r, places[r.partition]) for r in wanted]
    return Scan(name, topic_id, parts, bootstrap_servers=None, **how)
