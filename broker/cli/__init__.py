"""The `barnabas` command; `barnabas COMMAND --help` explains each one.

A command is a module of this package with `configure(parser)` and `run(arguments) -> exit status`.
It is imported when it is used, so that `barnabas start` does not import the others."""

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
    "dev": "run a broker with its console and sample data, to try things with",
    "status": "whether a broker is up, its listeners, its disks, and what is wrong",
    "doctor": "why clients cannot use a broker, and what to do",
    "cluster": "brokers, health, elections of leaders; move partitions, drain a broker",
    "topics": "list, create, describe, alter and delete topics",
    "produce": "send lines of standard input or of files as records",
    "consume": "print the records of a topic, byte for byte",
    "offsets": "show the first and the end offset of partitions, and the offset of a time",
    "groups": "list, describe, reset and delete consumer, share and streams groups",
    "transactions": "list, describe and abort transactions; find hanging ones",
    "configs": "show and change settings of topics and brokers, and levels of loggers",
    "config": "check a settings file: which lines have an effect, which are refused, and why",
    "users": "list, set and remove SCRAM users",
    "acls": "list, add and remove access rules",
    "quotas": "list, set and remove quotas of users, client ids and addresses",
    "security": "make certificates, an administrator and a protected listener",
    "plugins": "list and describe plugins, create a new one, reload those of a broker",
    "mirror": "copy topics of other clusters into one, until you stop it",
    "bench": "measure how fast a broker accepts and delivers records",
    "log": "show the contents of the files of a log directory",
    "storage": "check, copy and back up data directories; take over those of Apache Kafka",
    "checkpoint": "show, verify and rewind Spark's checkpoints; copy offsets to and from groups",
    "spark-load": "load topics into parquet files by Spark, batch after batch, each record once",
    "completion": "print the function that completes commands in bash, zsh or fish",
}

DESCRIPTION = """\
A Kafka-compatible message broker in one process. Any Kafka client can use it.

  barnabas start                          a broker on 127.0.0.1:9092
  barnabas topics create news
  echo hello | barnabas produce news
  barnabas consume news --end

Commands that ask a broker work with any Kafka broker: --bootstrap-server HOST:PORT.
`barnabas help COMMAND` explains one command.
"""

COMPLETION = "_ARGCOMPLETE"  # set by the shell's completion function (argcomplete)

# Set this variable to get the traceback of an unexpected error.
DEBUG = "BARNABAS_DEBUG"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status. `argv`: the words after `barnabas`, by default
    those of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if COMPLETION in os.environ:
        from barnabas.cli.completion import complete

        complete(COMMANDS, configure)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] not in COMMANDS:
        return _no_command(arguments)
    name = arguments[0]
    # Only the parser of this command: those of the other commands would take some milliseconds.
    parser = CommandParser(prog=f"barnabas {name}", description=COMMANDS[name])
    try:
        configure(name, parser)
        parsed = parser.parse_args(arguments[1:])
        status = int(module_of(name).run(parsed))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output closed the pipe; Python's last flush would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        print(f"barnabas: {_cause(error)}", file=sys.stderr)
        return 1


def _cause(error: Exception) -> str:
    """Returns one line about an error that the command did not expect."""
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    if isinstance(error, ImportError) and (error.path or "").endswith(".so"):
        reason = str(error).splitlines()[0].rstrip(".")
        return (
            f"a compiled module cannot be loaded: {reason}. It was built for a newer or another"
            " system. Install the packages for this one (`pip install --force-reinstall barnabas`),"
            " or compile barnabas here (`pip install --no-binary barnabas barnabas`)."
        )
    return (
        f"unexpected {reason}. This is an error in barnabas: please report it with the traceback"
        f" that {DEBUG}=1 shows."
    )


def module_of(name: str) -> Any:
    return importlib.import_module(f"barnabas.cli.{name.replace('-', '_')}")


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    """Adds the options and actions of a command to its parser."""
    module_of(name).configure(parser)


def _no_command(arguments: list[str]) -> int:
    """Prints the help or the version; an unknown first word is a usage error."""
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
