"""Finds anomalies, which a correct broker never causes, in the history of a run.

One function for each anomaly, named as Jepsen names those of its Kafka workload; a function gives
one sentence for each case. Every reader of a history reads committed records only.

Not an anomaly: records of several transactions that are interleaved in a partition (Kafka
orders records, not transactions, so writes give no edges for G1c), and a reader that sees one
partition of a transaction before another.
"""

import graphlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from history.evidence import NEVER, Evidence
from history.model import Operation, Outcome, Send

SHOWN_MAX = 5  # the most cases of one anomaly in a report
Cases = Iterator[str]


def lost_write(seen: Evidence) -> Cases:
    """Acknowledged, and not read, although a reader read a later record."""
    for one, send in unread_writes(seen):
        if is_passed(seen, one, send):
            yield f"{named(one, send)} is nowhere"


def unseen(seen: Evidence) -> Cases:
    """Acknowledged, and not read, at the end of a partition that was read to its end."""
    for one, send in unread_writes(seen):
        if not is_passed(seen, one, send) and send.partition in seen.scanned:
            yield f"{named(one, send)} is not read to the end"


def unread_writes(seen: Evidence) -> Iterator[tuple[Operation, Send]]:
    for one, send in seen.sends():
        if (send.outcome or one.outcome) == Outcome.OK and send.value not in seen.readers:
            yield one, send


def is_passed(seen: Evidence, one: Operation, send: Send) -> bool:
    if send.offset is not None:
        return send.offset < seen.end(send.partition)
    return any(
        other.value in seen.readers and other.partition == send.partition
        for other in one.sends[one.sends.index(send) + 1 :]
    )


def vanished(seen: Evidence) -> Cases:
    """Read once, and missing when the whole partition was read later."""
    for process, scans in seen.scans.items():
        began = min(one.began for one in scans)
        covered = {partition for one in scans for partition in one.scanned}
        there = {read.value for one in scans for read in one.reads}
        for one in seen.operations:
            if one.ended is None or one.ended >= began:
                continue
            for read in one.reads:
                if read.partition in covered and read.value not in there:
                    where = f"{read.partition}@{read.offset}"
                    yield f"{read.value} was at {where} for {one.process}, not for {process}"


def duplicate(seen: Evidence) -> Cases:
    """One value at two offsets."""
    for value, places in seen.places.items():
        if len(places) > 1:
            yield f"{value} is at {sorted(places)}"


def inconsistent_offset(seen: Evidence) -> Cases:
    """Two values at one offset, each read there or acknowledged with that offset."""
    for partition, offsets in seen.at.items():
        for offset, values in offsets.items():
            if len(values) > 1:
                yield f"{partition}@{offset} holds {sorted(values)}"


def invented(seen: Evidence) -> Cases:
    """Read, and never sent to that partition."""
    for value, places in seen.places.items():
        expected = seen.sent[value][1].partition if value in seen.sent else None
        for partition, offset in places:
            if partition != expected:
                yield f"{value} at {partition}@{offset} was never sent there"


def torn_transaction(seen: Evidence) -> Cases:
    """A part of a transaction was read, and a part is missing."""
    for one in seen.operations:
        if one.transactional and one.outcome != Outcome.FAIL:
            there = [send.value for send in one.sends if send.value in seen.readers]
            gone = [
                send.value
                for send in one.sends
                if send.value not in seen.readers and seen.is_due(send)
            ]
            if there and gone:
                yield f"of a transaction of {one.process} {there} is there, {gone} is not"


def aborted_read(seen: Evidence) -> Cases:
    """G1a: an aborted or refused record was read, or an offset that was committed in its
    transaction."""
    for value, readers in seen.readers.items():
        one, send = seen.sent.get(value, (None, None))
        if one is not None and (send.outcome or one.outcome) == Outcome.FAIL:
            yield f"{named(one, send)} failed, and {readers[0].process} read it"
    for fetch, partition, position in fetches(seen):
        if position is not None and position not in possible(seen, fetch, partition):
            if any(one.commits[partition] == position for one in failed(seen, fetch, partition)):
                yield f"{told(fetch, partition, position)}, which was aborted"


def dirty_read(seen: Evidence) -> Cases:
    """Read before the commit was asked for."""
    for value, readers in seen.readers.items():
        one, send = seen.sent.get(value, (None, None))
        if one is None or not one.transactional or one.outcome == Outcome.FAIL:
            continue
        for reader in readers:
            if (reader.ended or NEVER) < (one.deciding or NEVER):
                yield f"{named(one, send)} was not committed when {reader.process} read it"


