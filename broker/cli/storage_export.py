"""`barnabas storage export`: a log directory for Apache Kafka (takeover/export.py)."""

import argparse
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.cli.connecting import json_option
from barnabas.cli.output import Progress, count_of, fail, json_document, say, table
from barnabas.cli.parser import settings_option
from barnabas.cli.stopped_broker import errors_of_one_line
from barnabas.config import BrokerConfig

if TYPE_CHECKING:
    from barnabas.metadata.tree import MetadataTree
    from barnabas.takeover.export import Export, Exported

EPILOG = """\
The broker is stopped, and has an embedded store. DIR is a new or an empty directory: the only one
of log.dirs of a Kafka 4.0 or later that is broker and controller (process.roles=broker,controller)
and has the broker's node.id. With --zookeeper it is for a Kafka 2.8 to 3.9 in ZooKeeper mode, and
the metadata goes into an empty tree there. Nothing in the broker's directories is changed.

examples:
  barnabas storage export /var/lib/kafka/data --set log.dirs=/var/lib/barnabas --dry-run
  barnabas storage export /var/lib/kafka/data --config etc/server.properties
  barnabas storage export /var/lib/kafka/data --zookeeper zk1:2181/kafka
"""


def configure(found: argparse.ArgumentParser) -> None:
    """Adds the arguments of the action to its parser."""
    found.add_argument("target", metavar="DIR", help="the new log directory of Kafka")
    found.add_argument("--config", metavar="FILE", help="server.properties of the stopped broker")
    settings_option(found, "a setting of the stopped broker; overrides that of the file")
    found.add_argument(
        "--dry-run", action="store_true", help="print what would be exported; change nothing"
    )
    found.add_argument(
        "--zookeeper",
        metavar="ADDRESS",
        help="for Kafka 2.8 to 3.9 in ZooKeeper mode: write the metadata into this empty tree",
    )
    json_option(found)


@errors_of_one_line
def run(arguments: argparse.Namespace) -> int:
    """Exports, or says what would be exported."""
    from barnabas.takeover.export import export
    from barnabas.takeover.refusals import CannotImport

    config = BrokerConfig.load(arguments.config, arguments.settings)
    copied = Progress("copied")
    target = Path(arguments.target)
    try:
        with ExitStack() as stack:
            tree = None
            if arguments.zookeeper is not None:
                tree = stack.enter_context(closing(_tree(arguments)))
            done = export(config, target, copied.add, arguments.dry_run, tree)
    except CannotImport as error:
        for problem in error.problems:
            fail(problem)
        return 1
    finally:
        copied.end()
    return _report(arguments, done)


def _tree(arguments: argparse.Namespace) -> "MetadataTree":
    from barnabas.stages.opened import open_zookeeper

    more = ["metadata.store=zookeeper", f"zookeeper.connect={arguments.zookeeper}"]
    config = BrokerConfig.load(arguments.config, [*arguments.settings, *more])
    return open_zookeeper(config, None)


def _report(arguments: argparse.Namespace, done: "Export") -> int:
    rows = [_row(row) for row in done.partitions]
    if arguments.json:
        json_document(
            {
                "isDryRun": arguments.dry_run,
                "clusterId": done.cluster_id,
                "nodeId": done.node_id,
                "directory": arguments.target,
                "partitions": rows,
                "metadataRecords": done.records,
                "notes": list(done.notes),
            }
        )
        return 0
    columns = ("topic", "partition", "bytes", "records", "start", "end", "crc32c")
    table(columns, [list(row.values()) for row in rows], empty="no partitions")
    for line in done.notes:
        say(line)
    said = f"{count_of(len(rows), 'partition')}, {count_of(done.records, 'metadata record')}"
    if arguments.dry_run:
        say(f"dry run: {said} would be exported to {arguments.target}; nothing was changed")
    else:
        how = f"node.id={done.node_id} and process.roles=broker,controller"
        if arguments.zookeeper is not None:
            how = f"broker.id={done.node_id} and zookeeper.connect={arguments.zookeeper}"
        say(
            f"exported {said} of cluster {done.cluster_id} to {arguments.target}. Start Kafka there"
            f" with {how}"
        )
    return 0


def _row(row: "Exported") -> dict[str, object]:
    content = row.content
    return {
        "topic": row.topic,
        "partition": row.partition,
        "sizeBytes": sum(file.size_bytes for file in row.files if file.is_segment),
        "records": None if content is None else content.records,
        "startOffset": None if content is None else content.start_offset,
        "endOffset": None if content is None else content.end_offset,
        "crc32c": None if content is None else f"{content.crc:08x}",
    }
