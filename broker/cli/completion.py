"""Completion in bash, zsh and fish, by argcomplete: `pip install 'barnabas[completion]'` and

    eval "$(register-python-argcomplete barnabas)"

The shell sets COMP_LINE and calls the command; otherwise this module is not imported.
"""

import argparse
import os
from collections.abc import Callable, Iterable


def complete(
    names: Iterable[str], configure: Callable[[str, argparse.ArgumentParser], None]
) -> None:
    """Prints the possible next words and ends the process. Returns when argcomplete is not
    installed. `names`: the commands; `configure` adds the arguments of one to its parser."""
    try:
        import argcomplete
    except ImportError:
        return
    # argparse's own parser: argcomplete reads it, and does not need what CommandParser adds.
    parser = argparse.ArgumentParser(prog="barnabas")
    parser.add_argument("--version", action="store_true")
    commands = parser.add_subparsers()
    words = os.environ.get("COMP_LINE", "").split()
    for name in names:
        command = commands.add_parser(name)
        if len(words) > 1 and words[1] == name:
            configure(name, command)
    argcomplete.autocomplete(parser)
