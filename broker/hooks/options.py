"""Options of a plugin: `plugin.NAME.key=value`, checked against the plugin's OPTIONS.

    class Redact:
        OPTIONS = {
            "fields": Option("list", "names of JSON fields to mask"),
            "with": Option("text", "what stands in their place", default="***"),
        }

        def __init__(self, options):
            self.fields = options["fields"]

An option without a default must be set. A plugin without OPTIONS is made without arguments and has
no options of its own. Every plugin has the options of COMMON, which the broker defines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

PREFIX = "plugin."
KINDS = ("text", "integer", "number", "boolean", "list")
REQUIRED = object()

Options = Mapping[str, Any]  # the argument of a plugin with OPTIONS

OPEN = "open"  # a plugin that fails counts as accepting
CLOSED = "closed"  # a plugin that fails counts as refusing


class Option(NamedTuple):
    """One option: `kind` is one of KINDS, `meaning` is one line of documentation."""

    kind: str
    meaning: str
    default: Any = REQUIRED
    least: float | None = None  # limit of a number
    most: float | None = None
    choices: tuple[str, ...] = ()  # allowed values of a text


COMMON: dict[str, Option] = {
    "use": Option("text", "the plugin to run under this name, so that a plugin may run twice", ""),
    "isolation": Option(
        "text", "thread: inside the broker; process: in its own child process", "thread",
        choices=("thread", "process"),
    ),
    "on.failure": Option(
        "text", "when the plugin fails; closed: refuse, open: accept", CLOSED,
        choices=(OPEN, CLOSED),
    ),
    "budget.ms": Option(
        "integer", "time limit of a call in ms; 0: the budget of each hook", 0, least=0
    ),
    "failures.max": Option(
        "integer", "failures in a row that switch the plugin off; 0: never", 100, least=0
    ),
    "abandoned.max": Option(
        "integer", "abandoned threads (calls over budget) that switch the plugin off", 4, least=1
    ),
    "memory.max.bytes": Option(
        "integer", "limit of the address space of its process; 0: no limit", 0, least=0
    ),
    "environment": Option(
        "list", "variables that its process gets besides PATH, HOME and the like", ()
    ),
    "trace": Option("boolean", "print each call with its time", False),
}  # fmt: skip


class BadOptions(ValueError):
    """The options of a plugin are wrong; one line for each problem."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(" ".join(problems))


def options_of(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of one plugin as texts, by key: `plugin.NAME.key` of `settings` without
    the prefix."""
    prefix = f"{PREFIX}{name}."
    return {key[len(prefix) :]: text for key, text in settings.items() if key.startswith(prefix)}


def split(texts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Splits texts by key into (options of COMMON, which every plugin has; options of the plugin
    itself)."""
    common = {key: text for key, text in texts.items() if key in COMMON}
    return common, {key: text for key, text in texts.items() if key not in COMMON}


def parse(name: str, schema: Mapping[str, Option], texts: Mapping[str, str]) -> dict[str, Any]:
    """Returns the typed values of all options of a schema, with defaults. Raises BadOptions with
    one line for each unknown key, missing option and wrong value."""
    problems = [
        f"{PREFIX}{name}.{key}: the plugin {name} has no such option."
        f" Its options are {', '.join(sorted([*schema, *COMMON]))}."
        for key in texts
        if key not in schema
    ]
    found: dict[str, Any] = {}
    for key, option in schema.items():
        try:
            if key in texts:
                found[key] = _value(option, texts[key].strip())
            elif option.default is REQUIRED:
                raise ValueError(f"must be set: {option.meaning}")
            else:
                found[key] = option.default
        except ValueError as error:
            problems.append(f"{PREFIX}{name}.{key}: {error}.")
    if problems:
        raise BadOptions(problems)
    return found


def schema_of(made_by: object) -> Mapping[str, Option]:
    """Returns the OPTIONS of a plugin's class: name -> Option; an empty mapping without them.
    Raises BadOptions for an invalid declaration, also for a name of COMMON."""
    schema = getattr(made_by, "OPTIONS", {})
    right = isinstance(schema, Mapping) and all(
        isinstance(key, str) and isinstance(row, Option) and row.kind in KINDS
        for key, row in schema.items()
    )
    if not right:
        raise BadOptions(["OPTIONS must be a dictionary from names to barnabas.hooks.Option."])
    taken = sorted(schema.keys() & COMMON.keys())
    if taken:
        raise BadOptions([f"OPTIONS: the broker reserves the names {', '.join(taken)}."])
    return schema


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _number(text: str, of: Callable[[str], float], word: str) -> float:
    try:
        return of(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a {word}") from None


def _value(option: Option, text: str) -> Any:
    if option.kind == "boolean":
        return _boolean(text)
    if option.kind == "list":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if option.kind == "text":
        if option.choices and text not in option.choices:
            raise ValueError(f"{text!r} is not one of {', '.join(option.choices)}")
        return text
    whole = option.kind == "integer"
    value = _number(text, int if whole else float, "whole number" if whole else "number")
    if option.least is not None and value < option.least:
        raise ValueError(f"{text} must be {option.least:g} or greater")
    if option.most is not None and value > option.most:
        raise ValueError(f"{text} must be {option.most:g} or less")
    return value
