"""`barnabas consume`: prints the values of a topic's records, byte for byte.

It writes each record as its value and the separator (a newline). Without --end or --count it waits
for more records until Ctrl-C. Records of one partition are in order; several partitions take turns.
"""

import argparse
import datetime
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from barnabas.cext.record.records import Record
from barnabas.cli.connecting import cluster_of, connection_options, speaks_to_broker
from barnabas.cli.encoding import Decoding, decoder_options
from barnabas.cli.output import (
    Progress,
    fail,
    iso_time,
    json_bytes,
    json_line,
    json_value,
    say,
)
from barnabas.client import EARLIEST, LATEST, Cluster, Reader, list_offsets
from barnabas.client.offsets import COMMITTED, UNCOMMITTED
from barnabas.errors import OffsetOutOfRange

HELD_CHARS_MAX = 200  # length of the list of partitions in an error
WRITE_BYTES = 256 * 1024  # collected before a write, while more records arrive

EPILOG = """\
examples:
  barnabas consume news                          new records, until Ctrl-C
  barnabas consume news --from-beginning         all records, then new ones
  barnabas consume news --end                    all records, then stop
  barnabas consume news --offset 100 --count 5 --partitions 0
  barnabas consume news --offset -10 --end       the last ten of each partition
  barnabas consume news --time 2026-01-31T12:00:00Z --end
  barnabas consume photos --end --separator '' > photo.jpg
  barnabas consume news --end --json             one JSON document on each line
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("topic", metavar="TOPIC")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="from the oldest record")
    start.add_argument(
        "--offset",
        type=int,
        metavar="N",
        help="from this offset; a negative number counts from the end",
    )
    start.add_argument(
        "--time", type=moment, metavar="TIME", help="from this time: ISO 8601, or ms since 1970"
    )
    parser.add_argument(
        "--end",
        action="store_true",
        help="stop at the present end; begin at the oldest record without --offset and --time",
    )
    parser.add_argument("--count", type=int, metavar="N", help="stop after this number of records")
    parser.add_argument(
        "--partitions", type=numbers, metavar="N,N", help="only these partitions (default: all)"
    )
    parser.add_argument(
        "--key", action="store_true", help="print the key and a tab before the value"
    )
    parser.add_argument(
        "--headers", action="store_true", help="print key=value,... and a tab before the value"
    )
    parser.add_argument(
        "--offsets",
        action="store_true",
        help="print partition, offset and time, with tabs, before the value",
    )
    parser.add_argument(
        "--separator", default="\\n", metavar="TEXT", help="text after each record (newline)"
    )
    parser.add_argument(
        "--committed", action="store_true", help="skip records of open and aborted transactions"
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each record")
    decoder_options(parser)
    connection_options(parser)


def moment(text: str) -> int:
    """Returns a time in milliseconds since 1970. A time without a zone is local time."""
    if text.isdecimal():
        return int(text)
    try:
        return round(1000 * datetime.datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: write 2026-01-31T12:00:00Z, or milliseconds since 1970"
        ) from None


def numbers(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers: 0,1,2") from None


def unescaped(text: str) -> bytes:
    """Returns the text as bytes, with the escapes \\n, \\t, \\r, \\0 and \\\\ replaced."""
    found, rest = [], iter(text)
    meant = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
    for char in rest:
        if char == "\\":
            following = next(rest, "\\")
            char = meant.get(following, "\\" + following)
        found.append(char)
    return "".join(found).encode()


@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    if arguments.count is not None and arguments.count < 0:
        return fail("--count is below 0. Give the number of records to read.")
    isolation = COMMITTED if arguments.committed else UNCOMMITTED
    with cluster_of(arguments) as cluster:
        offsets = _starts(cluster, arguments)
        reader = Reader(
            cluster, arguments.topic, offsets, to_end=arguments.end, isolation=isolation
        )
        if not arguments.end and arguments.count is None and sys.stderr.isatty():
            say("waiting for records; Ctrl-C ends")
        _write_all(reader, arguments)
    return 0


def _starts(cluster: Cluster, arguments: argparse.Namespace) -> dict[int, int]:
    name = arguments.topic
    topic = cluster.topic(name)
    wanted = list(topic.partitions) if arguments.partitions is None else arguments.partitions
    for index in wanted:
        topic.partition(index)
    earliest = list_offsets(cluster, name, dict.fromkeys(wanted, EARLIEST))
    starts = {index: row.offset for index, row in earliest.items()}
    from_start = arguments.from_beginning or (arguments.end and arguments.offset is None)
    if from_start and arguments.time is None:
        return starts
    latest = list_offsets(cluster, name, dict.fromkeys(wanted, LATEST))
    ends = {index: row.offset for index, row in latest.items()}
    if arguments.time is not None:
        found = list_offsets(cluster, name, dict.fromkeys(wanted, arguments.time))
        return {i: row.offset if row.offset >= 0 else ends[i] for i, row in found.items()}
    if arguments.offset is None:
        return ends
    if arguments.offset < 0:
        return {index: max(ends[index] + arguments.offset, starts[index]) for index in wanted}
    return _at_offset(name, arguments.offset, starts, ends)


def _at_offset(
    topic: str, offset: int, starts: dict[int, int], ends: dict[int, int]
) -> dict[int, int]:
    """Returns the start offset of each partition: `offset`, or the partition's first offset if that
    is larger, or its end if that is smaller. Raises OffsetOutOfRange when `offset` is beyond the
    end of all partitions."""
    if offset > max(ends.values()):
        held = ", ".join(f"partition {i}: {starts[i]} to {end}" for i, end in sorted(ends.items()))
        raise OffsetOutOfRange(
            f"--offset {offset} is beyond the end of topic {topic} ({_shortened(held)})"
        )
    for index, end in sorted(ends.items()):
        if not starts[index] <= offset <= end:
            at = "the first record" if offset < starts[index] else "the end"
            say(f"partition {index} has offsets {starts[index]} to {end}: reading begins at {at}")
    return {index: min(max(offset, starts[index]), end) for index, end in ends.items()}


def _shortened(text: str) -> str:
    return text if len(text) <= HELD_CHARS_MAX else f"{text[:HELD_CHARS_MAX]} ..."


def _write_all(reader: Reader, arguments: argparse.Namespace) -> None:
    out = sys.stdout.buffer
    progress = Progress("consumed", is_shown=not sys.stdout.isatty())
    separator = unescaped(arguments.separator)
    decoding = Decoding(arguments)
    plain = not (arguments.json or arguments.key or arguments.headers or arguments.offsets)
    plain = plain and not decoding.is_used
    left = arguments.count
    waiting: list[bytes] = []
    size_bytes = 0
    try:
        if left == 0:
            return
        for portion in reader.portions():
            shown = _decoded(portion, decoding) if decoding.is_used else portion
            for partition, record, *objects in shown:
                value = record.value or b""
                if plain:
                    waiting.append(value)
                    waiting.append(separator)
                else:
                    waiting.append(_line(partition, record, arguments, separator, objects))
                size_bytes += len(value)
                if left is not None:
                    left -= 1
                    if left == 0:
                        return
                if size_bytes >= WRITE_BYTES:
                    out.write(b"".join(waiting))
                    waiting.clear()
                    progress.add(0, size_bytes)
                    size_bytes = 0
                progress.count += 1
            out.write(b"".join(waiting))
            waiting.clear()
            out.flush()
    finally:
        progress.end()
        out.write(b"".join(waiting))
        out.flush()


def _decoded(
    portion: Iterable[tuple[int, Record]], decoding: Decoding
) -> Iterator[tuple[int, Record, Any, Any]]:
    rows = list(portion)
    objects = decoding.of([record for _, record in rows])
    for (partition, record), (key, value) in zip(rows, objects, strict=True):
        yield partition, record, key, value


def _line(
    partition: int,
    record: Record,
    arguments: argparse.Namespace,
    separator: bytes,
    objects: Sequence[Any],
) -> bytes:
    """Returns the output for one record. `objects`: the decoded key and value; empty without
    decoders."""
    key, value = objects or (record.key, record.value)
    if arguments.json:
        document = _document(partition, record)
        if objects:
            document |= {"key": json_value(key), "value": json_value(value)}
        return json_line(document).encode() + b"\n"
    parts = []
    if arguments.offsets:
        at = iso_time(record.timestamp) or "-"
        parts.append(f"{partition}\t{record.offset}\t{at}".encode())
    if arguments.headers:
        parts.append(b",".join(name.encode() + b"=" + (v or b"") for name, v in record.headers))
    if arguments.key:
        parts.append(_shown(key))
    return b"\t".join([*parts, _shown(value)]) + separator


def _shown(item: Any) -> bytes:
    """Returns bytes and text unchanged, None as no bytes, other objects as JSON."""
    if item is None:
        return b""
    if isinstance(item, bytes):
        return item
    return item.encode() if isinstance(item, str) else json_line(json_value(item)).encode()


def _document(partition: int, record: Record) -> dict[str, object]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }
