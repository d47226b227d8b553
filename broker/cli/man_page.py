"""Generates the manual page: `python -m barnabas.cli.man_page > etc/barnabas.1`.

Commands, options and examples come from the parsers, so the page says what `--help` says. It uses
no formatter of argparse, because that differs between versions of Python."""

import argparse
from collections.abc import Callable, Iterator

from barnabas.cli import COMMANDS, DEBUG, DESCRIPTION, configure
from barnabas.cli.parser import CommandParser

BROKER_GROUP = "broker"  # the options of a connection, which many commands have
HEAD = """\
.\\" python -m barnabas.cli.man_page > etc/barnabas.1 writes this file.
.TH BARNABAS 1 "" barnabas "User Commands"
.SH NAME
barnabas \\- a Kafka-compatible message broker in one process, and its commands
.SH SYNOPSIS
.B barnabas
.I COMMAND
.RI [ ACTION ]
.RI [ ARGUMENTS ]
"""
TAIL = f"""\
.SH EXIT STATUS
.TP
0
The command has done what it should.
.TP
1
It has not; one line on standard error says why, and what to do.
.TP
2
The arguments are wrong.
.TP
130
Ctrl\\-C ended it.
.SH ENVIRONMENT
.TP
.BR KAFKA_ NAME ", " BARNABAS_ NAME
a setting of the broker: KAFKA_LOG_DIRS is log.dirs
.TP
.B {DEBUG}
prints the traceback of an unexpected error
.SH SEE ALSO
docs/README.md lists the pages of the documentation; docs/settings.md every setting.
"""


def page() -> str:
    """Returns the page in the macros of man(7)."""
    parsers = parsers_of_commands()
    lines = [".SH DESCRIPTION", *_verbatim(DESCRIPTION), ".SH COMMANDS"]
    for parser in parsers.values():
        lines += _command(parser)
    lines += [".SH OPTIONS OF COMMANDS THAT CONNECT TO A BROKER"]
    for action in connection_options(parsers["status"]):
        lines += _option(action)
    return HEAD + "\n".join(lines) + "\n" + TAIL


def parsers_of_commands() -> dict[str, CommandParser]:
    """Returns the parser of each command by its name; docs/commands.md is made from them too."""
    parsers = {}
    for name, summary in COMMANDS.items():
        parsers[name] = CommandParser(prog=f"barnabas {name}", description=summary)
        configure(name, parsers[name])
    return parsers


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yields the lines of a command: its actions, their options, the examples."""
    yield f".SS {_text(parser.prog)}"
    if parser.description:
        yield from _paragraph(parser.description)
    for one in leaves(parser):
        yield ".PP"
        yield f"\\fB{_text(one.prog)}\\fR{arguments_of(one, _italic)}"
        if one is not parser and one.description:
            yield ".br"
            yield from _paragraph(one.description)
        for action in one._actions:
            if action not in connection_options(one) and not is_help(action):
                yield from _option(action)
    if parser.epilog:
        yield ".PP"
        yield from _verbatim(parser.epilog)


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yields the parsers of all actions, or the command's own when it has none."""
    below = [row for row in parser._actions if isinstance(row, argparse._SubParsersAction)]
    if not below:
        yield parser
    for row in below:
        for sub in dict.fromkeys(row.choices.values()):
            yield from leaves(sub)


def arguments_of(parser: argparse.ArgumentParser, form: Callable[[str], str]) -> str:
    """Returns the part of the synopsis behind the name. `form`: how an argument is set."""
    words = []
    if any(row.option_strings and not is_help(row) for row in parser._actions):
        words.append("[options]")
    for row in parser._actions:
        if not row.option_strings:
            name = form(value_of(row))
            forms = {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ..."}
            words.append(forms.get(str(row.nargs), name))
    return "".join(f" {word}" for word in words)


def _italic(name: str) -> str:
    return f"\\fI{_text(name)}\\fR"


def _option(action: argparse.Action) -> Iterator[str]:
    """Yields the lines of an option or argument."""
    yield ".TP"
    value = "" if action.nargs == 0 else f" \\fI{_text(value_of(action))}\\fR"
    names = ", ".join(f"\\fB{_text(name)}\\fR" for name in action.option_strings)
    yield f"{names}{value}" if names else value.lstrip()
    if action.help and action.help != argparse.SUPPRESS:
        yield from _paragraph(action.help % vars(action))
    else:
        yield "\\&"


def value_of(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is None and action.choices is not None:
        return "|".join(map(str, action.choices))
    return action.metavar or action.dest.upper()


def connection_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    groups = [row for row in parser._action_groups if row.title == BROKER_GROUP]
    return [action for row in groups for action in row._group_actions]


def is_help(action: argparse.Action) -> bool:
    return isinstance(action, argparse._HelpAction)


def _paragraph(text: str) -> Iterator[str]:
    yield _text(" ".join(text.split()))


def _verbatim(text: str) -> Iterator[str]:
    yield ".nf"
    yield from (_text(line) for line in text.rstrip("\n").split("\n"))
    yield ".fi"


def _text(text: str) -> str:
    """Returns text in which nothing is a request or an escape."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    escaped = escaped.replace("'", "\\(aq").replace("~", "\\(ti").replace("^", "\\(ha")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


if __name__ == "__main__":
    print(page(), end="")
