"""The schema text, read lazily: an index of all messages, and the fields of those that are used.

The head of schemas/messages.txt describes the grammar. The index reads only the first line of each
message (well below a millisecond for all files together); the fields of a message are parsed on
first use. Next: messages.py.
"""

import re
from functools import cache
from os.path import dirname, join
from typing import Any, NamedTuple

SCHEMAS = join(dirname(__file__), "schemas")
FILES = (
    "messages.txt",
    "messages-data.txt",
    "messages-internal-topics.txt",
    "messages-metadata.txt",
)
HEAD_LINE = re.compile(r"^[a-z].*", re.MULTILINE)
OPEN_END = 32767  # "3+": as far as an int16 version goes

Span = tuple[int, int]


def spans(text: str) -> tuple[Span, ...]:
    """Parses version spans, "3+", "2-5", "4", or several of these with commas, into (first, last)
    pairs; "3+" ends at OPEN_END. Raises ValueError."""
    found = []
    for part in text.split(","):
        if part.endswith("+"):
            found.append((int(part[:-1]), OPEN_END))
        else:
            low, _, high = part.partition("-")
            found.append((int(low), int(high or low)))
    return tuple(found)


def within(versions: tuple[Span, ...], version: int) -> bool:
    """Returns whether one of the version spans includes the version."""
    return any(low <= version <= high for low, high in versions)


class Field:
    """One field of one struct, in all versions."""

    __slots__ = (
        "name",
        "base",
        "array",
        "versions",
        "fields",
        "nullable",
        "tag",
        "tagged",
        "default_text",
        "compact",
        "ignorable",
    )

    def __init__(self, name: str, kind: str, versions: tuple[Span, ...]) -> None:
        self.name = name
        self.array = kind.startswith("[]")
        self.base = kind.removeprefix("[]")  # the type of one element
        self.versions = versions
        self.fields: list[Field] = []
        self.nullable: tuple[Span, ...] = ()
        self.tag = -1
        self.tagged: tuple[Span, ...] = ()
        self.default_text: str | None = None
        self.compact = True  # in flexible versions
        self.ignorable = False

    @property
    def default(self) -> Any:
        """Returns the default of the field; None for a struct, whose class only messages.py
        knows."""
        text = self.default_text
        if self.array:
            return None if text == "null" else []
        if text == "null" or self.base == "{}":
            return None
        if self.base == "bool":
            return text == "true"
        if self.base == "string":
            return text or ""
        if self.base in ("bytes", "records"):
            return b""
        if self.base == "uuid":
            return bytes(16)
        if self.base == "float64":
            return float(text or 0)
        return int(text or "0", 0)


class Schema(NamedTuple):
    """One message, in all versions."""

    kind: str
    name: str
    key: int | None
    versions: Span
    flexible_from: int  # OPEN_END: no version is flexible
    fields: list[Field]


class Place(NamedTuple):
    """The place of a message's text, before it is parsed."""

    file: str
    start: int
    end: int


@cache
def text_of(file: str) -> str:
    """Returns the text of a file of SCHEMAS; a process reads each file once."""
    with open(join(SCHEMAS, file), encoding="utf-8") as text:
        return text.read()


@cache
def places() -> dict[str, Place]:
    """Returns the places of all messages, by name. Raises ValueError when two have the same
    name."""
    found: dict[str, Place] = {}
    for file in FILES:
        text = text_of(file)
        starts = [match.start() for match in HEAD_LINE.finditer(text)]
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
            name = text[start : start + 120].split(None, 2)[1]
            if name in found:
                raise ValueError(f"{file} defines {name} more than once")
            found[name] = Place(file, start, end)
    return found


def schema_of(name: str) -> Schema:
    """Returns the schema of one message, parsed at each call. Raises KeyError when no message has
    that name."""
    place = places()[name]
    head, *lines = text_of(place.file)[place.start : place.end].splitlines()
    kind, _, *words = head.split()
    options = dict(word.split("=", 1) for word in words)
    flexible = options["flexible"]
    return Schema(
        kind=kind,
        name=name,
        key=int(options["key"]) if "key" in options else None,
        versions=spans(options["versions"])[0],
        flexible_from=OPEN_END if flexible == "none" else spans(flexible)[0][0],
        fields=fields_of(lines),
    )


def fields_of(lines: list[str]) -> list[Field]:
    """Returns the fields of a message that these lines define; the lines of a nested struct have
    two more spaces. Raises ValueError."""
    open_structs: list[list[Field]] = [[]]
    for line in lines:
        if not line or line.startswith("#"):
            continue
        depth = (len(line) - len(line.lstrip(" "))) // 2
        field = field_of(line.split())
        del open_structs[depth:]
        open_structs[-1].append(field)
        open_structs.append(field.fields)
    return open_structs[0]


def field_of(words: list[str]) -> Field:
    """Returns the field that the words of a line define: name, type, versions and options. Raises
    ValueError."""
    name, kind, versions, *options = words
    field = Field(name, kind, spans(versions))
    for option in options:
        key, _, value = option.partition("=")
        if key == "null":
            field.nullable = spans(value)
        elif key == "tag":
            tag, _, tagged = value.partition("@")
            field.tag, field.tagged = int(tag), spans(tagged)
        elif key == "default":
            field.default_text = value
        elif option == "flexible=none":
            field.compact = False
        elif option == "ignorable":
            field.ignorable = True
        else:
            raise ValueError(f"{name}: option {option} is not in the grammar")
    return field
