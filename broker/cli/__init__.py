"""The `barnabas` command: `barnabas COMMAND --help` teaches each one.

A command is a module of this package with `configure(parser)` and `run(arguments) -> exit status`;
it is imported when it is used, so that `barnabas start` pays for nothing else."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from barnabas import __version__
from barnabas.cli.parser import CommandParser, nearest, usage_error

COMMANDS = {
    "start": "run a broker in the foreground; no configuration is needed",
    "cluster": "list the brokers of a cluster, their listeners, and the controller",
    "topics": "list, create, describe, alter and delete topics",
    "produce": "send lines of standard input or of files as records",
    "consume": "print the records of a topic, byte for byte",
    "offsets": "show where partitions begin and end, and the offset of a time",
    "groups": "list, describe, reset and delete consumer and share groups",
    "transactions": "list, describe and abort transactions; find those that hang",
    "configs": "show and change settings of topics and brokers",
    "plugins": "list and describe plugins, make a new one, load those of a broker again",
    "mirror": "copy topics of other clusters into one, until it is stopped",
    "bench": "measure how fast a broker takes and gives records",
    "log": "show what the files of a log directory hold",
    "checkpoint": "show, verify and rewind Spark's checkpoints; copy offsets to and from groups",
    "spark-load": "load topics into parquet files by Spark, batch after batch, each record once",
}

DESCRIPTION = """\
A Kafka-compatible message broker in one process. Any Kafka client can use it.

  barnabas start                          a broker on 127.0.0.1:9092
  barnabas topics create news
  echo hello | barnabas produce news
  barnabas consume news --end

All but `start` speak to any Kafka broker: --bootstrap-server HOST:PORT.
`barnabas help COMMAND` explains one command.
"""

COMPLETION = "_ARGCOMPLETE"  # set by the shell's completion function (argcomplete)

# Set to see where in the program an error comes from that should have been a plain line.
DEBUG = "BARNABAS_DEBUG"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if COMPLETION in os.environ:
        from barnabas.cli.completion import complete

        complete()
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] not in COMMANDS:
        return _no_command(arguments)
    name = arguments[0]
    # A parser of its own: those of the other commands would cost a start some milliseconds.
    parser = CommandParser(prog=f"barnabas {name}", description=COMMANDS[name])
    configure(name, parser)
    parsed = parser.parse_args(arguments[1:])
    try:
        status = int(module_of(name).run(parsed))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output closed the pipe. Python would print an error at its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        print(
            f"barnabas: unexpected {reason}. This is a fault of barnabas;"
            f" {DEBUG}=1 shows where it happens.",
            file=sys.stderr,
        )
        return 1


def module_of(name: str) -> Any:
    return importlib.import_module(f"barnabas.cli.{name.replace('-', '_')}")


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    """Give the parser of a command its options and actions."""
    module_of(name).configure(parser)


def _no_command(arguments: list[str]) -> int:
    """Help, the version, or what is wrong with the first word."""
    if arguments and not arguments[0].startswith("-"):
        found = nearest(arguments[0], COMMANDS)
        usage_error(f"there is no command {arguments[0]!r}.{found} `barnabas help` lists them.")
    parser = CommandParser(prog="barnabas", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"barnabas {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, description=summary)
    parser.parse_args(arguments)
    parser.print_help()
    return 0
