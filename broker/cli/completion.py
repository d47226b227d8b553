"""Completion in bash, zsh and fish, by argcomplete: `pip install 'barnabas[completion]'` and

    eval "$(register-python-argcomplete barnabas)"

The shell sets COMP_LINE and calls the command; nothing of this is imported otherwise.
"""

import argparse
import os

from barnabas.cli import COMMANDS, configure


def complete() -> None:
    """Print what may follow and end the process. Returns when argcomplete is not installed."""
    try:
        import argcomplete
    except ImportError:
        return
    # argparse's own parser: argcomplete walks into it, and needs none of what CommandParser adds.
    parser = argparse.ArgumentParser(prog="barnabas")
    parser.add_argument("--version", action="store_true")
    commands = parser.add_subparsers()
    words = os.environ.get("COMP_LINE", "").split()
    for name in COMMANDS:
        command = commands.add_parser(name)
        if len(words) > 1 and words[1] == name:
            configure(name, command)
    argcomplete.autocomplete(parser)
