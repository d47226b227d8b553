"""`barnabas storage`: log directories as a whole.

import    takes over log directories of Apache Kafka (takeover/import_plan.py)
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.cli.connecting import json_option
from barnabas.cli.output import Progress, count_of, did, fail, json_document, say, table
from barnabas.cli.parser import settings_option
from barnabas.cli.stopped_broker import errors_of_one_line
from barnabas.config import BrokerConfig

if TYPE_CHECKING:
    from barnabas.metadata.tree import MetadataTree
    from barnabas.takeover.copied_import import Imported
    from barnabas.takeover.import_plan import ImportPlan, Metadata
    from barnabas.takeover.internal_facts import InternalFacts
    from barnabas.takeover.source_directory import SourceDirectory

EPILOG = """\
`import` reads log directories of stopped brokers of Kafka, 3.3 to 4.4 with KRaft metadata and 0.7
to 3.9 in ZooKeeper mode, and writes those of a new broker of barnabas: topics with their ids,
settings, access rules, SCRAM users, quotas, group offsets, producers and open transactions. It
changes nothing in the directories that it reads. Give all directories of log.dirs, and
metadata.log.dir where it is set; of a cluster, the directories of as many brokers as together have
all partitions. The new broker gets the id of the first one, or node.id of --config or --set.
In ZooKeeper mode settings, rules, users and quotas are in ZooKeeper: --zookeeper reads them there.
With --link sealed segments get a second name on the same file system, and are not copied.
With --in-place the directories become those of the new broker, which needs no space; --undo gives
them back to Kafka as they were, as long as no segment was deleted or compacted since.
Directories of Kafka 0.7 and 0.8 do not have their broker's id: DIR=ID gives it, or for one broker
--set node.id=ID. A directory of 0.7 is converted: clients of 0.7 go on at their addresses, and
--zookeeper reads the positions of its groups. The partitions of a topic that several brokers of 0.7
have are counted on in the order of the ids.

examples:
  barnabas storage import /var/lib/kafka/data --dry-run
  barnabas storage import /var/lib/kafka/data --set log.dirs=/var/lib/barnabas
  barnabas storage import /mnt/k1 /mnt/k2 --config etc/server.properties --json
  barnabas storage import /var/lib/kafka/data --zookeeper zk1:2181/kafka --dry-run
  barnabas storage import /var/lib/kafka/data --zookeeper /var/lib/zookeeper --dry-run
  barnabas storage import /mnt/k1=1 /mnt/k2=2 --dry-run
  barnabas storage import /var/lib/kafka/data --in-place
  barnabas storage import /var/lib/kafka/data --undo
