#!/usr/bin/env python3
"""Compares groups, transactions and compaction of barnabas and Apache Kafka: the same load in
turns.

    python bench/coordinators.py [--quick] [--rows commits,join,...] [--repeats N] [--kafka VERSION]
                                 [--out DIR] [--data DIR] [--list] [--draw coordinators.json]

The turns, the table and the plot are those of bench/broker.py; README.md says how it compares. Here
no member waits for others to join on either side (group.initial.rebalance.delay.ms=0, and for the
consumer protocol group.consumer.assignment.interval.ms=0). `fsync` means log.durability=fsync and
log.flush.interval.messages=1.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import compaction
import consumer_members
import groups
import transactions
from rows import GB, Bar, Figures, Measure, Row, echoed, serving
from sides import Ours, Side, Theirs, apart, cpu_s, create_topic, resident_mb, wait_for_metadata

from broker import Bench, compared

CONNECTIONS = 64
RATE = 10_000
TXN_TOPIC, TXN_PARTITIONS, PRODUCERS = "txn", 10, 16
HEAP_ROUNDS = 3
EQUAL = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
# So many members in one group: all join before the group is assigned. An assignment for each
# join would be quadratic on both sides.
MANY = {
    "group.consumer.assignment.interval.ms": "1000",
    "group.consumer.max.session.timeout.ms": "1800000",
    "group.consumer.session.timeout.ms": "1800000",
}


@dataclass
class Size:
    """The size of a run. `quick` shows that everything works; its results are of a cold JVM."""

    seconds: float
    warm_s: float
    repeats: int
    group_members: int
    members: int
    loaded_groups: int
    compacted_bytes: int
    compacted_keys: int
    bulk_bytes: int = 0  # how much memory bench/broker.py recycles before a run, above its least


WARM_JOINS = 5
GROUPS_A_ROUND = 5
FULL = Size(6, 20, 5, 500, 10_000, 100_000, 2 * GB, 1_000_000)
QUICK = Size(2, 2, 1, 50, 500, 2_000, GB // 5, 50_000)


class Coordinators(Bench):
    """The turns of bench/broker.py with other sides and another warm-up."""

    size: Size

    def sides(self, name: str, durability: str) -> tuple[Ours, Theirs]:
        more = dict(EQUAL)
        if name == "compaction":
            more |= compaction.SETTINGS
        if name == "members-consumer":
            more |= MANY
        ours = Ours(self.data / f"{name}-barnabas", durability)
        ours.settings = dict(more)
        if durability == "fsync":
            more["log.flush.interval.messages"] = "1"
        return ours, Theirs(self.version, self.data / f"{name}-kafka", settings=more)

    def prepare(self, side: Side, durability: str) -> None:
        create_topic(side.port, groups.TOPIC, 10)
        create_topic(side.port, TXN_TOPIC, TXN_PARTITIONS)
        for name in ("warm", *_committers()):
            groups.find(side.port, name)
        # Kafka's transactions/s still grow after half a minute of each kind.
        for load, times in ((commits, 1), (first_version, 2), (second_version, 2)):
            until = time.monotonic() + times * self.size.warm_s
            while time.monotonic() < until:
                load(self, side)
        if durability == "os":
            for _ in range(WARM_JOINS):
                joined(self, side)
                joined_consumers(self, side)


# ---- rows ----
def _committers() -> list[str]:
    return [f"committer-{at:02d}" for at in range(CONNECTIONS)]


def commits(bench: Bench, side: Side, rate: int = RATE) -> Figures:
    """Commits one offset each for 64 groups on as many connections, at `rate` commits a second."""
    requests, size, answer = groups.commits_of(_committers())
    files = {"request": bench.data / "commits.request", "wants": bench.data / "commits.answer"}
    files["request"].write_bytes(requests)
    files["wants"].write_bytes(answer)
    words: dict[str, object] = {**files, "each": size, "connections": CONNECTIONS, "rate": rate}
    return bench.counted(side, "-", "ask", words | {"seconds": bench.size.seconds})


def commits_apart(bench: Bench, side: Side) -> Figures:
    """Commits at half the rate, which one core of Kafka can serve; the load runs on another
    core."""
    with apart(side.pid):
        return commits(bench, side, RATE // 2)


def heartbeats(bench: Bench, side: Side) -> Figures:
    """Sends heartbeats of 64 members of as many groups at 10,000/s, after a warm-up of two
    seconds."""
    name = f"beating-{time.monotonic_ns()}"
    wanted = groups.heartbeats_of(side.port, [f"{name}-{at:02d}" for at in range(CONNECTIONS)])
    files = {"request": bench.data / "beats.request", "wants": bench.data / "beats.answer"}
    files["request"].write_bytes(wanted[0])
    files["wants"].write_bytes(wanted[2])
    words: dict[str, object] = {
        **files,
        "each": wanted[1],
        "connections": CONNECTIONS,
        "rate": RATE,
    }
    bench.counted(side, "-", "ask", words | {"seconds": 2})
    return bench.counted(side, "-", "ask", words | {"seconds": bench.size.seconds})


def commits_echoed(
    bench: Bench,
    side: Side,
    rate: int = RATE,
    placed: Callable[[int], AbstractContextManager[None]] = nullcontext,
) -> Figures:
    """Sends the same requests to a program without a broker, which writes each to a file."""
    requests, size, answer = groups.commits_of(_committers())
    path = bench.data / "commits.request"
    path.write_bytes(requests)
    words: dict[str, object] = {"request": path, "each": size, "connections": CONNECTIONS}
    words |= {"rate": rate, "seconds": bench.size.seconds}
    return echoed(bench, [str(8 + len(answer)), str(bench.data / "echo.log")], words, placed)


def commits_echoed_apart(bench: Bench, side: Side) -> Figures:
    return commits_echoed(bench, side, RATE // 2, apart)


def several(join: Measure) -> Measure:
    """Returns the medians of several groups: a single group takes only a few turns of the
    scheduler."""

    def measure(bench: Bench, side: Side) -> Figures:
        found = [join(bench, side) for _ in range(GROUPS_A_ROUND)]
        return {name: statistics.median(row[name] for row in found) for name in found[0]}

    return measure


def join_echoed(bench: "Coordinators", side: Side) -> Figures:
    """Sends the same group to a program that only waits for all members and answers."""
    count = bench.size.group_members
    with serving([str(bench.joinecho), str(count)]) as (port, _):
        return groups.join_at(port, bench.joinload, count, "echo")


def joined(bench: "Coordinators", side: Side) -> Figures:
    name = f"join-{time.monotonic_ns()}"
    return groups.join(side, bench.joinload, bench.size.group_members, name)


def joined_consumers(bench: "Coordinators", side: Side) -> Figures:
    name = f"consumers-{time.monotonic_ns()}"
    return consumer_members.join(side, bench.size.group_members, name, groups.TOPIC, 10)


def first_version(bench: "Coordinators", side: Side) -> Figures:
    return measured_transactions(bench, side, transactions.Producer)


def second_version(bench: "Coordinators", side: Side) -> Figures:
    return measured_transactions(bench, side, transactions.SecondProducer)


def measured_transactions(
    bench: "Coordinators", side: Side, kind: type[transactions.Producer]
) -> Figures:
    cpu = cpu_s(side.pid)
    *took, seconds = transactions.run(
        side.port, PRODUCERS, bench.size.seconds, TXN_TOPIC, TXN_PARTITIONS,
        f"t{time.monotonic_ns()}", kind,
    )  # fmt: skip
    cpu = cpu_s(side.pid) - cpu
    took.sort()
    return {
        "transactions_per_s": len(took) / seconds,
        "cpu_us_per_transaction": cpu * 1e6 / len(took),
        "p50_us": took[len(took) // 2] * 1e6,
        "p99_us": took[int(len(took) * 0.99)] * 1e6,
    }


def compacted(bench: "Coordinators", side: Side) -> Figures:
    """Measures the second pass of a broker: Kafka's first pass warms its JIT."""
    size = bench.size
    side.start()
    try:
        rows = compaction.batches(size.compacted_keys)
        compaction.clean(side, "warm", rows, size.compacted_bytes // 4)
        return compaction.clean(side, "compacted", rows, size.compacted_bytes)
    finally:
        side.stop()
        bench.forget(side)


def live_bytes(side: Side) -> float:
    """Returns the resident set of barnabas, or the live heap of Kafka's JVM, in bytes."""
    if isinstance(side, Ours):
        return resident_mb(side.pid) * 1e6
    found = 0.0
    for _ in range(HEAP_ROUNDS):
        subprocess.run(["jcmd", str(side.pid), "GC.run"], check=True, capture_output=True)
        time.sleep(0.5)
        said = subprocess.run(
            ["jcmd", str(side.pid), "GC.heap_info"], check=True, capture_output=True, text=True
        ).stdout
        word = next(part for part in said.split("used ")[1:]).split("K")[0]
        found = int(word) * 1024.0
    return found


def alone(side: Side, count: int, name: str) -> None:
    """Creates groups with one joined and assigned member each: this adds the cost of a group to a
    member."""
    groups.join_alone(side.port, [f"{name}-{at:06d}" for at in range(count)])


def together(side: Side, count: int, name: str) -> None:
    """Creates one group of the consumer protocol with so many members."""
    consumer_members.fill(side, count, name, groups.TOPIC)


def members(join: Callable[[Side, int, str], None]) -> Measure:
    def measure(bench: Bench, side: Side) -> Figures:
        return memory(bench, side, join)

    return measure


def memory(bench: Bench, side: Side, join: Callable[[Side, int, str], None]) -> Figures:
    """Measures the memory of so many members in a broker that has had a few members before."""
    count = bench.size.members
    side.start()
    try:
        create_topic(side.port, groups.TOPIC, 10)
        groups.find(side.port, "first")
        join(side, 200, "before")
        before = live_bytes(side)
        join(side, count, "group")
        time.sleep(1)
        each = (live_bytes(side) - before) / count
        return {"loaded_mb": resident_mb(side.pid), "bytes_each": each}
    finally:
        side.stop()
        bench.forget(side)


def loaded(bench: "Coordinators", side: Side) -> Figures:
    """Measures from the start of the process until the last of many groups with one offset is
    served."""
    count = bench.size.loaded_groups
    names = [f"group-{at:06d}" for at in range(count)]
    side.start()
    try:
        create_topic(side.port, groups.TOPIC, 10)
        groups.find(side.port, names[0])
        side.stop()
        side.start()
        groups.find(side.port, names[0])
        empty = live_bytes(side)
        groups.commit_each(side.port, names)
        side.stop()
        began = time.monotonic()
        side.spawn()
        wait_for_metadata(side.port, 1)
        groups.wait_until_loaded(side.port, names[:: max(count // 1000, 1)])
        seconds, cpu = time.monotonic() - began, cpu_s(side.pid)
        return {
            "load_s": seconds,
            "start_cpu_s": cpu,
            "bytes_each": (live_bytes(side) - empty) / count,
        }
    finally:
        side.stop()
        bench.forget(side)


def all_rows() -> list[Row]:
    slow = (Bar("p99_us", most=1 / 2), Bar("cpu_us_per_request", most=1 / 3))
    committed = ("requests_per_s", "p50_us", "p99_us", "cpu_us_per_request")
    txn = ("transactions_per_s", "p50_us", "p99_us", "cpu_us_per_transaction")
    twice = (Bar("transactions_per_s", least=2),)
    return [
        Row("commits", "10,000 offset commits/s, 64 groups", "os", commits, committed, slow),
        Row("commits-echo", "no broker: such commits echoed, each written to a file", "os",
            commits_echoed, ("p50_us", "cpu_us_per_request"), ours_only=True),
        Row("commits-apart", "5,000 offset commits/s, the load on a core of its own", "os",
            commits_apart, committed),
        Row("commits-apart-echo", "no broker: such commits echoed, the load on a core of its own",
            "os", commits_echoed_apart, ("p50_us", "cpu_us_per_request"), ours_only=True),
        Row("heartbeats", "10,000 heartbeats/s, 64 members", "os", heartbeats, committed),
        Row("join", "a group of 500 (classic)", "os", several(joined), ("all_assigned_s", "cpu_s"),
            (Bar("all_assigned_s", most=1),)),
        Row("join-echo", "no broker: such a group, waited for and answered", "os",
            several(join_echoed), ("all_assigned_s",), ours_only=True),
        Row("join-consumer", "a group of 500 (consumer protocol)", "os", several(joined_consumers),
            ("all_assigned_s", "cpu_s"), (Bar("all_assigned_s", most=1 / 2),)),
        Row("transactions", "read-process-write transactions, 16 producers", "os",
            first_version, txn, twice),
        Row("transactions-2", "the same as clients of 4.x do them (KIP-890)", "os",
            second_version, txn, twice),
        Row("commits-fsync", "10,000 offset commits/s, 64 groups, flushed", "fsync", commits,
            committed, slow),
        Row("transactions-fsync", "read-process-write transactions, 16 producers, flushed",
            "fsync", first_version, txn, twice),
        Row("transactions-2-fsync", "the same as clients of 4.x do them (KIP-890), flushed",
            "fsync", second_version, txn, twice),
        Row("compaction", "compaction of 2 GB with 1 M keys", "own", compacted,
            ("cpu_s_per_gb", "mb_per_s", "bytes_after"), (Bar("cpu_s_per_gb", most=1 / 3),),
            rounds=2),
        Row("members", "10,000 members in groups of one", "own", members(alone),
            ("loaded_mb", "bytes_each"),
            (Bar("loaded_mb", most=1 / 4), Bar("bytes_each", most=1 / 4)), rounds=2),
        Row("members-consumer", "10,000 members of one group (consumer protocol)", "own",
            members(together), ("loaded_mb", "bytes_each"),
            (Bar("loaded_mb", most=1 / 4), Bar("bytes_each", most=1 / 4)), rounds=2),
        Row("groups", "start with 100,000 groups", "own", loaded,
            ("load_s", "start_cpu_s", "bytes_each"), (Bar("load_s", most=5, own=True),), rounds=2),
    ]  # fmt: skip


def main(words: list[str]) -> int:
    description = __doc__.partition("\n")[0]
    return compared(words, description, "coordinators", all_rows(), (FULL, QUICK), Coordinators)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