def circular_information(seen: Evidence) -> Cases:
    """G1c: transactions that read each other's records."""
    graph: dict[int, set[int]] = defaultdict(set)
    for at, one in enumerate(seen.operations):
        if one.transactional and one.sends:
            for read in one.reads:
                if read.value in seen.sent:
                    graph[at].add(id(seen.sent[read.value][0]))
    numbers = {id(one): at for at, one in enumerate(seen.operations)}
    edges = {at: {numbers[other] for other in others} for at, others in graph.items()}
    for at, others in edges.items():
        if at in others:
            yield f"a transaction of {seen.operations[at].process} read what it sent"
            others.discard(at)
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        names = [f"{seen.operations[at].process}#{at}" for at in error.args[1]]
        yield f"a circle of reads: {', '.join(names)}"


def poll_pairs(seen: Evidence) -> Iterator[tuple[Operation, str, int, int]]:
    """Two offsets that a process read one after the other in a partition."""
    last: dict[tuple[str, str], int] = {}
    for one in seen.operations:
        if one.fresh:
            last = {key: offset for key, offset in last.items() if key[0] != one.process}
        for read in one.reads:
            before = last.get((one.process, read.partition))
            if before is not None:
                yield one, read.partition, before, read.offset
            last[one.process, read.partition] = read.offset


def poll_skip(seen: Evidence) -> Cases:
    """A reader skipped records that others read."""
    for one, partition, before, after in poll_pairs(seen):
        between = seen.seen_between(partition, before, after)
        if between:
            yield f"{one.process} went from {partition}@{before} to {after}, past {between[:9]}"


def nonmonotonic_poll(seen: Evidence) -> Cases:
    """A reader went back, or stayed, without a seek or a new assignment."""
    for one, partition, before, after in poll_pairs(seen):
        if after <= before:
            yield f"{one.process} went from {partition}@{before} back to {after}"


def nonmonotonic_send(seen: Evidence) -> Cases:
    """A record that an idempotent sender sent later has a smaller offset than an earlier one."""
    for (process, partition), stream in seen.streams().items():
        last = -1
        for _, send in stream:
            offset = seen.place(send)
            if offset is not None:
                if offset < last:
                    yield f"{send.value} of {process} is at {partition}@{offset}, after {last}"
                last = max(last, offset)


def send_skip(seen: Evidence) -> Cases:
    """A sender without gaps lost a record outside transactions, and a later one is there."""
    for (process, partition), stream in seen.streams().items():
        plain = [(one, send) for one, send in stream if not one.transactional]
        there = [at for at, (_, send) in enumerate(plain) if send.value in seen.readers]
        for one, send in plain[: there[-1] if there else 0]:
            open_ = (send.outcome or one.outcome) != Outcome.FAIL
            if open_ and send.value not in seen.readers and seen.is_due(send):
                yield f"{send.value} of {process} is not in {partition}, and a later one is"


# -- committed offsets ------------------------------------------------------------------------


def fetches(seen: Evidence) -> Iterator[tuple[Operation, str, int | None]]:
    for one in seen.operations:
        if one.outcome == Outcome.OK:
            for partition, position in one.positions.items():
                yield one, partition, position


def committers(seen: Evidence, fetch: Operation, partition: str) -> list[Operation]:
    """The operations that may have committed before a fetch was answered."""
    rows = seen.commits[fetch.group, partition]
    return rows[: bisect_left(rows, fetch.ended or NEVER, key=lambda one: one.began)]


def failed(seen: Evidence, fetch: Operation, partition: str) -> list[Operation]:
    rows = committers(seen, fetch, partition)
    return [one for one in rows if seen.outcome(one) == Outcome.FAIL]


def possible(seen: Evidence, fetch: Operation, partition: str) -> set[int | None]:
    """The positions that a fetch may find: possibly written, and not certainly overwritten."""
    rows = [one for one in committers(seen, fetch, partition) if seen.outcome(one) != Outcome.FAIL]
    sure = [
        one
        for one in rows
        if seen.outcome(one) == Outcome.OK and seen.certain_from(one) < fetch.began
    ]
    newest = max((one.began for one in sure), default=-1)
    found: set[int | None] = {
        one.commits[partition]
        for one in rows
        if seen.outcome(one) != Outcome.OK or seen.certain_from(one) >= newest
    }
    return found if sure else found | {None}


def lost_commit(seen: Evidence) -> Cases:
    """A committed position went back: a fetch returned an overwritten position, or none."""
    for fetch, partition, position in fetches(seen):
        rows = possible(seen, fetch, partition)
        if position not in rows:
            before = [
                one.commits[partition]
                for one in committers(seen, fetch, partition)
                if seen.outcome(one) != Outcome.FAIL
            ]
            if position is None or position in before:
                yield f"{told(fetch, partition, position)}, not one of {sorted(map(str, rows))}"


def invented_commit(seen: Evidence) -> Cases:
    """A position that no client committed."""
    for fetch, partition, position in fetches(seen):
        before = [one.commits[partition] for one in committers(seen, fetch, partition)]
        if position is not None and position not in before:
            yield f"{told(fetch, partition, position)}, which nobody committed"