"""


class _Directory(NamedTuple):
    """`broker_id`: None where the directory has it, or it is that of the new broker."""

    path: Path
    broker_id: int | None = None


def _directory(text: str) -> _Directory:
    """Reads DIR or DIR=ID."""
    path, _equals, number = text.rpartition("=")
    if path and number.isascii() and number.isdecimal() and not Path(text).exists():
        return _Directory(Path(path), int(number))
    return _Directory(Path(text))


def configure(found: argparse.ArgumentParser) -> None:
    """Adds the arguments of the action to its parser."""
    found.add_argument(
        "sources",
        metavar="DIR[=ID]",
        nargs="+",
        type=_directory,
        help="a log directory of Kafka; of 0.7 and 0.8 with the id of its broker",
    )
    found.add_argument("--config", metavar="FILE", help="server.properties of the new broker")
    settings_option(found, "a setting of the new broker; overrides that of the file")
    found.add_argument(
        "--dry-run", action="store_true", help="print what would be imported; change nothing"
    )
    found.add_argument(
        "--zookeeper",
        metavar="ADDRESS|DATADIR",
        help="of Kafka in ZooKeeper mode: HOST:PORT[/CHROOT], or ZooKeeper's data directory",
    )
    found.add_argument(
        "--link",
        action="store_true",
        help="link sealed segments instead of copying them, where Kafka stopped cleanly",
    )
    found.add_argument(
        "--in-place",
        action="store_true",
        help="no copy: the new broker uses Kafka's directories, which get an undo record",
    )
    found.add_argument(
        "--undo", action="store_true", help="give directories of an import in place back to Kafka"
    )
    found.add_argument(
        "--allow-loss",
        action="store_true",
        help="go on although records or rules are missing, or (--undo) are lost",
    )
    json_option(found)


@errors_of_one_line
def run(arguments: argparse.Namespace) -> int:
    """Imports, or says what would be imported."""
    from barnabas.takeover.refusals import CannotImport

    try:
        if arguments.undo:
            return _undo(arguments)
        if arguments.in_place and not arguments.dry_run:
            finished = _finish(arguments)
            if finished is not None:
                return finished
        config = BrokerConfig.load(arguments.config, arguments.settings)
        with ExitStack() as stack:
            sources = []
            for row in arguments.sources:
                source = _open(row, config.node_id)
                stack.callback(source.close)
                sources.append(source)
            return _import(arguments, sources, config)
    except CannotImport as error:
        for problem in error.problems:
            fail(problem)
        return 1


def _open(given: _Directory, node_id: int) -> "SourceDirectory":
    from barnabas.takeover.refusals import CannotImport
    from barnabas.takeover.source_directory import open_source

    source = open_source(given.path, node_id if given.broker_id is None else given.broker_id)
    if given.broker_id not in (None, source.broker_id):
        source.close()
        raise CannotImport(
            [f"{given.path} is of broker {source.broker_id}, and not of {given.broker_id}."]
        )
    return source


def _import(
    arguments: argparse.Namespace, sources: "Sequence[SourceDirectory]", config: BrokerConfig
) -> int:
    from barnabas.takeover.copied_import import check_targets, import_by_copies
    from barnabas.takeover.import_in_place import import_in_place
    from barnabas.takeover.import_plan import plan_import
    from barnabas.takeover.internal_facts import internal_facts

    log_dirs = [Path(text) for text in config.log_dirs]
    if any(row.is_07 for row in sources):
        return _import_07(arguments, sources, config, log_dirs)
    with _metadata(arguments, sources, config) as metadata:
        plan = plan_import(sources, config, arguments.allow_loss, metadata)
    if arguments.in_place:
        log_dirs = [row.path for row in sources]
    else:
        check_targets(plan, log_dirs)
    facts = internal_facts(plan.partitions)
    if arguments.dry_run:
        return _report(arguments, plan, facts, log_dirs, None)
    read = Progress(
        "read" if arguments.in_place else "copied",
        part=lambda: read.size_bytes / max(plan.size_bytes, 1),
    )
    try:
        if arguments.in_place:
            imported = import_in_place(plan, read.add)
        else:
            imported = import_by_copies(plan, log_dirs, read.add, arguments.link)
    finally:
        read.end()
    return _report(arguments, plan, facts, log_dirs, imported)


def _import_07(
    arguments: argparse.Namespace,
    sources: "Sequence[SourceDirectory]",
    config: BrokerConfig,
    log_dirs: Sequence[Path],
) -> int:
    from barnabas.takeover.copied_import import check_targets, import_by_copies
    from barnabas.takeover.directory_07 import plan_import_07
    from barnabas.takeover.refusals import CannotImport

    if arguments.in_place:
        raise CannotImport(
            [f"{sources[0].path} is of Kafka 0.7, whose files are converted: not with --in-place."]
        )
    size_bytes = sum(
        path.stat().st_size
        for source in sources
        for row in source.partitions.values()
        for path in row.glob("*")
    )
    checked = Progress("checked", part=lambda: checked.size_bytes / max(size_bytes, 1))
    try:
        with ExitStack() as stack:
            tree = None
            if arguments.zookeeper is not None:
                tree = stack.enter_context(_tree(arguments, []))[0]
            node_id = config.node_id if config.node_id >= 0 else sources[0].broker_id
            plan, facts = plan_import_07(sources, node_id, tree, arguments.allow_loss, checked.add)
    finally:
        checked.end()
    check_targets(plan, log_dirs)
    if arguments.dry_run:
        return _report(arguments, plan, facts, log_dirs, None)
    converted = Progress(
        "converted", part=lambda: converted.size_bytes / max(plan.size_bytes, 1), noun=None
    )
    try:
        imported = import_by_copies(plan, log_dirs, converted.add, arguments.link)
    finally:
        converted.end()
    return _report(arguments, plan, facts, log_dirs, imported)


def _tree(
    arguments: argparse.Namespace, known: Sequence[str]
) -> "AbstractContextManager[tuple[MetadataTree, str]]":
    """Opens ZooKeeper's tree. `known`: ids of clusters."""
    from barnabas.cli.zookeeper_source import zookeeper_tree

    def load(connect: str) -> BrokerConfig:
        more = ["metadata.store=zookeeper", f"zookeeper.connect={connect}"]
        return BrokerConfig.load(arguments.config, [*arguments.settings, *more])

    return zookeeper_tree(arguments.zookeeper, load, known)


