"""`barnabas status`: whether one broker is up, its listeners, its disks, and what is wrong.

The exit status is for health checks: 0 when the broker answers and nothing is wrong with it; with
`--ignore-problems`, when it answers. `barnabas cluster health` asks about the whole cluster.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from barnabas.cli.connecting import cluster_of, connection_options, json_option
from barnabas.cli.output import fail, json_document
from barnabas.client import ClientError, Cluster
from barnabas.client.admin import identity_at, log_dirs_at
from barnabas.client.health import problems_of
from barnabas.errors import KafkaError, name_of
from barnabas.wire import Struct

# A disk with less free space than both is a problem.
FREE_PART_MIN = 0.05
FREE_BYTES_MIN = 10 * 10**9
PROBLEMS_SHOWN = 20  # lines of text; --json has all
GIGABYTE = 10**9

EPILOG = """\
The exit status is 0 when the broker is up and has no problem, and 1 otherwise. A disk is a problem
with less than 5 % and less than 10 GB free. A partition is one that has a replica on this broker.

examples:
  barnabas status
  barnabas status --bootstrap-server kafka1:9092 --json
  barnabas status --timeout 3 --ignore-problems       0 as long as the broker answers
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "--ignore-problems",
        action="store_true",
        help="exit status 0 when the broker answers, whatever is wrong",
    )
    json_option(parser)
    connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        with cluster_of(arguments) as cluster:
            found = _status(cluster)
    except (ClientError, KafkaError) as error:
        if arguments.json:
            json_document({"isUp": False, "problems": [str(error)]})
            return 1
        why = str(error).rstrip(".")
        return fail(f"down: {why}. `barnabas doctor HOST:PORT` looks for the cause.")
    if arguments.json:
        json_document(found)
    else:
        _print(found)
    return 0 if arguments.ignore_problems or not found["problems"] else 1


def _status(cluster: Cluster) -> dict[str, Any]:
    """Returns the state of the first broker that answers. Raises KafkaError, ClientError."""
    topics = cluster.topics()
    connection = cluster.any_connection()
    identity = identity_at(connection, sorted(cluster.brokers))
    node_id, listeners = identity or (None, None)
    rows = log_dirs_at(connection)
    problems = [text for row in rows if (text := _disk_problem(row))]
    for row in problems_of(cluster, topics, node_id):
        where = f"{row['topic']}-{row['partition']}: " if "topic" in row else ""
        problems.append(where + row["problem"])
    return {
        "isUp": True,
        "address": connection.address,
        "broker": node_id,
        "clusterId": cluster.cluster_id,
        "brokers": len(cluster.brokers),
        "listeners": listeners.split(",") if listeners else [],
        "directories": [_directory(row) for row in rows],
        "problems": problems,
    }


def _directory(row: Struct) -> dict[str, Any]:
    total, free = _space(row)
    return {
        "directory": row.logDir,
        "error": name_of(row.errorCode) if row.errorCode else None,
        "logBytes": sum(one.partitionSize for topic in row.topics for one in topic.partitions),
        "freeBytes": free,
        "totalBytes": total,
    }


def _space(row: Struct) -> tuple[int | None, int | None]:
    """Returns the size and the free bytes of a volume; None before version 4 (Kafka 3.3)."""
    known = row.totalBytes >= 0 and row.usableBytes >= 0
    return (row.totalBytes, row.usableBytes) if known else (None, None)


def _disk_problem(row: Struct) -> str:
    """Returns what is wrong with a log directory, "" if nothing is."""
    if row.errorCode:
        return (
            f"{row.logDir}: the directory failed ({name_of(row.errorCode)}). The broker's log says"
            " why; its partitions are offline until it works again."
        )
    total, free = _space(row)
    if total and free is not None and free < min(FREE_PART_MIN * total, FREE_BYTES_MIN):
        return (
            f"{row.logDir}: {100 * free / total:.1f} % of the disk is free. Delete topics, or lower"
            " their retention.bytes or retention.ms."
        )
    return ""


def _print(found: dict[str, Any]) -> None:
    for line in _lines(found):
        print(line)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    who = "broker" if found["broker"] is None else f"broker {found['broker']}"
    others = found["brokers"] - 1
    cluster = f"cluster {found['clusterId']}" + (f" with {others} more" if others else "")
    yield f"up: {who} at {found['address']}, {cluster}"
    for listener in found["listeners"]:
        yield f"listener: {listener}"
    for row in found["directories"]:
        space = ""
        if row["totalBytes"] is not None:
            free, total = row["freeBytes"] / GIGABYTE, row["totalBytes"] / GIGABYTE
            space = f", {free:.1f} of {total:.1f} GB free"
        yield f"directory: {row['directory']}, {row['logBytes'] / GIGABYTE:.3f} GB of logs{space}"
    for problem in found["problems"][:PROBLEMS_SHOWN]:
        yield f"problem: {problem}"
    left = len(found["problems"]) - PROBLEMS_SHOWN
    if left > 0:
        yield f"problem: {left} more (--json lists them)"
    if not found["problems"]:
        yield "problems: none"
