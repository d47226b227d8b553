"""Options of a plugin: `plugin.NAME.key=value`, checked by what the plugin declares.

    class Redact:
        OPTIONS = {
            "fields": Option("list", "names of JSON fields to mask"),
            "with": Option("text", "what stands in their place", default="***"),
        }

        def __init__(self, options):
            self.fields = options["fields"]

An option without a default must be given. A plugin without OPTIONS is made without arguments and
takes none. The options of COMMON are the broker's own and every plugin has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

PREFIX = "plugin."
KINDS = ("text", "integer", "number", "boolean", "list")
REQUIRED = object()

Options = Mapping[str, Any]  # what a plugin with OPTIONS is made with

OPEN = "open"  # what a plugin should have looked at passes when the plugin fails
CLOSED = "closed"  # it does not


class Option(NamedTuple):
    """One option: its kind is one of KINDS, its meaning one line for people."""

    kind: str
    meaning: str
    default: Any = REQUIRED
    least: float | None = None  # of a number
    most: float | None = None
    choices: tuple[str, ...] = ()  # of a text


COMMON: dict[str, Option] = {
    "use": Option("text", "the plugin to run under this name, so that one may run twice", ""),
    "isolation": Option(
        "text", "thread: inside the broker; process: in a child of its own", "thread",
        choices=("thread", "process"),
    ),
    "on.failure": Option(
        "text", "closed: what it cannot judge is refused; open: it passes", CLOSED,
        choices=(OPEN, CLOSED),
    ),
    "budget.ms": Option("integer", "how long a call may take; 0: as each hook says", 0, least=0),
    "failures.max": Option("integer", "failures in a row that end its use; 0: never", 100, least=0),
    "abandoned.max": Option(
        "integer", "threads left behind by calls beyond their budget that end its use", 4, least=1
    ),
    "memory.max.bytes": Option(
        "integer", "address space of its process; 0: no limit", 0, least=0
    ),
    "trace": Option("boolean", "print each call with its time", False),
}  # fmt: skip


class BadOptions(ValueError):
    """What is wrong with the options of a plugin, one plain line a problem."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(" ".join(problems))


def options_of(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The texts of one plugin, by key, out of all settings `plugin.*`."""
    prefix = f"{PREFIX}{name}."
    return {key[len(prefix) :]: text for key, text in settings.items() if key.startswith(prefix)}


def split(texts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(the broker's common options, the plugin's own)."""
    common = {key: text for key, text in texts.items() if key in COMMON}
    return common, {key: text for key, text in texts.items() if key not in COMMON}


def parse(name: str, schema: Mapping[str, Option], texts: Mapping[str, str]) -> dict[str, Any]:
    """Typed values of all options of a schema. Raises BadOptions."""
    problems = [
        f"{PREFIX}{name}.{key}: the plugin {name} has no such option."
        f" It has {', '.join(sorted([*schema, *COMMON]))}."
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
    """What a plugin's class declares. Raises BadOptions when that is no schema."""
    schema = getattr(made_by, "OPTIONS", {})
    right = isinstance(schema, Mapping) and all(
        isinstance(key, str) and isinstance(row, Option) and row.kind in KINDS
        for key, row in schema.items()
    )
    if not right:
        raise BadOptions(["OPTIONS is not a dictionary of names and barnabas.hooks.Option."])
    taken = sorted(schema.keys() & COMMON.keys())
    if taken:
        raise BadOptions([f"OPTIONS: {', '.join(taken)} are the broker's own names."])
    return schema


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("is true or false")
    return text.lower() == "true"


def _number(text: str, of: Callable[[str], float], word: str) -> float:
    try:
        return of(text)
    except ValueError:
        raise ValueError(f"{text!r} is no {word}") from None


def _value(option: Option, text: str) -> Any:
    if option.kind == "boolean":
        return _boolean(text)
    if option.kind == "list":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if option.kind == "text":
        if option.choices and text not in option.choices:
            raise ValueError(f"{text!r} is none of {', '.join(option.choices)}")
        return text
    whole = option.kind == "integer"
    value = _number(text, int if whole else float, "whole number" if whole else "number")
    if option.least is not None and value < option.least:
        raise ValueError(f"{text} is less than {option.least:g}")
    if option.most is not None and value > option.most:
        raise ValueError(f"{text} is more than {option.most:g}")
    return value
