"""`barnabas spark-load`: loads topics into parquet files or Delta tables by Spark, once each."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any

from barnabas.cli.connecting import (
    BOOTSTRAP,
    json_option,
    positive_seconds,
    security_option,
    security_settings,
    speaks_to_broker,
)
from barnabas.cli.output import count_of, fail, json_line, say, table
from barnabas.scan import ScanError
from barnabas.spark.failures import CheckpointError
from barnabas.spark.files import files_at
from barnabas.spark.load.batches import Publisher
from barnabas.spark.load.delta import DeltaPublisher, DeltaTasks
from barnabas.spark.load.delta_table import NoConnector, check_connector, delta_conf
from barnabas.spark.load.java import NoJava
from barnabas.spark.load.layout import Count, hour_text
from barnabas.spark.load.loader import Loader, LoadSettings, Report
from barnabas.spark.load.session import (
    LoadFailed,
    NoSpark,
    SparkTasks,
    local_master,
    runs_there,
    spark_session,
    submit,
)
from barnabas.spark.options import EARLIEST, GROUP, LATEST, BadOption, parse_options
from barnabas.spark.planner import DataLoss

COMPLETE, FAILED, INCOMPLETE = 0, 1, 3
REFUSALS = (BadOption, CheckpointError, LoadFailed, NoConnector, NoJava, NoSpark, ScanError)
MEGABYTE = 1024 * 1024
PARQUET, DELTA = FORMATS = "parquet", "delta"
EPILOG = """\
exit status: 0 all records that were in the topics at the start are loaded; 3 not all (it was
stopped, or records were lost); 1 an error: no batch is half-loaded, and the next run continues.

TO and CHECKPOINT are paths or file:, hdfs:, webhdfs:, s3: URLs. `barnabas checkpoint` shows and
changes the checkpoint.

examples:
  barnabas spark-load news --to /data/lake --checkpoint /data/cp/news
  barnabas spark-load news,orders --to hdfs://nn/lake --checkpoint hdfs://nn/cp --interval 300
  barnabas spark-load news --to s3://lake/raw --checkpoint s3://lake/cp --group loader --json
  barnabas spark-load news --to hdfs://nn/lake --checkpoint hdfs://nn/cp --master yarn
  barnabas spark-load news --to /data/lake --checkpoint /data/cp --command-config client.properties
  barnabas spark-load news --to /data/lake --checkpoint /data/cp/news --format delta \\
      --conf spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("topics", metavar="TOPICS", help="names between commas")
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        default=BOOTSTRAP,
        help=f"any broker of the cluster; several with commas (default {BOOTSTRAP})",
    )
    security_option(parser)
    parser.add_argument("--to", metavar="URL", required=True, help="directory of the files")
    parser.add_argument("--checkpoint", metavar="URL", required=True, help="stored offsets")
    often = parser.add_mutually_exclusive_group()
    often.add_argument("--once", action="store_true", help="load the present records (the default)")
    often.add_argument(
        "--interval",
        metavar="SECONDS",
        type=positive_seconds,
        help="load at this interval; SIGTERM ends it after the present batch",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=PARQUET,
        help="format of the files (parquet); delta needs its connector: see docs/load.md",
    )
    _batch_options(parser)
    _spark_options(parser)
    json_option(parser, "a line of JSON for each batch, and one at the end")


def _batch_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("batches")
    group.add_argument(
        "--first",
        choices=(EARLIEST, LATEST, GROUP),
        default=EARLIEST,
        help="start of a topic that is not in the checkpoint (earliest)",
    )
    group.add_argument("--group", metavar="GROUP", help="commit the offsets of each batch to it")
    group.add_argument(
        "--isolation", choices=("read_committed", "read_uncommitted"), default="read_committed"
    )
    group.add_argument(
        "--batch-records", metavar="N", type=_count, help="about N records in a batch (no limit)"
    )
    group.add_argument(
        "--file-size", metavar="MIB", type=_count, default=128, help="size of a file, about (128)"
    )
    group.add_argument(
        "--min-tasks", metavar="N", type=_count, help="split large partitions into N tasks or more"
    )
    group.add_argument(
        "--lateness",
        metavar="SECONDS",
        type=_seconds,
        default=600.0,
        help="an hour is complete this long after its end, when all records are read (600)",
    )
    group.add_argument(
        "--allow-data-loss",
        action="store_true",
        help="continue when the topics no longer have some records; the exit status is 3 then",
    )
    group.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_pair,
        help="of the data source: source=wire, segments.dir=..., maxBytesPerTrigger, kafka.*",
    )


