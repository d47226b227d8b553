"""`barnabas config check FILE`: what a start with a settings file makes of each of its lines.

It reads the file, the environment and --set as the start does, with the same tables, and opens
nothing. What only the start can see (a port in use, a directory, a plugin, a certificate) it does
not check.

| state | meaning |
|---|---|
| effective | the value is in force |
| without effect | the start accepts the line and does nothing with it, or something overrides it |
| refused | the broker does not start with this line |

A problem of the start belongs to the first line whose setting it names. The start checks what
settings say together only when each value is right; so does this command.
"""

import argparse
import re
from collections.abc import Iterator
from typing import Any

from barnabas.cli.connecting import json_option
from barnabas.cli.output import count_of, fail, json_document, say, table
from barnabas.cli.parser import settings_option
from barnabas.cli.stopped_broker import errors_of_one_line
from barnabas.config import BrokerConfig, ConfigError, DynamicConfig
from barnabas.config.broker_config import Given, ineffective, origin_of
from barnabas.config.layers import Layers, candidates
from barnabas.config.properties import Property
from barnabas.config.settings import BROKER_SETTINGS

EFFECTIVE, WITHOUT_EFFECT, REFUSED = "effective", "without effect", "refused"
NAME = re.compile(r"[A-Za-z0-9_.-]+")

EPILOG = """\
The environment (KAFKA_LISTENERS=...) and --set override the file, as at a start. The exit status is
1 when the broker would not start.

examples:
  barnabas config check server.properties
  barnabas config check /opt/kafka/config/server.properties --json
  barnabas config check server.properties --set metadata.store=zookeeper
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="show each line of a settings file: effective, without effect, or refused, and why",
        description="show each line of a settings file: effective, without effect, or refused",
        epilog=EPILOG,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    check.add_argument("file", metavar="FILE", help="a server.properties of barnabas or of Kafka")
    settings_option(check, "a setting; overrides that of the file")
    json_option(check)


@errors_of_one_line
def run(arguments: argparse.Namespace) -> int:
    given = Given(arguments.file, arguments.settings)
    config, problems = _checked(given)
    refused, others = _by_line(problems, given, arguments.file)
    idle = _ineffective(given, config)
    rows = []
    for entry in given.lines:
        why = _overridden(entry, given, arguments.file) or idle.get(entry.key, "")
        state = WITHOUT_EFFECT if why else EFFECTIVE
        if entry.line in refused:
            state, why = REFUSED, " ".join(refused[entry.line])
        rows.append({"line": entry.line, "setting": entry.key, "state": state, "why": why})
    warnings = [] if config is None else config.warnings
    if arguments.json:
        json_document({"lines": rows, "problems": others, "warnings": warnings})
    else:
        _print(arguments.file, rows, others, warnings)
    return 1 if problems else 0


def _print(file: str, rows: list[dict[str, Any]], others: list[str], warnings: list[str]) -> None:
    cells = [[row["line"], row["setting"], row["state"], row["why"] or None] for row in rows]
    table(("line", "setting", "state", "why"), cells, empty=f"{file} has no settings")
    for text in warnings:
        say(text)
    for text in others:
        fail(text)
    states = [row["state"] for row in rows]
    counts = [f"{states.count(state)} {state}" for state in (EFFECTIVE, WITHOUT_EFFECT, REFUSED)]
    say(f"{file}: {count_of(len(rows), 'setting')}: {', '.join(counts)}")


def _checked(given: Given) -> tuple[BrokerConfig | None, list[str]]:
    """Returns the configuration, None if the broker would not start, and the problems."""
    if given.problems:
        return None, given.problems
    try:
        return BrokerConfig(given.values, given.origins), []
    except ConfigError as error:
        return None, error.problems


def _by_line(
    problems: list[str], given: Given, file: str
) -> tuple[dict[int, list[str]], list[str]]:
    """Returns the problems by the number of their line, and those of no line of the file."""
    of_file = {entry.key: entry for entry in given.lines}  # the last of two equal keys
    found: dict[int, list[str]] = {}
    others = []
    for problem in problems:
        words = (word.strip(".") for word in NAME.findall(problem))
        entry = next((of_file[word] for word in words if word in of_file), None)
        if entry is None or _overridden(entry, given, file):
            others.append(problem)
        else:
            found.setdefault(entry.line, []).append(problem)
    return found, others


def _ineffective(given: Given, config: BrokerConfig | None) -> dict[str, str]:
    """Returns the settings without effect, each with the reason."""
    if config is None:
        is_embedded = given.values.get("metadata.store", "embedded").strip() != "zookeeper"
        return ineffective(given.values, is_embedded)
    if config.metadata_store != "embedded":
        return config.ineffective
    from barnabas.controller.ineffective_settings import NOT_APPLIED, names_not_applied

    alone = {name: NOT_APPLIED[name] for name in names_not_applied(DynamicConfig(config))}
    return config.ineffective | alone


def _overridden(entry: Property, given: Given, file: str) -> str:
    """Returns what overrides a line, "" if nothing does."""
    origin = given.origins[entry.key]
    if origin != origin_of(file, entry):
        return f"overridden by {origin}"
    stronger = list(dict.fromkeys(_stronger(entry.key, Layers(given.values))))
    return "" if entry.key in stronger or not stronger else f"overridden by {', '.join(stronger)}"


def _stronger(name: str, layers: Layers) -> Iterator[str]:
    """Yields the name that gives the value of each setting of which `name` is a synonym."""
    for setting in BROKER_SETTINGS.values():
        if any(synonym.name == name for synonym in setting.synonyms):
            yield candidates(setting, layers)[0].setting.name
