"""`barnabas start`: a broker in the foreground, until Ctrl-C, SIGTERM or SIGHUP.

What it prints is for people and for scripts: one line a fact on standard error, the last of them
`ready: PLAINTEXT://127.0.0.1:9092` once clients are served. What stops it from starting is one
plain line that says what to do, and exit status 1.
"""

import argparse
import gc
import logging
import signal
import sys
import time
from queue import SimpleQueue

from barnabas.cli.parser import usage_error
from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.settings import UnknownSetting

# At less than the default of 5 ms a busy Python thread cannot delay request handlers for long; a
# still lower value costs throughput where threads wait for each other. The process is the broker's
# own here.
SWITCH_INTERVAL_S = 0.0005
# New containers between two looks for cycles. At the default of 700 each look finds what requests
# under way hold, and hardly any garbage: a tenth of the price of a request that Python answers.
GC_EVERY = 10_000

METRICS_PORT = 9404  # the port that Strimzi and the JMX exporter use for Kafka

EPILOG = """\
Settings are Kafka's own names: a file (--config), the environment (KAFKA_LISTENERS=...), and --set
on top, which may be repeated. Without log.dirs, data goes to ~/.local/share/barnabas, for root to
/var/lib/barnabas.

  barnabas start
  barnabas start --config etc/server.properties --set log.retention.hours=24
  barnabas start --set listeners=PLAINTEXT://127.0.0.1:19092 --set log.dirs=/srv/barnabas
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    parser.add_argument(
        "--set",
        dest="settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting, over the file's; may be repeated",
    )
    parser.add_argument("--quiet", action="store_true", help="only warnings and errors")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def refuse(text: str) -> int:
    say(f"barnabas: {text}")
    return 1


def run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    try:
        config = BrokerConfig.load(arguments.config, arguments.settings)
    except UnknownSetting as error:
        usage_error(str(error))
    except ConfigError as error:
        for problem in error.problems:
            refuse(problem)
        return 1
    logging.basicConfig(
        level=logging.WARNING if arguments.quiet else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.disable()  # nothing that a start makes is garbage; looking for it takes a tenth of the start
    from barnabas.cli.limits import raise_and_read
    from barnabas.node import CannotStart, Node

    limits = raise_and_read()
    for line in (*config.notices, *config.warnings):
        say(line)
    # Not an Event: set() of a handler that interrupts wait() at its beginning waits for the lock
    # that the interrupted wait() holds, and the broker never stops. This put() waits for nothing.
    stop: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda caught, _: stop.put(caught))
    node = Node(config, default_metrics_port=METRICS_PORT)
    try:
        node.start()
    except CannotStart as error:
        return refuse(str(error))
    finally:
        gc.freeze()
        gc.set_threshold(GC_EVERY, *gc.get_threshold()[1:])
        gc.enable()
    say(f"data: {', '.join(config.log_dirs)}")
    for listener in node.listeners:
        if listener not in node.listening:
            say(f"advertised listener: {listener}")
    say(limits.text())
    if node.metrics.address is not None:
        say(f"metrics: {node.metrics.address}/metrics")
    took_ms = 1e3 * (time.monotonic() - began)
    for listener in node.listening:
        say(f"ready: {listener} (node {node.node_id}, {took_ms:.0f} ms)")
    stop.get()
    say("stopping")
    node.stop()
    say("stopped")
    return 0