@contextmanager
def _metadata(
    arguments: argparse.Namespace, sources: "Sequence[SourceDirectory]", config: BrokerConfig
) -> "Iterator[Metadata | None]":
    """Yields the metadata of a cluster in ZooKeeper mode; None: KRaft's metadata log has it."""
    if arguments.zookeeper is not None:
        from barnabas.takeover.import_plan import Metadata
        from barnabas.takeover.zookeeper_cluster import cluster_of_tree

        known = sorted({row.cluster_id for row in sources} - {""})
        with _tree(arguments, known) as (tree, cluster_id):
            yield Metadata(
                f"ZooKeeper ({arguments.zookeeper})",
                cluster_id,
                lambda broker_id, node_id: cluster_of_tree(tree, broker_id, node_id),
            )
    elif any(row.is_kraft for row in sources):
        yield None
    else:
        yield _of_directories(sources, config)


def _of_directories(sources: "Sequence[SourceDirectory]", config: BrokerConfig) -> "Metadata":
    """Returns what the log directories alone say of a cluster in ZooKeeper mode."""
    from barnabas.cli.log_inventory import inventory
    from barnabas.config import DynamicConfig
    from barnabas.controller.internal_topics import internal_topic
    from barnabas.storage.log_dirs import LogDir
    from barnabas.takeover.directory_cluster import cluster_of_directories
    from barnabas.takeover.import_plan import Metadata

    brokers: dict[int, list[LogDir]] = {}
    for row in sources:
        brokers.setdefault(row.broker_id, []).append(LogDir(row.path))
    inventories = [
        inventory(directories)._replace(broker_id=broker_id)
        for broker_id, directories in brokers.items()
    ]
    dynamic = DynamicConfig(config, inventories[0].broker_id)

    def internal(name: str) -> Mapping[str, str] | None:
        topic = internal_topic(name, dynamic, is_cluster=False)
        if topic is None:
            return None
        return {key: value for key, value in (topic.configs or {}).items() if value is not None}

    return Metadata(
        "the log directories",
        "",
        lambda _broker_id, node_id: cluster_of_directories(inventories, internal, node_id),
    )


def _finish(arguments: argparse.Namespace) -> int | None:
    """Finishes an import in place that was killed; None when there was none."""
    from barnabas.takeover.import_in_place import finish_switch, remove_leftovers

    log_dirs = [row.path for row in arguments.sources]
    if not finish_switch(log_dirs):
        remove_leftovers(log_dirs)
        return None
    names = list(map(str, log_dirs))
    text = f"finished the import in place of {', '.join(names)}. Start the broker there"
    did(arguments.json, text, finished=True, logDirs=names)
    return 0


