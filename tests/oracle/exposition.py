"""A strict reader of Prometheus' text format 0.0.4, for tests. Raises ValueError."""

import re
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"')
SAMPLE = re.compile(rf"({NAME})(\{{[^\n]*\}})? (\S+)")
KINDS = ("counter", "gauge", "summary")
SUFFIXES = {"summary": ("", "_sum", "_count")}


@dataclass
class Family:
    name: str
    kind: str
    help: str
    samples: dict[tuple[str, frozenset], float] = field(default_factory=dict)


def read_page(text: str) -> dict[str, Family]:
    """Families by name. Refuses what Prometheus would refuse or confuse."""
    families: dict[str, Family] = {}
    family = None
    helped = None
    if not text.endswith("\n"):
        raise ValueError("the page does not end with a line end")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, name, meaning = line.split(" ", 3)
            helped = (name, meaning)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if helped is None or helped[0] != name or kind not in KINDS:
                raise ValueError(f"{line}: its help is not before it, or no kind")
            if name in families:
                raise ValueError(f"{name} comes twice")
            family = families[name] = Family(name, kind, helped[1])
        elif family is None:
            raise ValueError(f"{line}: a sample without a family")
        else:
            _sample(line, family)
    return families


def _sample(line: str, family: Family) -> None:
    match = SAMPLE.fullmatch(line)
    if match is None:
        raise ValueError(f"no sample: {line!r}")
    name, labels, value = match[1], match[2] or "", match[3]
    if name not in [family.name + end for end in SUFFIXES.get(family.kind, ("",))]:
        raise ValueError(f"{line}: not of the family {family.name}")
    key = name, frozenset(_labels(labels[1:-1]).items())
    if key in family.samples:
        raise ValueError(f"{line}: comes twice")
    number = float(value)
    if family.kind == "counter" and not number >= 0:
        raise ValueError(f"{line}: a counter is not below nothing")
    family.samples[key] = number


def _labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = LABEL.match(text, at)
        if match is None or match[1] in found:
            raise ValueError(f"labels {text!r}")
        found[match[1]] = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), match[2])
        at = match.end()
        if at < len(text):
            if text[at] != ",":
                raise ValueError(f"labels {text!r}")
            at += 1
    return found


def value_of(families: dict[str, Family], name: str, /, **labels: str) -> float:
    """The one sample of a name that has exactly these labels."""
    for family in families.values():
        found = family.samples.get((name, frozenset(labels.items())))
        if found is not None:
            return found
    raise KeyError(f"{name}{labels}")


def rows_of(families: dict[str, Family], name: str) -> list[tuple[dict[str, str], float]]:
    """(labels, value) of every sample of a name."""
    return [
        (dict(labels), value)
        for family in families.values()
        for (sample, labels), value in family.samples.items()
        if sample == name
    ]
