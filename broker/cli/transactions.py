"""`barnabas transactions`: lists and describes transactions, finds hanging ones, aborts them."""

import argparse
import time
from collections.abc import Callable
from typing import Any

from barnabas.cli.connecting import (
    actions_of,
    cluster_of,
    json_lines_option,
    json_option,
    speaks_to_broker,
)
from barnabas.cli.output import did, fail, iso_time, json_document, table
from barnabas.client import Cluster
from barnabas.client.transactions import (
    OpenTransaction,
    abort_transaction,
    describe_transactions,
    hanging_transactions,
    list_transactions,
    open_transactions,
)
from barnabas.wire import Struct

EPILOG = """\
examples:
  barnabas transactions list
  barnabas transactions list --state Ongoing --longer-than 60000
  barnabas transactions describe my-transactional-id
  barnabas transactions open news                open transactions in the partitions of a topic
  barnabas transactions find-hanging             open transactions that no coordinator knows
  barnabas transactions abort news 0 --start-offset 42
"""
MAX_TIMEOUT_MS = 15 * 60 * 1000  # Kafka's transaction.max.timeout.ms
OPEN_COLUMNS = ("topic", "partition", "producer id", "epoch", "start offset", "last record")


def configure(parser: argparse.ArgumentParser) -> None:
    action = actions_of(parser, EPILOG, ACTIONS)
    found = action("list", "list transactional ids, their producers and states")
    found.add_argument("--state", action="append", default=[], help="Ongoing, Empty, ...")
    found.add_argument("--producer-id", type=int, action="append", default=[], metavar="ID")
    found.add_argument("--longer-than", type=int, default=-1, metavar="MS", help="open for longer")
    found.add_argument("--pattern", metavar="REGEX", help="must match the whole transactional id")
    json_option(found)
    described = action("describe", "show state, timeout and partitions of transactional ids")
    described.add_argument("ids", metavar="ID", nargs="+")
    json_option(described)
    opened = action("open", "list the open transactions in the partitions of a topic")
    opened.add_argument("topics", metavar="TOPIC", nargs="+")
    json_option(opened)
    hanging = action("find-hanging", "list open transactions that no coordinator will end")
    hanging.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all")
    hanging.add_argument(
        "--older-than",
        type=int,
        default=MAX_TIMEOUT_MS + 5 * 60 * 1000,
        metavar="MS",
        help="time since the last record (default: the longest timeout and 5 minutes)",
    )
    json_option(hanging)
    abort = action("abort", "abort an open transaction in one partition")
    abort.add_argument("topic", metavar="TOPIC")
    abort.add_argument("partition", metavar="PARTITION", type=int)
    abort.add_argument("--start-offset", type=int, required=True, help="as `open` shows it")
    json_lines_option(abort)


@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    act: Callable[[Cluster, argparse.Namespace], int] = arguments.act
    with cluster_of(arguments) as cluster:
        return act(cluster, arguments)


def _list(cluster: Cluster, arguments: argparse.Namespace) -> int:
    try:
        found = list_transactions(
            cluster,
            states=arguments.state,
            producer_ids=arguments.producer_id,
            longer_than_ms=arguments.longer_than,
            pattern=arguments.pattern,
        )
    except ValueError as error:
        return fail(f"{error}. Ongoing, Empty, PrepareCommit and CompleteCommit are some.")
    rows = [
        {
            "transactionalId": row.transactionalId,
            "producerId": row.producerId,
            "state": row.transactionState,
        }
        for row in found
    ]
    if arguments.json:
        json_document(rows)
    else:
        columns = ("transactional id", "producer id", "state")
        table(columns, [list(row.values()) for row in rows], empty="there are no transactional ids")
    return 0


def _describe(cluster: Cluster, arguments: argparse.Namespace) -> int:
    rows = [_document(row) for row in describe_transactions(cluster, arguments.ids)]
    if arguments.json:
        json_document(rows)
        return 0
    now_ms = int(time.time() * 1000)
    for row in rows:
        begun_ms = row["startTime"]
        age = f", open for {(now_ms - begun_ms) / 1000:.1f} s" if row["partitions"] else ""
        print(f"{row['transactionalId']}: {row['state']}{age}")
        print(f"  producer {row['producerId']}, epoch {row['producerEpoch']}")
        print(f"  timeout {row['timeoutMs']} ms")
        for partition in row["partitions"]:
            print(f"  writes to {partition}")
    return 0


def _document(row: Struct) -> dict[str, Any]:
    return {
        "transactionalId": row.transactionalId,
        "state": row.transactionState,
        "producerId": row.producerId,
        "producerEpoch": row.producerEpoch,
        "timeoutMs": row.transactionTimeoutMs,
        "startTime": row.transactionStartTimeMs if row.transactionStartTimeMs >= 0 else None,
        "partitions": [
            f"{topic.topic}-{index}" for topic in row.topics for index in sorted(topic.partitions)
        ],
    }


def _open(cluster: Cluster, arguments: argparse.Namespace) -> int:
    found = [
        row
        for name in arguments.topics
        for row in open_transactions(cluster, name, cluster.topic(name).partitions)
    ]
    return _show(found, arguments.json, "these topics have no open transactions")


def _find_hanging(cluster: Cluster, arguments: argparse.Namespace) -> int:
    topics = arguments.topics or sorted(cluster.topics())
    found = hanging_transactions(cluster, topics, arguments.older_than)
    return _show(found, arguments.json, "no transaction hangs")


def _show(found: list[OpenTransaction], as_json: bool, empty: str) -> int:
    if as_json:
        json_document(
            [
                {
                    "topic": row.topic,
                    "partition": row.partition,
                    "producerId": row.producer_id,
                    "producerEpoch": row.producer_epoch,
                    "startOffset": row.start_offset,
                    "lastTimestamp": row.last_timestamp,
                }
                for row in found
            ]
        )
        return 0
    rows = [
        (
            row.topic,
            row.partition,
            row.producer_id,
            row.producer_epoch,
            row.start_offset,
            iso_time(row.last_timestamp),
        )
        for row in found
    ]
    table(OPEN_COLUMNS, rows, empty=empty)
    return 0


def _abort(cluster: Cluster, arguments: argparse.Namespace) -> int:
    topic, partition = arguments.topic, arguments.partition
    for row in open_transactions(cluster, topic, [partition]):
        if row.start_offset == arguments.start_offset:
            abort_transaction(cluster, row)
            did(
                arguments.json,
                f"aborted the transaction of producer {row.producer_id} in {topic}-{partition}",
                topic=topic,
                partition=partition,
                producerId=row.producer_id,
                startOffset=row.start_offset,
                aborted=True,
            )
            return 0
    return fail(
        f"{topic}-{partition} has no open transaction that begins at {arguments.start_offset}."
        f" `barnabas transactions open {topic}` shows what it has."
    )


ACTIONS = {
    "list": _list,
    "describe": _describe,
    "open": _open,
    "find-hanging": _find_hanging,
    "abort": _abort,
}
