"""Completion in bash, zsh and fish, by argcomplete: `pip install 'barnabas[completion]'` and

    eval "$(register-python-argcomplete barnabas)"

The shell sets COMP_LINE and calls the command; otherwise this module is not imported.
"""

import argparse
import os

from barnabas.cli import COMMANDS, configure


def complete() -> None:
    """Prints the possible next words and ends the process. Returns when argcomplete is not
    installed."""
    try:
        import argcomplete
    except ImportError:
        return
    # argparse's own parser: argcomplete reads it, and does not need what CommandParser adds.
    parser = argparse.ArgumentParser(prog="barnabas")
    parser.add_argument("--version", action="store_true")
    commands = parser.add_subparsers()
    words = os.environ.get("COMP_LINE", "").split()
    for name in COMMANDS:
        command = commands.add_parser(name)
        if len(words) > 1 and words[1] == name:
            configure(name, command)
    argcomplete.autocomplete(parser)
