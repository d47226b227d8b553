"""docs/commands.md is what the parsers say. test_help_examples.py runs its examples."""

import re
from pathlib import Path

from barnabas.cli.commands_reference import _text, page
from barnabas.cli.man_page import is_help, leaves, parsers_of_commands

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"


def test_the_page_is_what_the_parsers_say():
    assert PAGE.read_text() == page(), (
        "python -m barnabas.cli.commands_reference > docs/commands.md"
    )


def test_it_has_every_command_action_option_and_example():
    sections = dict(re.findall(r"^##+ (barnabas .*)\n((?:(?!##).*\n)*)", page(), re.M))
    shared = page().rpartition("\n## ")[2]
    missing = []
    for parser in parsers_of_commands().values():
        for one in leaves(parser):
            shown = sections[one.prog] + shared
            missing += [
                f"{one.prog} {name}"
                for row in one._actions
                if not is_help(row)
                for name in row.option_strings
                if not re.search(rf"(?<![\w-]){name}(?![\w-])", shown)
            ]
        for line in (parser.epilog or "").splitlines():
            missing += [line] if line.strip() and f"    {line.rstrip()}\n" not in page() else []
    assert missing == []


def test_help_texts_are_not_taken_for_markdown():
    assert _text("ssl.* and  <x> are `a*<b>`") == "ssl.\\* and \\<x> are `a*<b>`"
