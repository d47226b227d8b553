"""`barnabas start`: a broker in the foreground, until Ctrl-C, SIGTERM or SIGHUP.

Users and scripts read its output: one line for each fact on standard error, the last one
`ready: PLAINTEXT://127.0.0.1:9092` when the broker serves clients. When it cannot start, it prints
one line with the reason and the remedy, and returns exit status 1. With logging.format=json each of
these lines is a JSON object (telemetry/json_lines.py), except errors in the settings themselves.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from barnabas.cli.parser import settings_option, usage_error
from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.settings import UnknownSetting

if TYPE_CHECKING:
    from barnabas.node import Node
    from barnabas.stages.service_manager import ServiceManager

# With less than the default of 5 ms a busy Python thread cannot delay request handlers for long; a
# still lower value costs throughput when threads wait for each other. The value may be set here,
# because the process belongs to the broker.
SWITCH_INTERVAL_S = 0.0005
# New containers between two searches for cycles. With the default of 700 a search finds the objects
# of requests in progress and hardly any garbage, and takes a tenth of the time of a request in
# Python.
GC_EVERY = 10_000

BROKERS_MAX = 10  # of --cluster
METRICS_PORT = 9404  # the port that Strimzi and the JMX exporter use for Kafka

EPILOG = """\
Settings have Kafka's names. Later sources override earlier ones: a file (--config), the environment
(KAFKA_LISTENERS=...), --set, which may be repeated. Without log.dirs, data goes to
~/.local/share/barnabas; for root to /var/lib/barnabas.

  barnabas start
  barnabas start --config etc/server.properties --set log.retention.hours=24
  barnabas start --set listeners=PLAINTEXT://127.0.0.1:19092 --set log.dirs=/srv/barnabas
  barnabas start --plugin-path plugins --set plugins=keep-ten    wheels with plugins
  barnabas start --cluster 3                      three brokers and a ZooKeeper, to develop with
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    settings_option(parser, "a setting; overrides that of the file")
    parser.add_argument(
        "--plugin-path",
        metavar="DIR",
        help="a directory of wheels with plugins; the same as --set plugins.path=DIR",
    )
    parser.add_argument(
        "--cluster",
        metavar="COUNT",
        type=broker_count,
        help="start so many brokers on this machine, for development, each a process with a"
        " directory\nbelow log.dirs; ZooKeeper too (from pyspark's jars) without zookeeper.connect",
    )
    parser.add_argument("--quiet", action="store_true", help="log only warnings and errors")


def broker_count(text: str) -> int:
    count = int(text)
    if not 0 < count <= BROKERS_MAX:
        raise argparse.ArgumentTypeError(f"give a number from 1 to {BROKERS_MAX}")
    return count


def say(text: str, _level: int = logging.INFO) -> None:
    print(text, file=sys.stderr, flush=True)


def refuse(
    *problems: str, say: Callable[..., None] = say, service: ServiceManager | None = None
) -> int:
    for text in problems:
        say(f"barnabas: {text}", logging.ERROR)
    if service is not None:
        service.refused(" ".join(problems))
    return 1


def begin_logging(config: BrokerConfig, is_quiet: bool) -> Callable[..., None]:
    """Sets the form and the level of this process's log. Returns the function that prints the lines
    of the start in the same form."""
    logging.basicConfig(
        level=logging.WARNING if is_quiet else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    if config.text("logging.format") == "text":
        return say
    from barnabas.telemetry import json_lines  # few brokers need it

    return json_lines.begin()


def run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    service = service_manager()
    if arguments.plugin_path is not None:
        arguments.settings.append(f"plugins.path={arguments.plugin_path}")
    try:
        config = BrokerConfig.load(arguments.config, arguments.settings)
    except UnknownSetting as error:
        usage_error(str(error))
    except ConfigError as error:
        return refuse(*error.problems, service=service)
    if arguments.cluster is not None:
        return start_cluster(config, arguments)
    return serve(config, begin_logging(config, arguments.quiet), began, service=service)


def serve(
    config: BrokerConfig,
    say: Callable[..., None],
    began: float,
    *,
    service: ServiceManager | None = None,
    beside: Callable[[Node], AbstractContextManager[object]] = nullcontext,
) -> int:
    """Runs a broker until a signal stops it. Returns the exit status.

    `began`: the monotonic time at which the command began, in s. `beside(node)` is entered when the
    broker serves clients, and left when it is about to stop."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.disable()  # a start makes no garbage; the search for it takes a tenth of the start
    from barnabas.cli.limits import raise_and_read
    from barnabas.node import CannotStart, Node

    limits = raise_and_read()
    for line in config.notices:
        say(line)
    for line in config.warnings:
        say(line, logging.WARNING)
    stop = signals_to_stop()
    node = Node(config, default_metrics_port=METRICS_PORT)
    if service is not None:
        service.watch(node.metrics)
    try:
        node.start()
    except CannotStart as error:
        return refuse(str(error), say=say, service=service)
    finally:
        gc.freeze()
        gc.set_threshold(GC_EVERY, *gc.get_threshold()[1:])
        gc.enable()
    say_what_runs(say, node, limits.text(), 1e3 * (time.monotonic() - began))
    if service is not None:
        service.ready(", ".join(map(str, node.listeners)))
    with beside(node):
        os.read(stop, 1)
    say("stopping")
    if service is not None:
        service.stopping()
    node.stop()
    say("stopped")
    return 0


def signals_to_stop() -> int:
    """Catches the signals that stop a broker from now on. Returns the descriptor from which a byte
    can be read when one has come.

    Linux may run the handler on any thread, which writes the byte. No Python code sees the signal
    before the main thread runs, and a lock or a queue on which that waits would not wake it."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return readable


def say_what_runs(say: Callable[..., None], node: Node, limits: str, took_ms: float) -> None:
    """Prints where the data is and where clients connect."""
    say(f"data: {', '.join(node.config.log_dirs)}")
    for listener in node.listeners:
        if listener not in node.listening:
            say(f"advertised listener: {listener}")
    say(limits)
    if node.metrics.address is not None:
        say(f"metrics: {node.metrics.address}/metrics")
    if node.console is not None:
        say(f"console: {node.console.address}")
    for listener in node.listening:
        say(f"ready: {listener} (node {node.node_id}, {took_ms:.0f} ms)")


def service_manager() -> ServiceManager | None:
    """Returns the service manager that started this process; None without one."""
    if "NOTIFY_SOCKET" not in os.environ:
        return None
    from barnabas.stages.service_manager import from_environment

    return from_environment(os.environ, os.getpid())


def start_cluster(config: BrokerConfig, arguments: argparse.Namespace) -> int:
    """Runs several brokers on this machine."""
    from barnabas.cli.development_cluster import CannotStartCluster, DevelopmentCluster

    try:
        return DevelopmentCluster(config, arguments).run(say)
    except (CannotStartCluster, OSError) as error:
        return refuse(f"{str(error).rstrip('.')}.")
