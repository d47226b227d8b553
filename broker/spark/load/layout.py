"""File names and JSON documents of loaded data (__init__.py lists them), and their counts."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from barnabas.spark.failures import CheckpointError, TruncatedFile, UnknownVersion
from barnabas.spark.store import SUCCESS, Files

HOUR_US = 3_600_000_000
HOUR_MS = 3_600_000
NO_HOUR = "__HIVE_DEFAULT_PARTITION__"  # Hive's name for null
STAGING, OFFSETS, COMPLETE = "_staging", "_offsets", "_complete"
DELTA_LOG, LOADS = "_delta_log", "_loads"
BATCH = "batch="
VERSION = 1
HOUR_MAX = 2_932_896 * 24 - 1  # the last hour of the year 9999


def hour_text(hour: int | None) -> str | None:
    """Returns 2026-11-22T04 for hours since 1970, UTC; None for None."""
    return (
        None if hour is None else datetime.fromtimestamp(hour * 3600, UTC).strftime("%Y-%m-%dT%H")
    )


def hour_of(text: str | None) -> int | None:
    """Returns the hours since 1970 for 2026-11-22T04; None for None. Raises ValueError."""
    if text is None:
        return None
    return int(datetime.strptime(text + "+0000", "%Y-%m-%dT%H%z").timestamp()) // 3600


def hour_directory(hour: int | None) -> str:
    """Returns date=2026-11-22/hour=04 for hours since 1970; Hive's null partition for None."""
    text = hour_text(hour)
    if text is None:
        return f"date={NO_HOUR}/hour={NO_HOUR}"
    date, _, of_day = text.partition("T")
    return f"date={date}/hour={of_day}"


def batch_directory(place: str, batch_id: int) -> str:
    return f"{place}/{BATCH}{batch_id}"


@dataclass(slots=True)
class Count:
    """A number of records and their bytes, which are those of keys, values and headers."""

    records: int = 0
    bytes: int = 0

    def add(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.bytes += size_bytes


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of data. Its name is a path below its batch's directory."""

    name: str
    hour: int | None
    records: int
    size_bytes: int  # of the file

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "records": self.records, "size": self.size_bytes}


@dataclass(frozen=True, slots=True)
class Loaded:
    """The range that a task read, and the files that it wrote."""

    topic: str
    partition: int
    start: int
    end: int
    attempt: int  # Spark's attempt number: 0 for the first attempt
    directory: str  # below _staging
    files: tuple[DataFile, ...]
    hours: dict[int | None, Count]

    @property
    def offsets_name(self) -> str:
        return f"{OFFSETS}/{self.partition:05d}+{self.start:020d}.json"

    @property
    def records(self) -> int:
        return sum(count.records for count in self.hours.values())

    @property
    def body_bytes(self) -> int:
        return sum(count.bytes for count in self.hours.values())

    def document(self) -> dict[str, Any]:
        """Returns the content of its offsets file."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "start": self.start,
            "end": self.end,
            "attempt": self.attempt,
            "records": self.records,
            "bytes": self.body_bytes,
            "files": [file.document() for file in self.files],
        }


@dataclass(slots=True)
class Audit:
    """The audit of a topic's part of a batch. `open`: counts by hour and partition of all batches
    so far, for the hours that were not complete before this one."""

    query_id: str
    batch_id: int
    topic: str
    topic_id: str
    planned_ms: int
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)  # partition: start, end
    counts: dict[tuple[int | None, int], Count] = field(default_factory=dict)  # hour, partition
    late: list[int] = field(default_factory=list)  # hours that were complete before the batch
    open: dict[int, dict[int, Count]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    retried: int = 0  # tasks that were not the first attempt for their range

    @property
    def records(self) -> int:
        return sum(count.records for count in self.counts.values())

    @property
    def body_bytes(self) -> int:
        return sum(count.bytes for count in self.counts.values())

    def late_records(self) -> int:
        return sum(c.records for (hour, _), c in self.counts.items() if hour in self.late)

    def rows(self) -> list[dict[str, Any]]:
        """Returns the counts by partition and hour, as rows of a table."""
        return [
            {
                "topic": self.topic,
                "partition": partition,
                "hour": hour_text(hour),
                "records": count.records,
                "bytes": count.bytes,
                "late": hour in self.late,
            }
            for (hour, partition), count in sorted(
                self.counts.items(), key=lambda row: (row[0][0] or -1, row[0][1])
            )
        ]

    def encoded(self) -> bytes:
        document = {
            "version": VERSION,
            "query": self.query_id,
            "batch": self.batch_id,
            "topic": self.topic,
            "topicId": self.topic_id,
            "plannedMs": self.planned_ms,
            "partitions": {
                str(index): {"start": start, "end": end}
                for index, (start, end) in sorted(self.ends.items())
            },
            "records": self.records,
            "bytes": self.body_bytes,
            "retried": self.retried,
            "hours": self.rows(),
            "open": counts_document(self.open),
            "files": sorted(self.files),
        }
        return json.dumps(document, indent=1, ensure_ascii=False).encode()


def counts_document(counts: dict[int, dict[int, Count]]) -> dict[str, Any]:
    """Returns counts by hour and partition as a JSON document."""
    return {
        str(hour_text(hour)): {
            str(index): {"records": count.records, "bytes": count.bytes}
            for index, count in sorted(rows.items())
        }
        for hour, rows in sorted(counts.items())
    }


def read_audit(files: Files, place: str, batch_id: int) -> Audit | None:
    """Returns the audit of a batch; None when it is not published. `place`: the directory of the
    audits. Raises CheckpointError, OSError."""
    path = f"{batch_directory(place, batch_id)}/{SUCCESS}"
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    try:
        row = json.loads(data)
        if row["version"] != VERSION:
            raise UnknownVersion(files.shown(path), f"version {row['version']} is unknown")
        found = Audit(
            query_id=row["query"],
            batch_id=row["batch"],
            topic=row["topic"],
            topic_id=row["topicId"],
            planned_ms=row["plannedMs"],
            ends={int(i): (at["start"], at["end"]) for i, at in row["partitions"].items()},
            files=row["files"],
            retried=row["retried"],
        )
        for at in row["hours"]:
            hour = hour_of(at["hour"])
            found.counts[hour, at["partition"]] = Count(at["records"], at["bytes"])
            if at["late"] and hour is not None and hour not in found.late:
                found.late.append(hour)
        for text, rows in row["open"].items():
            counts = {int(i): Count(at["records"], at["bytes"]) for i, at in rows.items()}
            found.open[hour_of(text) or 0] = counts
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TruncatedFile(files.shown(path), f"not the audit of a load: {error}") from None
    return found


def batches_of(files: Files, place: str) -> list[int]:
    """Returns the batch numbers of the existing directories, ascending."""
    names = (name.removeprefix(BATCH) for name in files.names(place) if name.startswith(BATCH))
    return sorted(int(name) for name in names if name.isdecimal())


def total(counts: Iterable[Count]) -> Count:
    """Returns the sum of the counts."""
    found = Count()
    for count in counts:
        found.add(count.records, count.bytes)
    return found
