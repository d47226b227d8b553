"""The complete hours of a topic, and late records.

An hour is complete when all partitions were read to their ends at a time at least `lateness` after
the hour's end. Its file holds its counts; the loader writes it once. Hours without records get a
file too, for a week back at most, so that a reader that waits for each hour in turn can go on. The
loader loads records whose timestamp lies in a complete hour like all others. The audit of their
batch lists them as late, and a file beside the hour's own holds their number.

The audits carry the counts of incomplete hours from batch to batch, at most OPEN_HOURS_MAX of them.
When timestamps fall into more different hours, the newest get no completeness file.
"""

import json
from collections.abc import Iterable

from barnabas.spark.load.layout import (
    COMPLETE,
    HOUR_MS,
    Audit,
    Count,
    counts_document,
    hour_of,
    hour_text,
    total,
)
from barnabas.spark.store import Files

OPEN_HOURS_MAX = 10_000
EMPTY_HOURS_MAX = 7 * 24
Open = dict[int, dict[int, Count]]


def complete_hours(files: Files, topic: str) -> set[int]:
    """Returns the complete hours of a topic, in hours since 1970. Raises OSError."""
    found = set()
    for name in files.names(f"{topic}/{COMPLETE}"):
        try:
            hour = hour_of(name.removesuffix(".json"))
        except ValueError:  # the file of late records, or not a file of a load
            continue
        if hour is not None:
            found.add(hour)
    return found


def carried(before: Audit | None, audit: Audit, complete: set[int]) -> Open:
    """Returns the value of `audit.open`: the earlier counts without complete hours, and the batch's
    own."""
    found: Open = {}
    for hour, rows in (before.open if before else {}).items():
        if hour not in complete:
            found[hour] = {index: Count(c.records, c.bytes) for index, c in rows.items()}
    for (at, index), count in audit.counts.items():
        if at is not None and at not in complete:
            found.setdefault(at, {}).setdefault(index, Count()).add(count.records, count.bytes)
    return dict(sorted(found.items())[:OPEN_HOURS_MAX])


def write_complete(
    files: Files, topic: str, opened: Open, *, read_to_ms: int, lateness_ms: int
) -> list[int]:
    """Writes the files of the hours that became complete, and returns the hours, in hours since
    1970. `read_to_ms`: the time, in ms since 1970, when all partitions were read to their ends.
    Raises OSError."""
    before = complete_hours(files, topic)
    last = (read_to_ms - lateness_ms) // HOUR_MS - 1
    due = {hour for hour in opened if hour <= last and hour not in before}
    if first := min((hour for hour in {*before, *due} if hour > last - EMPTY_HOURS_MAX), default=0):
        due |= set(range(first, last + 1)) - before
    for hour in sorted(due):
        rows = opened.get(hour, {})
        document = {
            "topic": topic,
            "hour": hour_text(hour),
            "completeMs": read_to_ms,
            **_counts(rows.values()),
            "partitions": counts_document({hour: rows})[str(hour_text(hour))],
        }
        _put_once(files, f"{topic}/{COMPLETE}/{hour_text(hour)}.json", document)
    return sorted(due)


def write_late(files: Files, audit: Audit) -> None:
    """Writes the counts of the late records of a published batch. Raises OSError."""
    for hour in audit.late:
        rows = {index: count for (at, index), count in audit.counts.items() if at == hour}
        text = hour_text(hour)
        document = {
            "topic": audit.topic,
            "hour": text,
            "batch": audit.batch_id,
            **_counts(rows.values()),
            "partitions": counts_document({hour: rows})[str(text)],
        }
        name = f"{text}+late+{audit.batch_id}.json"
        _put_once(files, f"{audit.topic}/{COMPLETE}/{name}", document)


def _counts(rows: Iterable[Count]) -> dict[str, int]:
    found = total(rows)
    return {"records": found.records, "bytes": found.bytes}


def _put_once(files: Files, path: str, document: object) -> None:
    try:
        files.put_if_absent(path, json.dumps(document, indent=1, ensure_ascii=False).encode())
    except FileExistsError:
        pass  # an interrupted attempt wrote it
