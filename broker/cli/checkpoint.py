"""`barnabas checkpoint`: shows and changes Spark's checkpoints without Spark."""

import argparse
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from barnabas.cli.connecting import (
    cluster_of,
    connection_options,
    json_lines_option,
    json_option,
    speaks_to_broker,
)
from barnabas.cli.output import count_of, did, fail, iso_time, json_document, json_line, say, table
from barnabas.client import EARLIEST, LATEST, Cluster, list_offsets
from barnabas.client.groups import commit_offsets, committed_offsets
from barnabas.errors import KafkaError
from barnabas.spark.checkpoint import Checkpoint, PlannedBatch
from barnabas.spark.failures import CheckpointError
from barnabas.spark.files import files_at
from barnabas.spark.offsets import offsets_json
from barnabas.spark.sink_log import SinkLog

SHOWN_BATCHES = 10

EPILOG = """\
Stop the query before you change its checkpoint. PATH is the query's checkpointLocation: a path,
or a file:, hdfs:, webhdfs: or s3: URL.

examples:
  barnabas checkpoint show /data/cp/clicks            its last batches and their end offsets
  barnabas checkpoint verify /data/cp/clicks --sink /data/clicks
  barnabas checkpoint verify /data/cp/clicks --broker
                                                      check that the topics still have its offsets
  barnabas checkpoint seed-from-group loader /data/cp/clicks
                                                      a new checkpoint at a group's offsets
  barnabas checkpoint to-group loader /data/cp/clicks
                                                      commit the offsets, for tools that show lag
  barnabas checkpoint to-group loader /data/cp/clicks --command-config client.properties
                                                      over TLS, with a name and a password
  barnabas checkpoint rewind 41 /data/cp/clicks       the query continues after batch 41
  barnabas checkpoint export /data/cp/clicks          for startingOffsets, as JSON
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        found = actions.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=EPILOG,
            formatter_class=argparse.RawTextHelpFormatter,
        )
        found.set_defaults(act=ACTIONS[name])
        return found

    show = add("show", "show the query, its last batches and their end offsets")
    show.add_argument("path", metavar="PATH")
    show.add_argument("--batches", type=int, default=SHOWN_BATCHES, metavar="N", help="the last N")
    json_option(show)

    verify = add("verify", "read all files and print the damage; exit status 1 if there is any")
    verify.add_argument("path", metavar="PATH")
    verify.add_argument("--sink", metavar="DIR", help="also the log of the file sink in DIR")
    verify.add_argument("--broker", action="store_true", help="compare the offsets with the topics")
    json_option(verify)
    connection_options(verify)

    seed = add("seed-from-group", "create a checkpoint at the offsets of a consumer group")
    seed.add_argument("group", metavar="GROUP")
    seed.add_argument("path", metavar="PATH")
    seed.add_argument("--topic", action="append", metavar="TOPIC", help="only this topic")
    json_lines_option(seed)
    connection_options(seed)

    to_group = add("to-group", "commit the offsets of the last finished batch to a consumer group")
    to_group.add_argument("group", metavar="GROUP")
    to_group.add_argument("path", metavar="PATH")
    replay_option(to_group)
    json_lines_option(to_group)
    connection_options(to_group)

    rewind = add("rewind", "remove the batches after one: the query reads their records again")
    rewind.add_argument("batch", metavar="BATCH", type=int)
    rewind.add_argument("path", metavar="PATH")
    replay_option(rewind)
    json_lines_option(rewind)

    export = add("export", "print the offsets of a batch as JSON (for startingOffsets)")
    export.add_argument("path", metavar="PATH")
    export.add_argument("--batch", type=int, metavar="N", help="default: the last committed")
    replay_option(export)
    export.add_argument("--json", action="store_true", help="no effect: it always prints JSON")


def replay_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replay",
        action="store_true",
        help="also when a batch has started and is not committed: the query may read it again",
    )


Action = Callable[[argparse.Namespace, Checkpoint], int]


def names_files(command: Callable[[argparse.Namespace], int]) -> Callable[..., int]:
    @wraps(command)
    def run(arguments: argparse.Namespace) -> int:
        try:
            return command(arguments)
        except CheckpointError as error:
            return fail(str(error))
        except OSError as error:
            return fail(f"{error.filename or arguments.path}: {error.strerror or error}")

    return run


@names_files
@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    act: Action = arguments.act
    return act(arguments, Checkpoint(files_at(arguments.path)))


def _row(batch: PlannedBatch, committed: bool) -> dict[str, Any]:
    return {
        "batch": batch.batch_id,
        "committed": committed,
        "timestamp": batch.timestamp_ms,
        "offsets": {
            topic: {str(index): offset for index, offset in sorted(rows.items())}
            for topic, rows in sorted(batch.kafka().items())
        },
    }


def _show(arguments: argparse.Namespace, checkpoint: Checkpoint) -> int:
    query_id = checkpoint.query_id()
    committed = set(checkpoint.batch_ids("commits"))
    ids = checkpoint.batch_ids()[-max(arguments.batches, 1) :]
    rows = [_row(checkpoint.batch(n), n in committed) for n in ids]
    initial = checkpoint.initial()
    if arguments.json:
        began = None if initial is None else {t: dict(p.items()) for t, p in initial.items()}
        json_document({"query": query_id, "began": began, "batches": rows})
        return 0
    say(f"query {query_id}")
    if initial is not None:
        say(f"began at {offsets_json(initial)}")
    lines = [
        [row["batch"], row["committed"], iso_time(row["timestamp"]), topic, index, offset]
        for row in rows
        for topic, partitions in row["offsets"].items()
        for index, offset in partitions.items()
    ]
    columns = ["batch", "committed", "time", "topic", "partition", "reads to"]
    table(columns, lines, empty="the checkpoint has no batches")
    return 0


def _verify(arguments: argparse.Namespace, checkpoint: Checkpoint) -> int:
    found = checkpoint.verify()
    problems = [str(error) for error in found.problems]
    sink_files, begun = None, checkpoint.unfinished()
    if arguments.sink:
        try:
            sink_files = len(SinkLog(files_at(arguments.sink)).current())
        except CheckpointError as error:
            problems.append(str(error))
    if arguments.broker and not problems and (batch := checkpoint.last_committed()) is not None:
        with cluster_of(arguments) as cluster:
            problems += _lost(cluster, batch)
    status = 1 if problems else 0
    if arguments.json:
        document = {"files": found.files, "sinkFiles": sink_files, "unfinishedBatch": begun}
        json_document({**document, "problems": problems})
        return status
    if sink_files is not None:
        say(f"{arguments.sink}: its log names {count_of(sink_files, 'file')}")
    for line in problems:
        print(line)
    if not problems:
        say(f"{arguments.path}: no damage found in {count_of(found.files, 'file')}")
    if begun is not None:
        say(f"batch {begun} was planned and is not committed: the query will run it again")
    return status


def _lost(cluster: Cluster, batch: PlannedBatch) -> list[str]:
    """Returns a line for each partition whose topic no longer has the next records to read."""
    lost, ids = [], batch.topic_ids()
    for topic, partitions in batch.kafka().items():
        try:
            topic_id = cluster.topic(topic).topic_id
            if any(topic_id) and ids.get(topic, topic_id) != topic_id:
                lost.append(
                    f"topic {topic} was deleted and created again since batch {batch.batch_id}"
                )
                continue
            starts = list_offsets(cluster, topic, dict.fromkeys(partitions, EARLIEST))
            ends = list_offsets(cluster, topic, dict.fromkeys(partitions, LATEST))
        except KafkaError as error:
            lost.append(f"topic {topic}: {error}")
            continue
        for index, offset in partitions.items():
            earliest, latest = starts[index].offset, ends[index].offset
            if not earliest <= offset <= latest:
                lost.append(
                    f"partition {index} of topic {topic}: the checkpoint is at offset {offset},"
                    f" the topic has {earliest} to {latest}"
                )
    return lost


def _seed_from_group(arguments: argparse.Namespace, checkpoint: Checkpoint) -> int:
    with cluster_of(arguments) as cluster:
        offsets = committed_offsets(cluster, arguments.group)
    if arguments.topic:
        offsets = {topic: rows for topic, rows in offsets.items() if topic in arguments.topic}
    if not any(offsets.values()):
        return fail(f"group {arguments.group} has no committed offsets to begin at")
    query_id = checkpoint.create()
    checkpoint.begin_at(offsets, now_ms=time.time_ns() // 1_000_000)
    did(
        arguments.json,
        f"query {query_id} begins at {offsets_json(offsets)}",
        query=query_id,
        offsets=offsets,
    )
    return 0


def _to_group(arguments: argparse.Namespace, checkpoint: Checkpoint) -> int:
    batch = checkpoint.finished_batch(replay=arguments.replay)
    offsets = batch.kafka()
    if not offsets:
        return fail(f"{arguments.path}: batch {batch.batch_id} reads no Kafka topic")
    with cluster_of(arguments) as cluster:
        commit_offsets(cluster, arguments.group, offsets)
    did(
        arguments.json,
        f"group {arguments.group} stands at {offsets_json(offsets)}",
        group=arguments.group,
        offsets=offsets,
    )
    return 0


def _rewind(arguments: argparse.Namespace, checkpoint: Checkpoint) -> int:
    gone = checkpoint.rewind(arguments.batch, replay=arguments.replay)
    if arguments.json:
        print(json_line({"lastBatch": arguments.batch, "forgotten": sorted(gone)}))
    elif gone:
        say(f"batches {gone[-1]} to {gone[0]} will be read again")
        say(
            "A file sink passes over batches that its own log (_spark_metadata) has: give the query"
            " another directory, or take them out of the log."
        )
    else:
        say(f"batch {arguments.batch} is the last one: nothing to do")
    return 0


def _export(arguments: argparse.Namespace, checkpoint: Checkpoint) -> int:
    if arguments.batch is not None:
        batch = checkpoint.batch(arguments.batch)
    else:
        batch = checkpoint.finished_batch(replay=arguments.replay)
    print(offsets_json(batch.kafka()))
    return 0


ACTIONS: dict[str, Action] = {
    "show": _show,
    "verify": _verify,
    "seed-from-group": _seed_from_group,
    "to-group": _to_group,
    "rewind": _rewind,
    "export": _export,
}
