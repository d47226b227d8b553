"""`barnabas storage`: checks and copies data directories; takes over and gives back Kafka's."""

import argparse
from pathlib import Path

from barnabas.cli import storage_export, storage_import
from barnabas.cli.argument_types import positive
from barnabas.cli.output import Progress, count_of, did, fail, iso_time, json_line, say, table

EPILOG = """\
examples:
  barnabas storage verify data
  barnabas storage verify data --json
  barnabas storage import /var/lib/kafka/data --dry-run
  barnabas storage export /var/lib/kafka/data --dry-run
  barnabas storage snapshot data copy
  barnabas storage fork data second
  barnabas storage backup data backups
  barnabas storage restore backups restored
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
BACKUP_EPILOG = """\
TARGET is a directory, or s3://BUCKET/PREFIX (pip install 'barnabas[s3]'). It may have earlier
backups: files that they have are not stored again. Give the directories of log.dirs of a stopped
broker, or the first one of a running broker, which makes a snapshot of itself. With --keep, run no
other backup to the same TARGET at the same time: it may use a part that is removed.

examples:
  barnabas storage backup data backups
  barnabas storage backup /var/lib/barnabas s3://backups/node-1 --keep 30 --json
"""
RESTORE_EPILOG = """\
Restores the newest backup of SOURCE, or another one with --backup, as the new directory TARGET. It
compares each byte with the checksums of the backup, and refuses a damaged or incomplete one.

examples:
  barnabas storage restore backups --list
  barnabas storage restore backups restored
  barnabas storage restore s3://backups/node-1 /var/lib/barnabas
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
    backup = actions.add_parser(
        "backup",
        help="back up log directories, incremental by segment",
        description="store the log directories of a broker, running or stopped, as a backup",
        epilog=BACKUP_EPILOG,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    backup.add_argument("directories", metavar="DIR", nargs="+", type=Path)
    backup.add_argument("target", metavar="TARGET")
    backup.add_argument(
        "--keep",
        metavar="N",
        type=positive,
        help="afterwards remove all but the N newest backups of this broker in TARGET",
    )
    backup.add_argument("--json", action="store_true", help="print a line of JSON")
    backup.set_defaults(act=_backup)
    restore = actions.add_parser(
        "restore",
        help="restore a backup as a new log directory",
        description="restore a backup as a new log directory, on which a broker starts",
        epilog=RESTORE_EPILOG,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    restore.add_argument("source", metavar="SOURCE")
    restore.add_argument("target", metavar="TARGET", nargs="?", type=Path)
    restore.add_argument("--backup", metavar="NAME", help="this backup (the newest)")
    restore.add_argument("--list", action="store_true", help="list the backups, restore nothing")
    restore.add_argument("--json", action="store_true", help="print lines of JSON")
    restore.set_defaults(act=_restore)


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
    progress = Progress("copied to another file system", noun="file")
    try:
        facts = take(arguments.directory, arguments.target, progress.add, forks=arguments.forks)
    except (NotTaken, MetadataError) as error:
        return fail(str(error))
    finally:
        progress.end()
    did(
        arguments.json,
        f"{arguments.target}: {count_of(facts['partitions'], 'partition')},"
        f" {facts['linkedFiles']} files linked, {facts['copiedBytes']} bytes copied in"
        f" {facts['seconds']:.1f} s; appends waited {facts['pauseMs']:.1f} ms at most",
        **facts,
    )
    return 0


def _backup(arguments: argparse.Namespace) -> int:
    from barnabas.cli.storage_backup import EXPECTED, back_up

    for path in arguments.directories:
        if not path.is_dir():
            return fail(f"there is no directory {path}. Give the directories of log.dirs.")
    progress = Progress("read", noun=None)
    try:
        facts = back_up(
            arguments.directories,
            arguments.target,
            lambda count: progress.add(0, count),
            arguments.keep,
        )
    except EXPECTED as error:
        return fail(str(error))
    finally:
        progress.end()
    did(
        arguments.json,
        f"backup {facts['backup']}: {count_of(facts['files'], 'file')},"
        f" {facts['sizeBytes'] / 1e6:.1f} MB, of which {facts['storedBytes'] / 1e6:.1f} MB are new,"
        f" in {facts['seconds']:.1f} s"
        + (
            f"; removed {count_of(len(facts['removed']), 'old backup')}" if facts["removed"] else ""
        ),
        **facts,
    )
    return 0


def _restore(arguments: argparse.Namespace) -> int:
    from barnabas.cli.storage_backup import EXPECTED, restore

    if arguments.list:
        return _list_backups(arguments)
    if arguments.target is None:
        return fail("TARGET is missing: the directory to restore to, or --list.")
    progress = Progress("restored", noun=None)
    try:
        facts = restore(
            arguments.source,
            arguments.target,
            arguments.backup,
            lambda count: progress.add(0, count),
        )
    except EXPECTED as error:
        return fail(str(error))
    finally:
        progress.end()
    did(
        arguments.json,
        f"{arguments.target}: {count_of(facts['files'], 'file')},"
        f" {facts['sizeBytes'] / 1e6:.1f} MB of backup {facts['backup']} in"
        f" {facts['seconds']:.1f} s",
        **facts,
    )
    return 0


def _list_backups(arguments: argparse.Namespace) -> int:
    from barnabas.cli.storage_backup import EXPECTED, backups_in
    from barnabas.spark.files import files_at

    try:
        found = backups_in(files_at(arguments.source))
    except EXPECTED as error:
        return fail(str(error))
    rows = [
        {
            "backup": row.name,
            "taken": iso_time(row.taken_at_ms),
            "clusterId": row.cluster_id,
            "nodeId": row.node_id,
            "files": len(row.entries),
            "sizeBytes": sum(entry.size_bytes for entry in row.entries),
        }
        for row in found
    ]
    if arguments.json:
        for row in rows:
            print(json_line(row))
    else:
        columns = ("backup", "taken", "clusterId", "nodeId", "files", "sizeBytes")
        table(columns, [[row[name] for name in columns] for row in rows], empty="no backups")
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
