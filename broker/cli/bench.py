"""`barnabas bench`: measures how fast a broker accepts and delivers records.

While it runs, a line on standard error counts (on a terminal). At the end it prints a table and a
histogram of the latencies, or one JSON document. The load generator is Python and runs on one core:
see client/load.py.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from barnabas.cli.argument_types import positive
from barnabas.cli.connecting import (
    cluster_of,
    connection_options,
    json_option,
    positive_seconds,
    speaks_to_broker,
)
from barnabas.cli.output import PROGRESS_EVERY_S, fail, json_document, say, table
from barnabas.client import EARLIEST, Cluster, list_offsets
from barnabas.client.load import Shape, Totals, Until, consume, produce, through
from barnabas.client.producer import ACKS
from barnabas.wire.compression import CODECS

PERCENTILES = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"))
BAR_WIDTH = 50
STAMP_BYTES = 16  # `latency` writes the time and a mark at the beginning of each value
SECONDS = 10.0

EPILOG = """\
examples:
  barnabas bench produce speed                       10 seconds, as fast as possible, acks=all
  barnabas bench produce speed --rate 50000 --acks 1 --codec lz4
  barnabas bench consume speed                       all records of the topic
  barnabas bench latency speed --rate 1000           from one producer to one consumer
  barnabas bench produce speed --json > result.json

The broker creates a missing topic if auto.create.topics.enable is true. A latency counts from the
time at which its request (in `latency`: its record) was due.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    verbs = parser.add_subparsers(dest="verb", metavar="produce|consume|latency", required=True)
    for verb, run, text in (
        ("produce", run_produce, "send records and wait for their acknowledgements"),
        ("consume", run_consume, "read a topic from its oldest record to its end"),
        ("latency", run_latency, "measure the time from a producer to a consumer, at a fixed rate"),
    ):
        sub = verbs.add_parser(
            verb, help=text, description=text, formatter_class=argparse.RawTextHelpFormatter
        )
        sub.add_argument("topic", metavar="TOPIC")
        sub.add_argument("--records", type=positive, metavar="N", help="stop after N records")
        sub.add_argument(
            "--seconds",
            type=positive_seconds,
            metavar="S",
            help="stop after this time" + ("" if verb == "consume" else f" (default {SECONDS:g})"),
        )
        if verb != "consume":
            _sending_options(sub, verb)
        json_option(sub)
        connection_options(sub)
        sub.set_defaults(run_verb=run)


def _sending_options(parser: argparse.ArgumentParser, verb: str) -> None:
    fast = verb == "produce"
    parser.add_argument(
        "--record-bytes", type=positive, metavar="N", default=100, help="value size (default 100)"
    )
    parser.add_argument(
        "--batch-records",
        type=positive,
        metavar="N",
        default=600 if fast else 1,
        help=f"records in a request (default {600 if fast else 1})",
    )
    parser.add_argument("--acks", choices=list(ACKS)[:3], default="all", help="default: all")
    parser.add_argument("--codec", choices=list(CODECS), default="none", help="default: none")
    parser.add_argument(
        "--in-flight",
        type=positive,
        metavar="N",
        default=5,
        help="requests in progress on a connection (default 5)",
    )
    parser.add_argument(
        "--connections", type=positive, metavar="N", default=1, help="for each broker (default 1)"
    )
    parser.add_argument(
        "--rate",
        type=positive_number,
        metavar="N",
        default=None if fast else 1000.0,
        help="records a second " + ("(default: no limit)" if fast else "(default 1000)"),
    )


def positive_number(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError("give a number above 0")
    return number


def run(arguments: argparse.Namespace) -> int:
    return int(arguments.run_verb(arguments))


@speaks_to_broker
def run_produce(arguments: argparse.Namespace) -> int:
    return _run(
        arguments,
        "requests",
        lambda cluster, until, tick: produce(
            cluster, arguments.topic, _shape(arguments), until, tick
        ),
    )


@speaks_to_broker
def run_consume(arguments: argparse.Namespace) -> int:
    def load(cluster: Cluster, until: Until, tick: Callable[[Totals], None]) -> Totals:
        known = cluster.topic(arguments.topic).partitions
        found = list_offsets(cluster, arguments.topic, dict.fromkeys(known, EARLIEST))
        offsets = {index: row.offset for index, row in found.items()}
        return consume(cluster, arguments.topic, offsets, until, tick)

    return _run(arguments, "fetches", load)


@speaks_to_broker
def run_latency(arguments: argparse.Namespace) -> int:
    if arguments.acks == "0":
        return fail("latency needs answers: use --acks 1 or --acks all.")
    if arguments.record_bytes < STAMP_BYTES:
        return fail(
            f"latency needs at least --record-bytes {STAMP_BYTES}: each value contains its time."
        )
    return _run(
        arguments,
        "records",
        lambda cluster, until, tick: through(
            cluster, arguments.topic, _shape(arguments), until, tick
        ),
    )


def _shape(arguments: argparse.Namespace) -> Shape:
    return Shape(
        record_bytes=arguments.record_bytes,
        batch_records=arguments.batch_records,
        acks=arguments.acks,
        codec=arguments.codec,
        in_flight=arguments.in_flight,
        connections=arguments.connections,
        rate=arguments.rate,
    )


Load = Callable[[Cluster, Until, Callable[[Totals], None]], Totals]


def _run(arguments: argparse.Namespace, counted: str, load: Load) -> int:
    seconds = arguments.seconds
    if seconds is None and arguments.records is None and arguments.verb != "consume":
        seconds = SECONDS
    until = Until(records=arguments.records, seconds=seconds)
    live = Live(arguments.verb)
    with cluster_of(arguments) as cluster:
        try:
            totals = load(cluster, until, live)
        except KeyboardInterrupt:
            live.end()
            say("stopped before the end: there are no results")
            return 130
    live.end()
    if arguments.json:
        json_document(summary(totals, arguments))
    else:
        _print(totals, counted)
    return 0


class Live:
    """Shows the progress in one line of a terminal, which each call updates."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        self._next = 0.0
        self._last = (0.0, 0)
        self._shown = sys.stderr.isatty()

    def __call__(self, totals: Totals) -> None:
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + PROGRESS_EVERY_S
        seconds, records = totals.seconds, totals.records
        rate = (records - self._last[1]) / max(seconds - self._last[0], 1e-9)
        self._last = (seconds, records)
        line = (
            f"{self.verb}: {records:,} records in {seconds:.1f} s, now {rate:,.0f}/s,"
            f" {totals.size_bytes / 1e6 / seconds:.1f} MB/s,"
            f" p99 {milliseconds(totals.latency.percentile(0.99))} ms"
        )
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def milliseconds(ns: float) -> str:
    return f"{ns / 1e6:.3f}" if ns < 1e8 else f"{ns / 1e6:.0f}"


def summary(totals: Totals, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns what --json prints: the results, with their units in the names."""
    latency = totals.latency
    asked = {"verb", "topic", "record_bytes", "batch_records", "acks", "codec", "in_flight"}
    asked |= {"connections", "rate"}
    return {
        "load": {name: value for name, value in vars(arguments).items() if name in asked},
        "records": totals.records,
        "requests": totals.requests,
        "seconds": round(totals.seconds, 6),
        "records_per_s": round(totals.records / totals.seconds, 1),
        "mb_per_s": round(totals.size_bytes / 1e6 / totals.seconds, 3),
        "batch_bytes": totals.wire_bytes,
        "latency_us": {
            "min": round(latency.smallest / 1e3, 1),
            "mean": round(latency.mean / 1e3, 1),
            **{name: round(latency.percentile(part) / 1e3, 1) for part, name in PERCENTILES},
            "max": round(latency.largest / 1e3, 1),
        },
        "sent_late_us_max": round(totals.late_ns / 1e3, 1),
        "histogram_us": [
            {"from": low / 1e3, "to": high / 1e3, "count": count}
            for low, high, count in latency.doublings()
        ],
    }


def _print(totals: Totals, counted: str) -> None:
    latency = totals.latency
    columns = ["records", "seconds", "records/s", "MB/s", *(f"{n} ms" for _, n in PERCENTILES)]
    row: list[Any] = [
        f"{totals.records:,}",
        f"{totals.seconds:.2f}",
        f"{totals.records / totals.seconds:,.0f}",
        f"{totals.size_bytes / 1e6 / totals.seconds:.1f}",
    ]
    row += [milliseconds(latency.percentile(part)) for part, _ in PERCENTILES]
    table([*columns, "max ms"], [[*row, milliseconds(latency.largest)]])
    if latency.count:
        print(f"\nlatency of {latency.count:,} {counted}, ms")
        print("\n".join(bars(totals)))
    if totals.late_ns > 1e7:
        say(
            f"requests were sent up to {milliseconds(totals.late_ns)} ms late: "
            "the rate is too high for this load generator or for the broker"
        )


def bars(totals: Totals) -> Iterator[str]:
    """Yields the lines of the histogram, one for each doubling of the latency."""
    rows = list(totals.latency.doublings())
    most = max(count for _, _, count in rows)
    for low, high, count in rows:
        bar = "#" * round(BAR_WIDTH * count / most) or ("." if count else "")
        share = 100 * count / totals.latency.count
        print_low, print_high = milliseconds(low), milliseconds(high)
        yield f"{print_low:>9} - {print_high:>9}  {share:6.2f} %  {bar}".rstrip()