def group_skip(seen: Evidence) -> Cases:
    """Records below the committed position of a group that no member read."""
    read: dict[tuple[str, str], set[int]] = defaultdict(set)
    committed: dict[tuple[str, str], int] = defaultdict(int)
    for one in seen.operations:
        if one.group:
            for row in one.reads:
                read[one.group, row.partition].add(row.offset)
            if seen.outcome(one) == Outcome.OK:
                for partition, offset in one.commits.items():
                    key = one.group, partition
                    committed[key] = max(committed[key], offset)
    for (group, partition), end in committed.items():
        passed = set(seen.seen_between(partition, -1, end)) - read[group, partition]
        if passed:
            yield f"no member of {group} read {partition}@{sorted(passed)[:9]}, below {end}"


# -- copies -----------------------------------------------------------------------------------


def copies(seen: Evidence) -> dict[tuple[str, str], list[tuple[int, int, int]]]:
    """By source and target partition: (source offset, offset, value) of the copies."""
    found = defaultdict(list)
    for value in seen.readers:
        send = seen.sent[value][1] if value in seen.sent else None
        if send is not None and send.source in seen.sent:
            source = seen.sent[send.source][1]
            start, offset = seen.place(source), seen.place(send)
            if start is not None and offset is not None:
                found[source.partition, send.partition].append((start, offset, value))
    return found


def copied_twice(seen: Evidence) -> Cases:
    """Exactly once is violated: there are two committed copies of one record."""
    by_source = defaultdict(list)
    for value in seen.readers:
        if value in seen.sent and seen.sent[value][1].source is not None:
            by_source[seen.sent[value][1].source].append(value)
    for source, values in by_source.items():
        if len(values) > 1:
            yield f"{source} was copied as {sorted(values)}"


def copy_lost(seen: Evidence) -> Cases:
    """A position was committed with copies, and a record below it has none."""
    done: dict[str, int] = defaultdict(int)
    for one in seen.operations:
        is_copy = any(send.source is not None for send in one.sends)
        if is_copy and seen.outcome(one) == Outcome.OK:
            for partition, offset in one.commits.items():
                done[partition] = max(done[partition], offset)
    with_copy = {
        send.source for one, send in seen.sends() if seen.outcome(one, send) != Outcome.FAIL
    }
    for partition, end in done.items():
        for offset in seen.seen_between(partition, -1, end):
            for value in seen.at[partition][offset] - with_copy:
                yield f"{value} at {partition}@{offset} has no copy; committed is {end}"


def copy_order(seen: Evidence) -> Cases:
    """Copies are in another order than their sources."""
    for (source, target), rows in copies(seen).items():
        last = -1
        for start, offset, value in sorted(rows):
            if offset < last:
                yield f"{value} at {target}@{offset}, a copy of {source}@{start}, is too early"
            last = max(last, offset)


ANOMALIES: dict[str, Callable[[Evidence], Cases]] = {
    "lost-write": lost_write,
    "unseen": unseen,
    "vanished": vanished,
    "duplicate": duplicate,
    "inconsistent-offset": inconsistent_offset,
    "invented": invented,
    "torn-transaction": torn_transaction,
    "G1a": aborted_read,
    "dirty-read": dirty_read,
    "G1c": circular_information,
    "poll-skip": poll_skip,
    "nonmonotonic-poll": nonmonotonic_poll,
    "nonmonotonic-send": nonmonotonic_send,
    "send-skip": send_skip,
    "lost-commit": lost_commit,
    "invented-commit": invented_commit,
    "group-skip": group_skip,
    "copied-twice": copied_twice,
    "copy-lost": copy_lost,
    "copy-order": copy_order,
}


@dataclass
class Verdict:
    """`valid` None means "unknown": `why` says what the run did not show."""

    valid: bool | None
    why: str = ""
    anomalies: dict[str, list[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"valid: {'unknown' if self.valid is None else self.valid} {self.why}".rstrip()]
        for name, cases in self.anomalies.items():
            lines.append(f"{name}: {len(cases)}")
            lines += [f"    {case}" for case in cases[:SHOWN_MAX]]
        return "\n".join(lines)


def check(operations: list[Operation]) -> Verdict:
    """The verdict on a whole history."""
    seen = Evidence(operations)
    found = {name: list(look(seen)) for name, look in ANOMALIES.items()}
    found = {name: cases for name, cases in found.items() if cases}
    if found:
        return Verdict(False, anomalies=found)
    if not seen.readers:
        return Verdict(None, "nothing was read")
    if not any(seen.outcome(one, send) == Outcome.OK for one, send in seen.sends()):
        return Verdict(None, "nothing that was sent was acknowledged")
    waiting = sum(1 for _ in unread_writes(seen))
    if waiting:
        return Verdict(None, f"{waiting} acknowledged records lie past the end of all reads")
    return Verdict(True)


def named(one: Operation, send: Send) -> str:
    where = send.partition if send.offset is None else f"{send.partition}@{send.offset}"
    return f"{send.value} of {one.process} at {where}"


def told(fetch: Operation, partition: str, position: int | None) -> str:
    return f"{fetch.process} was told {position} for {partition} in {fetch.group}"