def _undo(arguments: argparse.Namespace) -> int:
    from barnabas.takeover.source_directory import open_source
    from barnabas.takeover.undo_record import undo

    log_dirs = [row.path for row in arguments.sources]
    with ExitStack() as stack:
        for path in log_dirs:
            stack.callback(open_source(path, 0).close)  # no broker uses it
        lost = undo(log_dirs, arguments.allow_loss)
    for line in lost:
        say(f"lost: {line}")
    names = list(map(str, log_dirs))
    text = f"{', '.join(names)} is Kafka's again, as it was before the import"
    did(arguments.json, text, undone=True, logDirs=names, lost=lost)
    return 0


def _report(
    arguments: argparse.Namespace,
    plan: "ImportPlan",
    facts: "InternalFacts",
    log_dirs: Sequence[Path],
    imported: "Sequence[Imported] | None",
) -> int:
    """Prints what was imported; None: what would be."""
    rows = _planned(plan) if imported is None else _done(imported)
    if arguments.json:
        json_document(
            {
                "isDryRun": imported is None,
                "isInPlace": arguments.in_place,
                "clusterId": plan.cluster_id,
                "nodeId": plan.node_id,
                "metadata": plan.metadata,
                "logDirs": list(map(str, log_dirs)),
                "partitions": rows,
                **_counts(plan, facts),
                "openTransactions": facts.open_transactions,
                "notes": list(plan.notes),
            }
        )
        return 0
    columns = ("topic", "partition", "segments", "bytes", "records", "start", "end", "crc32c")
    names = ("topic", "partition", "segments", "sizeBytes", "records", "startOffset", "endOffset")
    table(
        columns if imported is not None else columns[:4],
        [
            [row.get(name) for name in (names if imported is not None else names[:4])]
            + ([row["crc32c"]] if imported is not None else [])
            for row in rows
        ],
        empty="no partitions",
    )
    for line in plan.notes:
        say(line)
    for transaction, state in facts.open_transactions.items():
        say(f"open transaction of {transaction}: {state}; it goes on")
    said = ", ".join(f"{count} {_WORDS[name]}" for name, count in _counts(plan, facts).items())
    where = ", ".join(map(str, log_dirs))
    say(f"cluster {plan.cluster_id}, node {plan.node_id}: {said}")
    if imported is None:
        what = "stay in place in" if arguments.in_place else "would be copied to"
        say(f"dry run: {plan.size_bytes} bytes {what} {where}; nothing was changed")
    else:
        say(f"imported {count_of(len(rows), 'partition')} into {where}. Start the broker there")
    return 0


_WORDS = {
    "topics": "topics",
    "settings": "settings",
    "accessRules": "access rules",
    "users": "SCRAM credentials",
    "quotas": "quotas",
    "tokens": "delegation tokens",
    "groups": "groups",
    "groupOffsets": "group offsets",
}


def _counts(plan: "ImportPlan", facts: "InternalFacts") -> dict[str, int]:
    counts = plan.cluster.counts
    return {
        "topics": len(plan.cluster.topics),
        "settings": counts.settings,
        "accessRules": counts.access_rules,
        "users": counts.users,
        "quotas": counts.quotas,
        "tokens": counts.tokens,
        "groups": facts.groups,
        "groupOffsets": facts.offsets,
    }


def _planned(plan: "ImportPlan") -> list[dict[str, Any]]:
    return [
        {
            "topic": row.topic,
            "partition": row.partition,
            "source": str(plan.sources[row.source].path),
            "segments": sum(file.is_segment for file in row.files),
            "sizeBytes": sum(file.size_bytes for file in row.files if file.is_segment),
        }
        for row in plan.partitions
    ]


def _done(imported: "Sequence[Imported]") -> list[dict[str, Any]]:
    return [
        {
            "topic": row.planned.topic,
            "partition": row.planned.partition,
            "directory": str(row.directory),
            "segments": row.content.segments,
            "sizeBytes": row.content.size_bytes,
            "records": row.content.records,
            "startOffset": row.content.start_offset,
            "endOffset": row.content.end_offset,
            "crc32c": f"{row.content.crc:08x}",
            "damage": list(row.content.damage),
            "originalSegments": row.has_originals,
        }
        for row in imported
    ]
