"""`barnabas produce`: sends the lines of standard input or of files as records.

Only a newline ends a line; bytes after the last newline are a record too. It sends the bytes
unchanged, in any encoding.
"""

import argparse
import os
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO

from barnabas.cli.connecting import cluster_of, connection_options, json_option, speaks_to_broker
from barnabas.cli.encoding import Encoding, encoder_options
from barnabas.cli.output import Progress, fail, json_document, say
from barnabas.client import Cluster, Producer
from barnabas.client.delivery import BATCH_BYTES
from barnabas.client.producer import ACKS, PENDING_BYTES_MAX
from barnabas.wire.compression import CODECS

LINE_BYTES_MAX = 128 * 1024 * 1024  # no broker accepts a longer record: a longer line is an error

EPILOG = """\
examples:
  echo hello | barnabas produce news
  barnabas produce news /var/log/dpkg.log --codec zstd      one record for each line
  barnabas produce news --file photo.jpg --key-text photo   the whole file as one record
  printf 'k1:v1\\nk2:v2\\n' | barnabas produce news --key-separator :
  barnabas produce news --header source=cli --partition 2 < lines.txt
  barnabas produce small-segments --batch-bytes 10000 < lines.txt
  barnabas produce orders --encoder avro --from-json --option plugin.avro.schema=order.avsc
"""


class BadInput(Exception):
    """A file or line cannot be sent; the text says why, in one line."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "topic", metavar="TOPIC", help="the broker creates it if auto.create.topics.enable is set"
    )
    parser.add_argument(
        "inputs", metavar="INPUT", nargs="*", help="text files; `-` or none: standard input"
    )
    parser.add_argument(
        "--file",
        metavar="PATH",
        action="append",
        default=[],
        help="send the whole file as one record",
    )
    parser.add_argument(
        "--key-separator", metavar="TEXT", help="text between key and value in each line"
    )
    parser.add_argument("--key-text", metavar="KEY", help="the key of all records")
    parser.add_argument(
        "--header",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=header,
        help="a header of every record; may be repeated",
    )
    parser.add_argument("--codec", choices=list(CODECS), default="none", help="compression")
    parser.add_argument(
        "--acks",
        choices=list(ACKS),
        default="all",
        help="replicas that must have the records before the broker answers (all)",
    )
    parser.add_argument("--partition", type=int, help="default: by the hash of the key, or any")
    parser.add_argument(
        "--batch-bytes",
        type=batch_bytes,
        default=BATCH_BYTES,
        metavar="N",
        help=f"largest size of a batch before compression ({BATCH_BYTES})",
    )
    parser.add_argument("--quiet", action="store_true", help="no summary")
    encoder_options(parser)
    json_option(parser)
    connection_options(parser)


def header(text: str) -> tuple[str, bytes]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value.encode()


def batch_bytes(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= PENDING_BYTES_MAX:
        raise argparse.ArgumentTypeError(f"give 1 to {PENDING_BYTES_MAX} bytes")
    return int(text)


@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    separator = None
    if arguments.key_separator is not None:
        separator = arguments.key_separator.encode()
        if not separator:
            return fail("--key-separator is empty. Give the text between key and value.")
        if arguments.key_text is not None:
            return fail("--key-text and --key-separator exclude each other. Leave one out.")
    reading = Reading(arguments)
    progress = Progress("produced", part=reading.part)
    try:
        with cluster_of(arguments) as cluster, _producer(cluster, arguments) as producer:
            found = _records(arguments, separator, reading)
            for key, value, place in _placed(arguments, found, Encoding(arguments, cluster)):
                producer.send(value, key, headers=arguments.header, partition=place)
                progress.add(1, len(value or b""))
    except BadInput as error:
        return fail(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        return fail(f"cannot read {error.filename or 'the input'}: {error.strerror}")
    finally:
        progress.end()
    if arguments.json:
        offsets = {str(index): at for index, at in sorted(producer.last_offsets.items())}
        json_document(
            {"topic": arguments.topic, "records": producer.record_count, "lastOffsets": offsets}
        )
    elif not arguments.quiet:
        say(progress.summary())
    return 0


def _producer(cluster: Cluster, arguments: argparse.Namespace) -> Producer:
    return Producer(
        cluster,
        arguments.topic,
        codec=arguments.codec,
        acks=arguments.acks,
        batch_bytes=arguments.batch_bytes,
    )


class Reading:
    """Counts the bytes that were read, and knows the size of the input if all of it are files."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.read_bytes = 0
        sizes = [_size_bytes(path) for path in (*arguments.file, *_inputs(arguments))]
        self._total_bytes = sum(size for size in sizes if size is not None)
        self._is_known = None not in sizes and self._total_bytes > 0

    def part(self) -> float | None:
        return min(self.read_bytes / self._total_bytes, 1.0) if self._is_known else None


def _size_bytes(path: str) -> int | None:
    """Returns the size of a file; None for a pipe, and for a missing file, which fails when it is
    read."""
    try:
        found = os.fstat(sys.stdin.fileno()) if path == "-" else os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _inputs(arguments: argparse.Namespace) -> list[str]:
    """Returns the paths of the text files; `-` is standard input."""
    return list(arguments.inputs or ([] if arguments.file else ["-"]))


def _placed(
    arguments: argparse.Namespace,
    found: Iterator[tuple[bytes | None, bytes]],
    encoding: Encoding,
) -> Iterator[tuple[bytes | None, bytes | None, int | None]]:
    """Yields key, value and partition of each record."""
    if not encoding.is_used:
        yield from ((key, value, arguments.partition) for key, value in found)
        return
    for key, value, place in encoding.of(found):
        yield key, value, place if arguments.partition is None else arguments.partition


def _records(
    arguments: argparse.Namespace, separator: bytes | None, reading: Reading
) -> Iterator[tuple[bytes | None, bytes]]:
    fixed = None if arguments.key_text is None else arguments.key_text.encode()
    for path in arguments.file:
        with open(path, "rb") as file:
            value = file.read(LINE_BYTES_MAX + 1)
        if len(value) > LINE_BYTES_MAX:
            raise BadInput(f"{path} is larger than {LINE_BYTES_MAX} bytes. Send it as lines.")
        reading.read_bytes += len(value)
        yield fixed, value
    for path in _inputs(arguments):
        for number, line in enumerate(_lines_of(path), 1):
            reading.read_bytes += len(line) + 1
            if separator is None:
                yield fixed, line
                continue
            key, found, value = line.partition(separator)
            if not found:
                raise BadInput(
                    f"line {number} of {path} has no {separator.decode()!r}. Records before it"
                    " may have been sent; give each line a key, or leave --key-separator out."
                )
            yield key, value


def _lines_of(path: str) -> Iterator[bytes]:
    if path == "-":
        yield from _lines(sys.stdin.buffer, "standard input")
        return
    with open(path, "rb") as file:
        yield from _lines(file, path)


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    while line := file.readline(LINE_BYTES_MAX):
        if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            raise BadInput(f"a line of {name} is longer than {LINE_BYTES_MAX} bytes. Split it.")
        yield line[:-1] if line.endswith(b"\n") else line
