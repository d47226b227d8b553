"""`barnabas offsets`: shows first and end offsets of partitions, and the offset of a time."""

import argparse
from typing import Any

from barnabas.cli.connecting import cluster_of, connection_options, json_option, speaks_to_broker
from barnabas.cli.consume import moment, numbers
from barnabas.cli.output import iso_time, json_document, table
from barnabas.client import EARLIEST, LATEST, list_offsets

EPILOG = """\
examples:
  barnabas offsets news                          earliest and latest of each partition
  barnabas offsets news --partitions 0,2
  barnabas offsets news --time 2026-01-31T12:00:00Z
                                                 the first record at or after a time
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument(
        "--time",
        type=moment,
        metavar="TIME",
        help="also the offset of this time: ISO 8601, or ms since 1970",
    )
    parser.add_argument("--partitions", type=numbers, metavar="N,N", help="only these partitions")
    json_option(parser)
    connection_options(parser)


@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    with cluster_of(arguments) as cluster:
        for name in arguments.topics:
            known = cluster.topic(name).partitions
            wanted = list(known) if arguments.partitions is None else arguments.partitions
            starts = list_offsets(cluster, name, dict.fromkeys(wanted, EARLIEST))
            ends = list_offsets(cluster, name, dict.fromkeys(wanted, LATEST))
            row: dict[int, dict[str, Any]] = {
                index: {
                    "topic": name,
                    "partition": index,
                    "earliest": starts[index].offset,
                    "latest": ends[index].offset,
                }
                for index in wanted
            }
            if arguments.time is not None:
                found = list_offsets(cluster, name, dict.fromkeys(wanted, arguments.time))
                for index, at in found.items():
                    row[index]["offset"] = at.offset if at.offset >= 0 else None
                    row[index]["timestamp"] = at.timestamp if at.offset >= 0 else None
            rows += row.values()
    if arguments.json:
        json_document(rows)
        return 0
    columns = ["topic", "partition", "earliest", "latest"]
    if arguments.time is not None:
        columns += ["offset", "time"]
        for line in rows:
            at_ms = line.pop("timestamp")
            line["time"] = None if at_ms is None else iso_time(int(at_ms))
    table(columns, [list(line.values()) for line in rows])
    return 0
