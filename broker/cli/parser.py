"""The parser of every command: argparse, with suggestions and errors of one line.

docs/decisions/command-line.md says why it is argparse, and how much other libraries delay a start.
This file adds what argparse of Python 3.11 lacks: suggestions for misspelt names (3.14 has
`suggest_on_error`), options between the positional arguments, and errors without ten lines of
usage.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

USAGE_ERROR = 2  # the exit status
REQUIRED = "the following arguments are required: "
VARIABLE = ("?", "*", "+")  # values of `nargs` that end at an option, unless options come first


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns ` Did you mean NAME?` with the most similar of the known names; "" if none is."""
    from barnabas.config import spelling  # imported only for an error: it imports the settings

    return spelling.nearest(word, known)


def usage_error(text: str) -> NoReturn:
    print(f"barnabas: {text}", file=sys.stderr, flush=True)
    raise SystemExit(USAGE_ERROR)


def settings_option(parser: argparse.ArgumentParser, summary: str) -> None:
    """Adds --set, which may be repeated; its values are in `settings`."""
    parser.add_argument(
        "--set",
        dest="settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help=f"{summary}; may be repeated",
    )


class CommandParser(argparse.ArgumentParser):
    """The parser of a command; argparse uses this class for each of its actions too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawTextHelpFormatter, **settings})
        self._takes_options_out = False

    def error(self, message: str) -> NoReturn:
        if message.startswith(REQUIRED):
            missing = message.removeprefix(REQUIRED)
            is_one = "," not in missing
            message = f"{missing} {'is' if is_one else 'are'} missing"
            choices = [str(name) for action in self._choosing() for name in action.choices or ()]
            if choices:
                message += f": {', '.join(choices)}"
        ending = "" if message.endswith(("?", ".")) else "."
        usage_error(f"{message}{ending} See `{self.prog} --help`.")

    def _choosing(self) -> list[argparse.Action]:
        return [row for row in self._actions if isinstance(row, argparse._SubParsersAction)]

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(name) for name in action.choices]
        what = "/".join(action.option_strings) or str(action.metavar or action.dest)
        self.error(
            f"{what} {str(value)!r} is none of {', '.join(names)}.{nearest(str(value), names)}"
        )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses as argparse does, and accepts options between positional arguments. An unknown
        argument is a usage error of the action's own parser."""
        words = list(sys.argv[1:] if args is None else args)
        if self._takes_options_out:  # argparse calls this from parse_known_intermixed_args
            return super().parse_known_args(words, namespace)
        positional = self._get_positional_actions()
        # An argument after `--` is never an option; argparse of 3.11 ignores that when it mixes.
        if "--" not in words and any(row.nargs in VARIABLE for row in positional):
            self._takes_options_out = True
            try:
                found, rest = self.parse_known_intermixed_args(words, namespace)
            finally:
                self._takes_options_out = False
        else:
            found, rest = super().parse_known_args(words, namespace)
        if rest:
            self._refuse(rest)
        return found, rest

    def _refuse(self, rest: list[str]) -> NoReturn:
        option = next((word for word in rest if word.startswith("-")), None)
        if option is None:
            self.error(f"unexpected argument {rest[0]!r}")
        name = option.partition("=")[0]
        self.error(f"there is no option {name}.{nearest(name, self._option_string_actions)}")
