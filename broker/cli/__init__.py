"""The `barnabas` command: `barnabas COMMAND --help` teaches each one.

A command is a module of this room with `configure(parser)` and `run(arguments) -> exit status`; it
is imported when it is used, so that `barnabas start` pays for nothing else.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from barnabas import __version__

COMMANDS = {
    "start": "run a broker here: one process, one node, no configuration needed",
}

DESCRIPTION = """\
A Kafka-compatible message broker in one process. Any Kafka client can use it.

  barnabas start                          a broker on 127.0.0.1:9092
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="barnabas", description=DESCRIPTION, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"barnabas {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(
            name, help=summary, description=summary, formatter_class=argparse.RawTextHelpFormatter
        )
        if name == wanted:
            module = importlib.import_module(f"barnabas.cli.{name}")
            module.configure(sub)
            sub.set_defaults(run=module.run)
    parsed = parser.parse_args(arguments)
    if parsed.command is None:
        parser.print_help()
        return 0
    try:
        return int(parsed.run(parsed))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 1
