"""`barnabas log dump`: shows the contents of files in log directories of barnabas and of Kafka.

A directory means all files of logs in it and below it, in the order of their names."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.cext.record.records import CorruptRecords
from barnabas.cli import log_files
from barnabas.cli.log_files import Row, UnknownFile
from barnabas.cli.log_records import FORMS, internal_topic_of, row_of
from barnabas.cli.output import fail, iso_time, json_line, say, table
from barnabas.wire.batches import Batch
from barnabas.wire.internal import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

TABLE_ROWS = 1000  # rows of one table, so that a long file needs little memory
DECODERS = {
    "--offsets-decoder": CONSUMER_OFFSETS,
    "--transaction-log-decoder": TRANSACTION_STATE,
    "--share-group-state-decoder": SHARE_GROUP_STATE,
}

EPILOG = """\
The exit status is 1 when a file is damaged; the output shows the damage at its position.

examples:
  barnabas log dump data/news-0/00000000000000000000.log
  barnabas log dump data/news-0/00000000000000000000.log --records --keys-as text
  barnabas log dump data/__consumer_offsets-3/00000000000000000000.log --records
  barnabas log dump data/news-0/*.timeindex data/news-0/*.snapshot
  barnabas log dump data/meta.properties --json
  barnabas log dump data/news-0                   every file of a partition
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    dump = actions.add_parser(
        "dump",
        help="show the contents of a file, or of all files of a directory",
        description="show the contents of a file of a log directory, or of all its files",
        epilog=EPILOG,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    dump.add_argument("files", metavar="FILE|DIR", nargs="+", type=Path)
    dump.add_argument("--records", action="store_true", help="also the records of each batch")
    for what in ("keys", "values"):
        dump.add_argument(f"--{what}-as", choices=list(FORMS), help=f"form of {what} (text)")
    for option, topic in DECODERS.items():
        dump.add_argument(
            option,
            dest="decoder",
            action="store_const",
            const=topic,
            help=f"decode the records as those of {topic}, in any directory",
        )
    dump.add_argument("--json", action="store_true", help="print JSON lines")


def run(arguments: argparse.Namespace) -> int:
    damaged = False
    for path in arguments.files:
        try:
            if path.is_dir():
                damaged |= _dump_directory(path, arguments)
            elif not path.exists():
                return fail(f"there is no file {path}. Give files of a log, or a directory.")
            else:
                damaged |= _dump(path, arguments, is_named=len(arguments.files) > 1)
        except UnknownFile as error:
            return fail(str(error))
        except BrokenPipeError:
            raise
        except OSError as error:
            return fail(f"cannot read {error.filename or path}: {error.strerror}.")
    return 1 if damaged else 0


def _dump_directory(top: Path, arguments: argparse.Namespace) -> bool:
    """Shows all files of logs below `top`; returns whether one is damaged. It reports a file that a
    running broker deletes during the call; this is not damage. Raises UnknownFile when there is no
    file of a log."""
    damaged, count = False, 0
    for path in sorted(path for path in top.rglob("*") if path.is_file()):
        if not log_files.is_known(path):
            continue
        count += 1
        try:
            damaged |= _dump(path, arguments, is_named=True)
        except FileNotFoundError:
            say(f"{path} was deleted after the directory was read")
    if not count:
        raise UnknownFile(f"{top} holds no file of a log, nor does a directory below it.")
    return damaged


def _dump(path: Path, arguments: argparse.Namespace, *, is_named: bool) -> bool:
    """Shows one file; returns whether it is damaged. `is_named`: prints its path first."""
    kind = log_files.kind_of(path)
    if is_named and not arguments.json:
        print(f"{path}:", flush=True)
    if kind == "log":
        return _dump_log(path, arguments)
    return _show(_rows(path, kind), path, arguments)


def _rows(path: Path, kind: str) -> Iterator[Row]:
    base_offset = log_files.base_offset_of(path)
    if kind == "index":
        return log_files.offset_index(log_files.mapped(path), base_offset)
    if kind == "timeindex":
        return log_files.time_index(log_files.mapped(path), base_offset)
    if kind == "txnindex":
        return log_files.aborted_transactions(log_files.mapped(path))
    if kind == "snapshot":
        return log_files.producer_snapshot(log_files.mapped(path))
    return log_files.text_file(path, kind)


def _dump_log(path: Path, arguments: argparse.Namespace) -> bool:
    batches = log_files.batches(log_files.mapped(path))
    if not arguments.records and arguments.decoder is None:
        return _show((row for row, _ in batches), path, arguments)
    topic = _decoded_topic(path, arguments)
    damaged = False
    for row, batch in batches:
        records, problem = _records(batch, topic, arguments)
        if problem:
            row["problem"] = problem
        damaged |= "problem" in row
        if arguments.json:
            print(json_line({"file": str(path), **row, "records": records}))
            continue
        print(", ".join(f"{name} {_cell(name, value)}" for name, value in row.items()))
        for record in records:
            print("  " + ", ".join(f"{name} {_cell(name, v)}" for name, v in record.items()))
    return damaged


def _records(
    batch: Batch | None, topic: str | None, arguments: argparse.Namespace
) -> tuple[list[Row], str | None]:
    if batch is None:
        return [], None
    key_form, value_form = FORMS[arguments.keys_as or "text"], FORMS[arguments.values_as or "text"]
    found: list[Row] = []
    try:
        for record in batch.records:
            found.append(row_of(record, batch, key_form, value_form, topic))
    except CorruptRecords as error:
        return found, str(error)
    return found, None


def _decoded_topic(path: Path, arguments: argparse.Namespace) -> str | None:
    """Returns the internal topic whose records are decoded: that of the options, or that of the
    directory when no option sets the form of keys or values."""
    if arguments.decoder is not None:
        return str(arguments.decoder)
    asked = arguments.keys_as is not None or arguments.values_as is not None
    return None if asked else internal_topic_of(path)


def _show(rows: Iterator[Row], path: Path, arguments: argparse.Namespace) -> bool:
    damaged = False
    waiting: list[Row] = []
    for row in rows:
        damaged |= "problem" in row
        if arguments.json:
            print(json_line({"file": str(path), **row}))
            continue
        waiting.append(row)
        if len(waiting) == TABLE_ROWS:
            _draw(waiting)
            waiting.clear()
    if waiting:
        _draw(waiting)
    elif not arguments.json and not damaged:
        print("(empty)", file=sys.stderr)
    return damaged


def _draw(rows: list[Row]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table(columns, [[_cell(name, row.get(name)) for name in columns] for row in rows])


def _cell(name: str, value: Any) -> Any:
    if name.lower().endswith("timestamp") and isinstance(value, int):
        return iso_time(value) or value
    return json_line(value) if isinstance(value, dict) else value
