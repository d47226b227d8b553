"""`barnabas storage`: log directories as a whole.

import    takes over log directories of Apache Kafka (takeover/import_plan.py)
"""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.cli.connecting import json_option
from barnabas.cli.output import Progress, count_of, fail, json_document, say, table
from barnabas.cli.parser import settings_option
from barnabas.cli.stopped_broker import errors_of_one_line
from barnabas.config import BrokerConfig

if TYPE_CHECKING:
    from barnabas.takeover.copied_import import Imported
    from barnabas.takeover.import_plan import ImportPlan
    from barnabas.takeover.internal_facts import InternalFacts

EPILOG = """\
`import` reads log directories of Kafka 3.3 to 4.4 with KRaft metadata, of stopped brokers, and
writes those of a new broker of barnabas: topics with their ids, settings, access rules, SCRAM
users, quotas, group offsets, producers and open transactions. It changes nothing in the directories
that it reads. Give all directories of log.dirs, and metadata.log.dir where it is set; of a cluster,
the directories of as many brokers as together have all partitions. The new broker gets the id of
the first one, or node.id of --config or --set.

examples:
  barnabas storage import /var/lib/kafka/data --dry-run
  barnabas storage import /var/lib/kafka/data --set log.dirs=/var/lib/barnabas
  barnabas storage import /mnt/k1 /mnt/k2 --config etc/server.properties --json
"""


def configure(found: argparse.ArgumentParser) -> None:
    """Adds the arguments of the action to its parser."""
    found.add_argument("sources", metavar="DIR", nargs="+", help="a log directory of Kafka")
    found.add_argument("--config", metavar="FILE", help="server.properties of the new broker")
    settings_option(found, "a setting of the new broker; overrides that of the file")
    found.add_argument(
        "--dry-run", action="store_true", help="print what would be imported; change nothing"
    )
    found.add_argument(
        "--allow-loss",
        action="store_true",
        help="import what is there, although records or rules are missing",
    )
    json_option(found)


@errors_of_one_line
def run(arguments: argparse.Namespace) -> int:
    """Imports, or says what would be imported."""
    from barnabas.takeover.copied_import import check_targets, import_by_copies
    from barnabas.takeover.import_plan import plan_import
    from barnabas.takeover.internal_facts import internal_facts
    from barnabas.takeover.refusals import CannotImport
    from barnabas.takeover.source_directory import open_source

    config = BrokerConfig.load(arguments.config, arguments.settings)
    log_dirs = [Path(text) for text in config.log_dirs]
    try:
        with ExitStack() as stack:
            sources = []
            for text in arguments.sources:
                source = open_source(Path(text))
                stack.callback(source.close)
                sources.append(source)
            plan = plan_import(sources, config, arguments.allow_loss)
            check_targets(plan, log_dirs)
            facts = internal_facts(plan.partitions)
            if arguments.dry_run:
                return _report(arguments.json, plan, facts, log_dirs, None)
            copied = Progress("copied", part=lambda: copied.size_bytes / max(plan.size_bytes, 1))
            try:
                imported = import_by_copies(plan, log_dirs, copied.add)
            finally:
                copied.end()
            return _report(arguments.json, plan, facts, log_dirs, imported)
    except CannotImport as error:
        for problem in error.problems:
            fail(problem)
        return 1


def _report(
    as_json: bool,
    plan: "ImportPlan",
    facts: "InternalFacts",
    log_dirs: Sequence[Path],
    imported: "Sequence[Imported] | None",
) -> int:
    """Prints what was imported; None: what would be."""
    rows = _planned(plan) if imported is None else _done(imported)
    if as_json:
        json_document(
            {
                "isDryRun": imported is None,
                "clusterId": plan.cluster_id,
                "nodeId": plan.node_id,
                "metadataLog": plan.metadata_log,
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
        say(f"dry run: {plan.size_bytes} bytes would be copied to {where}; nothing was changed")
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
        }
        for row in imported
    ]