def _spark_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        metavar="URL",
        default=local_master(),
        help="a cluster: spark://..., yarn, k8s://... (default: all cores of this machine)",
    )
    group.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_pair,
        help="a setting of Spark, as for spark-submit",
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**40:
        raise argparse.ArgumentTypeError("give a number above 0")
    return int(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError("give seconds, 0 or more")
    return seconds


def one_line(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Wraps a command: it prints an error of a load in one line, and returns exit status 1."""

    @wraps(command)
    def run(arguments: argparse.Namespace) -> int:
        try:
            return command(arguments)
        except DataLoss as error:
            return fail(f"{'; '.join(error.reasons)}. --allow-data-loss goes on without them.")
        except REFUSALS as error:
            return fail(str(error))
        except OSError as error:
            return fail(f"{error.filename or arguments.to}: {error.strerror or error}")

    return run


@one_line
@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    if not arguments.topics.strip(", "):
        return fail("TOPICS is empty. Name at least one topic.")
    if arguments.first == GROUP and not arguments.group:
        return fail("--first group needs --group. Give --group GROUP.")
    if runs_there(dict(arguments.conf)):
        app = Path(__file__).with_name("spark_app.py")
        return submit(arguments.master, dict(arguments.conf), app, given_words())
    settings = settings_of(arguments)
    # Errors in URLs and options appear here, before Spark starts, which takes seconds.
    for url in (settings.to, settings.checkpoint):
        files_at(url)
    shown = Shown(arguments.json, keeps_counts=arguments.interval is None)
    conf = dict(arguments.conf)
    if arguments.format == DELTA:
        conf = delta_conf(conf)
    with spark_session(arguments.master, conf) as session, stopping() as stop:
        loader = _loader(arguments.format, settings, session, shown)
        while True:
            complete = _load(loader, shown, stop)
            if arguments.interval is None or stop.is_set() or stop.wait(arguments.interval):
                break
        shown.end(complete and not loader.lost, loader.lost)
    return COMPLETE if complete and not loader.lost else INCOMPLETE


def _loader(form: str, settings: LoadSettings, session: Any, shown: "Shown") -> Loader:
    """Returns the loader for the format `form`. Raises CheckpointError, NoConnector."""
    if form == DELTA:
        check_connector(session)
        shown.begin(DeltaTasks(session, shown.update))
        publisher: Callable[..., Publisher] = partial(DeltaPublisher, session=session)
    else:
        shown.begin(SparkTasks(session.sparkContext, shown.update))
        publisher = Publisher
    return Loader(settings, shown.run, publisher=publisher)


def given_words() -> Sequence[str]:
    """Returns the words after `spark-load` on the command line."""
    return sys.argv[2:]


def settings_of(arguments: argparse.Namespace) -> LoadSettings:
    """Returns the settings of the load. Raises BadOption, BadSetting."""
    security = security_settings(arguments.command_config)
    given: dict[str, str | None] = {
        **{f"kafka.{name}": value for name, value in security.items()},
        **dict(arguments.option),
        "kafka.bootstrap.servers": arguments.bootstrap_server,
        "subscribe": arguments.topics,
        "startingOffsets": arguments.first,
        "commitOffsetsToGroup": arguments.group,
        "isolation": arguments.isolation,
        "failOnDataLoss": "false" if arguments.allow_data_loss else "true",
        "minPartitions": arguments.min_tasks,
        "maxOffsetsPerTrigger": arguments.batch_records,
        "includeHeaders": "true",
    }
    options = {name: str(value) for name, value in given.items() if value is not None}
    return LoadSettings(
        options=parse_options(options, stream=True),
        to=absolute(arguments.to),
        checkpoint=absolute(arguments.checkpoint),
        file_bytes=arguments.file_size * MEGABYTE,
        lateness_ms=round(arguments.lateness * 1000),
    )


def absolute(url: str) -> str:
    """Returns a path as an absolute one, because workers run in other directories; a URL
    unchanged."""
    return url if "://" in url or url.startswith("file:") else os.path.abspath(url)


def _load(loader: Loader, shown: "Shown", stop: threading.Event) -> bool:
    """Loads batches up to the ends; returns False when it was stopped before."""
    for report in loader.batches():
        shown.batch(report)
        if stop.is_set():
            return False
    return True


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Yields an event that the first SIGTERM or SIGINT sets; a second one has its usual effect."""
    stop = threading.Event()
    defaults: dict[int, Any] = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    before = {}

    def ask(number: int, frame: object) -> None:
        stop.set()
        signal.signal(number, defaults[number])

    if threading.current_thread() is threading.main_thread():
        for number in defaults:
            before[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Shown:
    """The output: a progress bar on a terminal, lines or JSON for batches, the audit at the end."""

    def __init__(self, as_json: bool, keeps_counts: bool) -> None:
        self.as_json = as_json
        self._keeps_counts = keeps_counts and not as_json  # an endless load would count too many
        self.counts: dict[tuple[str, int, int | None], Count] = {}
        self.late: dict[tuple[str, int, int | None], int] = {}
        self.totals = {"batches": 0, "records": 0, "bytes": 0, "files": 0, "late": 0, "retried": 0}
        self._run: Callable[[Any], Any] | None = None
        self._bar: Any = None
        self._bar_task: Any = None

    def begin(self, run: Callable[[Any], Any]) -> None:
        self._run = run

    def run(self, tasks: Sequence[Any]) -> Any:
        """Runs the tasks, with a progress bar when standard error is a terminal."""
        assert self._run is not None, "Spark is there before a batch is"
        if not sys.stderr.isatty():
            return self._run(tasks)
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), Elapsed())
        with Progress(*columns, console=Console(stderr=True), transient=True) as self._bar:
            self._bar_task = self._bar.add_task("ranges", total=len(tasks))
            try:
                return self._run(tasks)
            finally:
                self._bar, self._bar_task = None, None

    def update(self, done: int, records: int, size_bytes: int) -> None:
        """Updates the progress bar. `done`: the number of finished tasks."""
        if self._bar is not None:
            text = f"ranges, {records:,} records, {size_bytes / 1e6:,.1f} MB"
            self._bar.update(self._bar_task, completed=done, description=text)

    def batch(self, report: Report) -> None:
        found = batch_document(report)
        for name in self.totals:
            self.totals[name] += found[name] if name != "batches" else 1
        for audit in report.audits if self._keeps_counts else ():
            for (hour, partition), count in audit.counts.items():
                key = (audit.topic, partition, hour)
                self.counts.setdefault(key, Count()).add(count.records, count.bytes)
                if hour in audit.late:
                    self.late[key] = self.late.get(key, 0) + count.records
        if self.as_json:
            print(json_line(found), flush=True)
            return
        again = ", begun by an earlier run" if report.is_repeated else ""
        late = f", {found['late']} of them late" if found["late"] else ""
        say(
            f"batch {report.batch_id}{again}: {count_of(found['records'], 'record')}{late},"
            f" {found['bytes'] / 1e6:.1f} MB into {count_of(found['files'], 'file')},"
            f" {report.seconds:.1f} s"
        )
        for line in report.lost:
            say(f"lost: {line}")

    def end(self, complete: bool, lost: Sequence[str]) -> None:
        if self.as_json:
            print(json_line({"complete": complete, **self.totals, "lost": list(lost)}), flush=True)
            return
        if self._keeps_counts:
            rows = sorted(
                self.counts.items(), key=lambda row: (row[0][0], row[0][1], row[0][2] or -1)
            )
            table(
                ["topic", "partition", "hour", "records", "bytes", "late"],
                [
                    [key[0], key[1], hour_text(key[2]), c.records, c.bytes, self.late.get(key, 0)]
                    for key, c in rows
                ],
            )
        loaded = count_of(self.totals["records"], "record")
        say(f"{loaded}: {'complete' if complete else 'not complete'}")


def batch_document(report: Report) -> dict[str, Any]:
    """Returns a batch as a JSON document."""
    audits = report.audits
    return {
        "batch": report.batch_id,
        "repeated": report.is_repeated,
        "seconds": round(report.seconds, 3),
        "records": sum(audit.records for audit in audits),
        "bytes": sum(audit.body_bytes for audit in audits),
        "files": sum(len(audit.files) for audit in audits),
        "late": sum(audit.late_records() for audit in audits),
        "retried": sum(audit.retried for audit in audits),
        "offsets": {
            audit.topic: {
                str(index): {"start": start, "end": end}
                for index, (start, end) in sorted(audit.ends.items())
            }
            for audit in audits
        },
        "audit": [row for audit in audits for row in audit.rows()],
        "completeHours": {
            topic: [hour_text(hour) for hour in hours] for topic, hours in report.complete.items()
        },
        "lost": report.lost,
    }
