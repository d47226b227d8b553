"""`barnabas storage`: checks and copies data directories; takes over and gives back Kafka's."""

import argparse
from pathlib import Path

from barnabas.cli import storage_export, storage_import
from barnabas.cli.output import Progress, count_of, did, fail, json_line, say

EPILOG = """\
examples:
  barnabas storage verify data
  barnabas storage verify data --json
  barnabas storage import /var/lib/kafka/data --dry-run
  barnabas storage export /var/lib/kafka/data --dry-run
  barnabas storage snapshot data copy
  barnabas storage fork data second
"""
SNAPSHOT_EPILOG = """\
Run it on the broker's machine, as the broker's user or as root. The files are links to those of the
broker where they cannot change any more, so that a copy of any size takes little time and space; on
another file system than that of log.dirs they become copies. Neither side changes a file of the
other. The copy has the broker's identity: start it in its place, or keep it.

examples:
  barnabas storage snapshot /var/lib/barnabas /var/lib/barnabas-before-upgrade
  barnabas storage snapshot data copy --json
"""
FORK_EPILOG = """\
As `barnabas storage snapshot`, and the copy gets a cluster id of its own, so that it can run beside
the broker. It keeps the node id. Listeners that were set at run time are removed from it.

examples:
  barnabas storage fork data second
  barnabas start --set log.dirs=second --set listeners=PLAINTEXT://127.0.0.1:19092
"""
VERIFY_EPILOG = """\
Give the directories of log.dirs in their order. The broker may run. Nothing is changed: each line
names a file, the position in it, what is wrong, and what the next start does about it.
The exit status is 0 when all is sound, and 1 with a defect, or when the check cannot be made.

examples:
  barnabas storage verify /var/lib/barnabas
  barnabas storage verify disk1 disk2 --records
  barnabas storage verify data --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    verify = actions.add_parser(
        "verify",
        help="report every defect of a data directory, and what a start would do",
        description="check all files of the log directories of one broker, stopped or running",
        epilog=VERIFY_EPILOG,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    verify.add_argument("directories", metavar="DIR", nargs="+", type=Path)
    verify.add_argument("--records", action="store_true", help="also decode every record (slower)")
    verify.add_argument("--json", action="store_true", help="print JSON lines")
    verify.set_defaults(act=_verify)
    imported = actions.add_parser(
        "import",
        help="copy log directories of Apache Kafka into those of a new broker",
        description="copy log directories of stopped brokers of Apache Kafka into those of a new\n"
        "broker, with topics, settings, users, rules, group offsets and open transactions",
        epilog=storage_import.EPILOG,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    storage_import.configure(imported)
    imported.set_defaults(act=storage_import.run)
    exported = actions.add_parser(
        "export",
        help="copy log directories into one on which Apache Kafka starts",
        description="copy the log directories of a stopped broker into one on which Apache Kafka\n"
        "starts, with topics, settings, users, rules, group offsets and open transactions",
        epilog=storage_export.EPILOG,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    storage_export.configure(exported)
    exported.set_defaults(act=storage_export.run)

    for name, what, epilog in (
        ("snapshot", "copy a running broker as it is at one instant", SNAPSHOT_EPILOG),
        ("fork", "copy a running broker, to start the copy beside it", FORK_EPILOG),
    ):
        made = actions.add_parser(
            name,
            help=what,
            description=f"{what}: links to its sealed files, copies of the rest",
            epilog=epilog,
            formatter_class=argparse.RawTextHelpFormatter,
        )
        made.add_argument("directory", metavar="DIR", type=Path, help="the first of log.dirs")
        made.add_argument("target", metavar="TARGET", type=Path, help="a new directory")
        made.add_argument("--json", action="store_true", help="print a line of JSON")
        made.set_defaults(act=_snapshot, forks=name == "fork")


def run(arguments: argparse.Namespace) -> int:
    try:
        return int(arguments.act(arguments))
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "" if error.filename is None else f" {error.filename}"
        return fail(f"cannot read{where}: {error.strerror or error}.")


def _snapshot(arguments: argparse.Namespace) -> int:
    from barnabas.cli.storage_snapshot import NotTaken, take
    from barnabas.metadata.tree import MetadataError

    if not arguments.directory.is_dir():
        return fail(f"there is no directory {arguments.directory}. Give the first of log.dirs.")
    try:
        facts = take(arguments.directory, arguments.target, forks=arguments.forks)
    except (NotTaken, MetadataError) as error:
        return fail(str(error))
    did(
        arguments.json,
        f"{arguments.target}: {count_of(facts['partitions'], 'partition')},"
        f" {facts['linkedFiles']} files linked, {facts['copiedBytes']} bytes copied in"
        f" {facts['seconds']:.1f} s; appends waited {facts['pauseMs']:.1f} ms at most",
        **facts,
    )
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from barnabas.cli.check_directory import DirectoryCheck

    for path in arguments.directories:
        if not path.is_dir():
            return fail(f"there is no directory {path}. Give the directories of log.dirs.")
    progress = Progress("checked")
    check = DirectoryCheck(arguments.directories, progress.add, decodes_records=arguments.records)
    defects = notes = 0
    for found in check.findings():
        defects += found.is_defect
        notes += not found.is_defect
        progress.end()
        if arguments.json:
            document = {**found._asdict(), "file": str(found.file)}
            document["defect"] = document.pop("is_defect")
            print(json_line(document))
            continue
        place = "" if found.position is None else f", byte {found.position}"
        kind = "" if found.is_defect else "note: "
        print(f"{kind}{found.file}{place}: {found.what}.\n  {found.start}.")
    progress.end()
    counts = check.counts
    if arguments.json:
        summary = {
            "partitions": counts.partitions,
            "segments": counts.segments,
            "batches": counts.batches,
            "sizeBytes": counts.size_bytes,
            "defects": defects,
            "notes": notes,
            "running": check.is_running,
            "cleanStop": check.was_clean,
        }
        print(json_line(summary))
    else:
        state = "a broker runs on it" if check.is_running else "the broker is stopped"
        if not check.is_running and not check.was_clean:
            state = "the broker did not stop cleanly: the next start recovers the logs"
        say(
            f"{count_of(defects, 'defect')}, {count_of(notes, 'note')} in"
            f" {count_of(counts.partitions, 'partition')},"
            f" {count_of(counts.segments, 'segment')},"
            f" {counts.batches} batches, {counts.size_bytes / 1e6:.1f} MB; {state}"
        )
    return 1 if defects else 0
