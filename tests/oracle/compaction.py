"""Compaction in plain Python, on decoded batches: the twin of cext.log.cleaner.compact.

`passes` is one pass over a whole log as Kafka's cleaner defines it: which records are kept, what
happens to empty batches, and when tombstones and markers are removed.
"""

from dataclasses import dataclass, replace

HORIZON_UNSET = -1


@dataclass(frozen=True)
class Row:
    """A batch. `records`: (offset, timestamp, key, value). `commit`: None for a data batch."""

    base: int
    last: int
    producer: int
    epoch: int
    sequence: int
    transactional: bool
    commit: bool | None
    codec: int
    records: tuple
    horizon: int = HORIZON_UNSET


def rows_of(batches) -> list[Row]:
    found = []
    for batch in batches:
        records = batch.records
        commit = None
        if batch.control:
            commit = records[0].key[3] == 1 if records else False
        horizon = batch.base_timestamp if batch.delete_horizon else HORIZON_UNSET
        found.append(
            Row(
                batch.base_offset,
                batch.last_offset,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.transactional,
                commit,
                batch.codec,
                tuple((r.offset, r.timestamp, r.key, r.value) for r in records),
                horizon,
            )
        )
    return found


def aborted_spans(rows) -> dict[int, list[tuple[int, int]]]:
    """Producer: (first offset, marker's offset) of its aborted transactions."""
    first, spans = {}, {}
    for row in rows:
        if row.commit is None:
            if row.transactional:
                first.setdefault(row.producer, row.base)
        else:
            begun = first.pop(row.producer, None)
            if begun is not None and not row.commit:
                spans.setdefault(row.producer, []).append((begun, row.base))
    return spans


def is_aborted(row, spans) -> bool:
    return row.transactional and any(a <= row.base < b for a, b in spans.get(row.producer, []))


def latest_of(rows, spans, dirty_from: int, end: int) -> dict[bytes, int]:
    latest = {}
    for row in rows:
        if row.commit is None and not is_aborted(row, spans):
            for offset, _, key, _ in row.records:
                if dirty_from <= offset < end and key is not None:
                    latest[key] = offset
    return latest


def last_of_producers(rows) -> dict[int, tuple[int, int]]:
    """Producer: its epoch, and its last data offset or -1 after a newer epoch's marker."""
    found = {}
    for row in rows:
        if row.producer >= 0:
            if row.commit is None:
                found[row.producer] = row.epoch, row.last
            elif row.producer not in found or found[row.producer][0] < row.epoch:
                found[row.producer] = row.epoch, -1
    return found


def passes(rows, *, spans, producers, dirty_from, end, now, retention, below) -> list[Row]:
    """Returns the log after one pass, with the rows from `below` on unchanged."""
    latest = latest_of(rows, spans, dirty_from, end)
    kept, with_data = [], set()
    for row in rows:
        if row.base >= below:
            kept.append(row)
            continue
        epoch, last = producers.get(row.producer, (-1, -2))
        is_last = row.producer >= 0 and (
            row.last == last
            if last >= 0
            else last == -1 and row.commit is not None and epoch == row.epoch
        )
        past = row.horizon != HORIZON_UNSET and row.horizon <= now
        if row.commit is None:
            needless = is_aborted(row, spans)
            if row.transactional:
                with_data.add(row.producer)
            records = (
                ()
                if needless
                else tuple(
                    record
                    for record in row.records
                    if record[0] >= end
                    or (
                        record[2] is not None
                        and record[0] >= latest.get(record[2], -1)
                        and (record[3] is not None or not past)
                    )
                )
            )
            sets_horizon = any(value is None for *_, value in records)
        else:
            needless = not row.records or row.producer not in with_data
            if row.records:
                with_data.discard(row.producer)
            records = () if needless and past else row.records
            sets_horizon = needless
        if records:
            horizon = row.horizon
            if horizon == HORIZON_UNSET and sets_horizon:
                horizon = now + retention
            kept.append(replace(row, records=records, horizon=horizon))
        elif is_last:
            kept.append(replace(row, records=(), codec=0, horizon=HORIZON_UNSET))
    return kept
