"""`barnabas mirror`: copies topics of other clusters into one, as long as it runs.

It copies each record at least once: it commits offsets in the source when the target has
acknowledged the records. It retries without limit; an error of the target that is not retriable
ends the mirror.
"""

import argparse
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from barnabas import __version__
from barnabas.cli.connecting import (
    BOOTSTRAP,
    json_option,
    properties_of,
    security_option,
    security_settings,
    speaks_to_broker,
)
from barnabas.cli.encoding import plugin_option
from barnabas.cli.output import PROGRESS_EVERY_S, count_of, fail, json_line, say
from barnabas.wire.compression import CODECS

if TYPE_CHECKING:
    from barnabas.cli.mirror_metrics import MirrorMetrics
    from barnabas.clients.mirror.mirror import Mirror
    from barnabas.telemetry.endpoint import Endpoint

LOOK_EVERY_S = 2.0  # interval of reading the lag
END_LOOK_S = 0.2  # interval of the progress, and of the check for the end

EPILOG = """\
examples:
  barnabas mirror --source east=10.0.0.1:9092 --source west=10.1.0.1:9092 --whitelist 'orders.*'
  barnabas mirror --source 10.0.0.1:9092 --blacklist 'test.*,tmp.*' --metrics-port 9644
  barnabas mirror --source 10.0.0.1:9092 --whitelist news --end      copy present records, then stop
  barnabas mirror --source-config east.properties --target-config here.properties --whitelist '.*'
  barnabas mirror --source 10.0.0.1:9092 --whitelist '.*' --message-handler rename

--command-config says how all clusters are reached; the files of --source-config and --target-config
override it for one. Several mirrors with the same --group share the partitions of their sources.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "--source",
        metavar="[NAME=]HOST:PORT",
        action="append",
        default=[],
        help="a cluster to copy from; may be repeated",
    )
    parser.add_argument(
        "--source-config",
        metavar="FILE",
        action="append",
        default=[],
        help="a source by old consumer settings (also zookeeper.connect); the file's name is NAME",
    )
    parser.add_argument(
        "--target", metavar="HOST:PORT", help=f"the cluster to copy to (default {BOOTSTRAP})"
    )
    parser.add_argument("--target-config", metavar="FILE", help="settings of the old producer")
    security_option(parser)
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("--whitelist", metavar="REGEX", help="copy these topics")
    topics.add_argument("--blacklist", metavar="REGEX", help="copy all topics except these")
    parser.add_argument("--group", default="mirror", help="consumer group in the sources (mirror)")
    parser.add_argument(
        "--from",
        dest="begin",
        choices=("earliest", "latest"),
        default="earliest",
        help="start of partitions for which the group has no committed offset (earliest)",
    )
    parser.add_argument(
        "--partitioner", metavar="NAME", help="plugin that chooses partitions (default: keep them)"
    )
    parser.add_argument(
        "--message-handler", metavar="NAME", help="plugin that changes the messages"
    )
    plugin_option(parser)
    parser.add_argument("--codec", choices=list(CODECS), default="none", help="compression")
    parser.add_argument(
        "--replication-factor", type=int, default=-1, help="of new topics (the target's default)"
    )
    parser.add_argument(
        "--commit-interval", metavar="MS", type=int, default=1000, help="of offset commits (1000)"
    )
    parser.add_argument("--metrics-port", type=int, help="/metrics and /health on 127.0.0.1")
    parser.add_argument("--end", action="store_true", help="stop at the present end of the topics")
    parser.add_argument("--quiet", action="store_true", help="no progress and no summary")
    json_option(parser, "the summary as a line of JSON")


@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    from barnabas.clients.mirror.mirror import Mirror
    from barnabas.hooks.plugin import CannotLoad

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    if arguments.commit_interval < 1:
        return fail("--commit-interval is below 1. Give a number of milliseconds.")
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        mirror = Mirror(_settings(arguments))
    except OSError as error:
        return fail(f"cannot read {error.filename}: {error.strerror}.")
    except (CannotLoad, ValueError) as error:
        return fail(str(error))
    return _run(mirror, arguments, stopping)


def _settings(arguments: argparse.Namespace) -> Any:
    """Returns the settings of the mirror. Raises ValueError, OSError."""
    from barnabas.clients.consumer.topic_filter import Blacklist, TopicFilter, Whitelist
    from barnabas.clients.mirror.mirror import MirrorSettings

    sources: dict[str, dict[str, Any]] = {}
    protection = security_settings(arguments.command_config)
    common = {"group.id": arguments.group, "auto.offset.reset": arguments.begin} | protection
    for text in arguments.source:
        name, equals, address = text.partition("=")
        if not equals:
            name, address = text, text
        _add(sources, name, {"bootstrap.servers": address, **common})
    for file in arguments.source_config:
        _add(sources, Path(file).stem, common | properties_of(file))
    if not sources:
        raise ValueError("no source is named. Give --source HOST:PORT or --source-config FILE.")
    target: dict[str, Any] = {"compression.codec": arguments.codec} | protection
    if arguments.target_config is not None:
        target |= properties_of(arguments.target_config)
    if arguments.target is not None or arguments.target_config is None:
        target["metadata.broker.list"] = arguments.target or BOOTSTRAP
    if arguments.whitelist is not None:
        topics: TopicFilter = Whitelist(arguments.whitelist)
    else:
        topics = Blacklist(arguments.blacklist)
    return MirrorSettings(
        sources=sources,
        target=target,
        topics=topics,
        partitioner=arguments.partitioner,
        handler=arguments.message_handler,
        plugin_options=dict(arguments.option),
        replication_factor=arguments.replication_factor,
        commit_interval_ms=arguments.commit_interval,
    )


def _add(sources: dict[str, dict[str, Any]], name: str, settings: dict[str, Any]) -> None:
    if name in sources:
        raise ValueError(f"two sources are called {name}. Name them: --source NAME=HOST:PORT.")
    sources[name] = settings


def _run(mirror: "Mirror", arguments: argparse.Namespace, stopping: threading.Event) -> int:
    from barnabas.cli.mirror_metrics import MirrorMetrics
    from barnabas.clients.mirror.source import SourceIsTarget

    metrics = MirrorMetrics(mirror)
    page = None
    if arguments.metrics_port is not None:
        try:
            page = _page(metrics, arguments.metrics_port)
        except OSError as error:
            mirror.stop(0)
            return fail(f"--metrics-port {arguments.metrics_port}: {error.strerror}.")
        say(f"metrics: {page.address}/metrics")
    progress = _Progress(mirror, metrics, is_shown=not arguments.quiet)
    mirror.start()
    try:
        _watch(mirror, arguments, stopping, metrics, progress)
    finally:
        mirror.stop()
        progress.end()
        if page is not None:
            page.stop()
    if mirror.failure is not None:
        name, why = mirror.failure
        if isinstance(why, SourceIsTarget):
            return fail(f"source {name}: {why}.")
        return fail(
            f"source {name}: {type(why).__name__}: {why}. Records that are not in the target are"
            " not committed: the next start reads them again."
        )
    if arguments.json:
        print(json_line(progress.document()))
    elif not arguments.quiet:
        say(progress.summary())
    return 0


def _watch(
    mirror: "Mirror",
    arguments: argparse.Namespace,
    stopping: threading.Event,
    metrics: "MirrorMetrics",
    progress: "_Progress",
) -> None:
    look_at = 0.0
    while not stopping.is_set() and not mirror.wait(0):
        if time.monotonic() >= look_at:
            metrics.look()
            look_at = time.monotonic() + LOOK_EVERY_S
        progress.show()
        if arguments.end and mirror.is_at_end():
            return
        stopping.wait(END_LOOK_S)


def _page(metrics: "MirrorMetrics", port: int) -> "Endpoint":
    from barnabas.telemetry.endpoint import Endpoint
    from barnabas.telemetry.exposition import CONTENT_TYPE, write_page
    from barnabas.telemetry.process_metrics import ProcessCollector
    from barnabas.telemetry.registry import Page, Registry

    registry = Registry()
    registry.add(metrics.collect)
    registry.add(ProcessCollector(__version__))

    def page() -> tuple[str, Any]:
        page = Page("jmx", time.monotonic_ns())
        return CONTENT_TYPE, write_page(registry.families(page), page)

    endpoint = Endpoint("127.0.0.1", port, page, lambda: metrics.problem)
    endpoint.start()
    return endpoint


class _Progress:
    """Shows the progress in one line of a terminal, which each call updates."""

    def __init__(self, mirror: "Mirror", metrics: "MirrorMetrics", is_shown: bool) -> None:
        self._mirror, self._metrics = mirror, metrics
        self._began = time.monotonic()
        self._next = self._began + PROGRESS_EVERY_S
        self._shown = False
        self._to_terminal = is_shown and sys.stderr.isatty()

    def show(self) -> None:
        if self._to_terminal and time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_EVERY_S
            self._shown = True
            text = f"{self.summary()}, {self._metrics.lag} behind"
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    def document(self) -> dict[str, Any]:
        """Returns the copied records and bytes, and the seconds since the start."""
        return {
            "records": sum(sum(source.records.values()) for source in self._mirror.sources),
            "bytes": sum(sum(source.size_bytes.values()) for source in self._mirror.sources),
            "seconds": round(max(time.monotonic() - self._began, 1e-3), 3),
        }

    def summary(self) -> str:
        found = self.document()
        seconds, megabytes = found["seconds"], found["bytes"] / 1e6
        return (
            f"mirrored {count_of(found['records'], 'record')}, {megabytes:.1f} MB"
            f" in {seconds:.1f} s ({megabytes / seconds:.1f} MB/s)"
        )

    def end(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
