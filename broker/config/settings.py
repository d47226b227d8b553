"""All settings: the rows of settings.tsv as `Setting` objects.

settings.tsv is the table; this file only reads it. To add a setting, add a line there (sorted by
scope and name) and run `python -m barnabas.config.reference > docs/settings.md`. Its columns:

  scope       broker, topic or group
  name, type  Kafka's name and type; names that Kafka does not have are ours
  default     `null` means no value, `""` an empty one
  importance  HIGH, MEDIUM, LOW
  tier        A: behaves as in Kafka (once effective.txt names it); B: accepted and reported;
              blank: accepted, has no effect
  unit        unit of a number
  valid       alternatives between `|`: `>=n`, `n..m`, or a word; `~` first: upper or lower case
  mode        read-only, per-broker or cluster-wide for broker settings
  synonyms    names that give the value when this one is not set, highest priority first;
              `name*1000` converts the unit, `@name` is a name of the same resource instead of the
              broker's
  meaning     one line for users

The next file to read is values.py.
"""

from __future__ import annotations

import os
from functools import cache

from barnabas.config.data_directory import default_data_directory
from barnabas.config.memory import BUDGETS, budget, memory_limit

READ_ONLY = "read-only"
PER_BROKER = "per-broker"
CLUSTER_WIDE = "cluster-wide"

_FOLDER = os.path.dirname(os.path.abspath(__file__))
TABLE_PATH = os.path.join(_FOLDER, "settings.tsv")
REASONS_PATH = os.path.join(_FOLDER, "without_effect.txt")
EFFECTIVE_PATH = os.path.join(_FOLDER, "effective.txt")
UNLISTED_PATH = os.path.join(_FOLDER, "unlisted.txt")
TITLE = "scope name type default importance tier unit valid mode synonyms meaning".split()


class ConfigError(ValueError):
    """The errors of a configuration, one line for each: setting, value, reason and remedy."""

    def __init__(self, problems: str | list[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class UnknownSetting(ConfigError):
    """A name on the command line that is not a setting: a usage error of the command."""


class Synonym:
    """Another name that may give a value, and the factor that converts its unit."""

    __slots__ = ("name", "multiplier", "same_resource")

    def __init__(self, text: str) -> None:
        name, _, multiplier = text.partition("*")
        self.same_resource = name.startswith("@")
        self.name = name.removeprefix("@")
        self.multiplier = int(multiplier or 1)


class Setting:
    """One line of the table."""

    __slots__ = (*TITLE[:9], "_synonyms", "meaning")
    scope: str
    name: str
    type: str
    default: str | None
    importance: str
    tier: str
    unit: str
    valid: str
    mode: str
    meaning: str

    def __init__(self, fields: list[str]) -> None:
        self.scope, self.name, self.type, default = fields[:4]
        self.importance, self.tier, self.unit, self.valid, self.mode = fields[4:9]
        self.default = None if default == "null" else "" if default == '""' else default
        self._synonyms, self.meaning = fields[9:]

    @property
    def synonyms(self) -> list[Synonym]:
        return [Synonym(text) for text in self._synonyms.split(",") if text]

    @property
    def is_sensitive(self) -> bool:
        return self.type == "PASSWORD"

    @property
    def is_read_only(self) -> bool:
        return self.mode == READ_ONLY

    @property
    def is_effective(self) -> bool:
        """Returns whether the setting has its effect in this build: effective.txt names it."""
        return (self.scope, self.name) in EFFECTIVE

    @property
    def is_unlisted(self) -> bool:
        """Returns whether DescribeConfigs shows the setting only when it has a value or the request
        names it."""
        return (self.scope, self.name) in UNLISTED

    @property
    def why_without_effect(self) -> str:
        """Returns the reason why it has no effect in this build, without a full stop; "" when it
        has an effect."""
        if self.is_effective:
            return ""
        fitting = [row for row in read_reasons() if fits(self.name, row[0])]
        return max(fitting, key=lambda row: len(row[0]))[1] if fitting else ""

    def __repr__(self) -> str:
        return f"<Setting {self.scope} {self.name}>"


def read_table(path: str = TABLE_PATH) -> dict[str, dict[str, Setting]]:
    """Returns the settings by scope and name, in the order of the file. Raises ValueError for a
    malformed table."""
    found: dict[str, dict[str, Setting]] = {"broker": {}, "topic": {}, "group": {}}
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    if lines[0].split("\t") != TITLE:
        raise ValueError(f"{path}: the first line is not the title this build knows")
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")
        if len(fields) != len(TITLE) or fields[1] in found[fields[0]]:
            raise ValueError(f"{path} line {number}: wrong number of columns, or a duplicate name")
        setting = Setting(fields)
        found[setting.scope][setting.name] = setting
    return found


def read_effective(path: str = EFFECTIVE_PATH) -> dict[tuple[str, str], str]:
    """Returns by (scope, name) the test that shows the setting's effect, as path::function."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                scope, name, test = line.split()
                found[scope, name] = test
    return found


def read_unlisted(path: str = UNLISTED_PATH) -> frozenset[tuple[str, str]]:
    """Returns (scope, name) of the settings that Kafka 4.3 does not list."""
    with open(path, encoding="utf-8") as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    return frozenset((scope, name) for scope, name in rows)


def fits(name: str, pattern: str) -> bool:
    """Returns whether a name matches `pattern`: a name, or a prefix and an asterisk."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


@cache
def read_reasons(path: str = REASONS_PATH) -> list[tuple[str, str]]:
    """Returns (pattern of names, reason why these settings have no effect), as in the file."""
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file if not line.startswith("#")]
    rows = [line.partition("\t") for line in lines]
    return [(pattern, why) for pattern, _, why in rows]


def lower_budgets(settings: dict[str, Setting], limit_bytes: int | None) -> tuple[str, ...]:
    """Lowers the defaults of the budgets to an eighth of the limit; returns the names of those that
    were larger."""
    lowered = []
    for name in BUDGETS:
        default = int(settings[name].default or 0)
        if (share := budget(default, limit_bytes)) < default:
            settings[name].default = str(share)
            lowered.append(name)
    return tuple(lowered)


_TABLE = read_table()
BROKER_SETTINGS = _TABLE["broker"]
BROKER_SETTINGS["log.dir"].default = default_data_directory(os.environ, os.geteuid())
MEMORY_LIMIT_BYTES = memory_limit()
LOWERED = lower_budgets(BROKER_SETTINGS, MEMORY_LIMIT_BYTES)
TOPIC_SETTINGS = _TABLE["topic"]
GROUP_SETTINGS = _TABLE["group"]
EFFECTIVE = read_effective()
UNLISTED = read_unlisted()


def settings_of(scope: str) -> dict[str, Setting]:
    return _TABLE[scope]


def unsupported() -> list[Setting]:
    """Returns the settings that this build accepts and that have no effect."""
    return [s for scope in _TABLE.values() for s in scope.values() if not s.is_effective]
