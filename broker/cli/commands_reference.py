"""Generates docs/commands.md: `python -m barnabas.cli.commands_reference > docs/commands.md`.

It has what `barnabas help COMMAND` says, from the same parsers as the manual page (man_page)."""

import argparse
from collections.abc import Iterator

from barnabas.cli.man_page import (
    arguments_of,
    connection_options,
    is_help,
    leaves,
    parsers_of_commands,
    value_of,
)

HEAD = """\
# Commands

`python -m barnabas.cli.commands_reference` generates this page from the parsers of the commands;
change those, not this page. `barnabas help COMMAND` and `man barnabas` say the same. The status
is 0 when a command has done what it should, 1 when it has not and one line says why, 2 for wrong
arguments, 130 after Ctrl-C.
"""
CONNECTION = "## Options of commands that connect to a broker"


def page() -> str:
    """Returns the page as Markdown."""
    parsers = parsers_of_commands()
    lines = [HEAD]
    for parser in parsers.values():
        lines += _command(parser)
    lines += [CONNECTION, "", *_table(connection_options(parsers["status"]))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yields the lines of a command: its actions, their options, the examples."""
    yield f"## {parser.prog}\n"
    if parser.description:
        yield f"{_text(parser.description)}\n"
    for one in leaves(parser):
        if one is not parser:
            yield f"### {one.prog}\n"
            if one.description:
                yield f"{_text(one.description)}\n"
        yield f"`{one.prog}{arguments_of(one, str)}`\n"
        shared = connection_options(one)
        own = [row for row in one._actions if row not in shared and not is_help(row)]
        if own:
            yield from _table(own)
    if parser.epilog:
        yield from (f"    {line}".rstrip() for line in parser.epilog.rstrip("\n").split("\n"))
        yield ""


def _table(actions: list[argparse.Action]) -> Iterator[str]:
    yield "| option or argument | |\n|---|---|"
    for action in actions:
        value = "" if action.nargs == 0 else f" {value_of(action)}"
        names = ", ".join(action.option_strings)
        told = "" if action.help in (None, argparse.SUPPRESS) else str(action.help) % vars(action)
        meaning = f" {_cell(_text(told))} " if told else " "
        yield f"| `{_cell((names + value).strip())}` |{meaning}|"
    yield ""


def _text(text: str) -> str:
    """Returns a paragraph in which nothing outside of backquotes is a tag or an emphasis."""
    parts = " ".join(text.split()).split("`")
    parts[::2] = [part.replace("<", "\\<").replace("*", "\\*") for part in parts[::2]]
    return "`".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
