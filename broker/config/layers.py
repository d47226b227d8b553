"""The value in force of a setting: topic > this broker > every broker > file > default.

`candidates` lists all values of a setting, the one with the highest priority first: DescribeConfigs
calls this list synonyms, and its first entry is the value in force. A value that was set, under any
synonym, has priority over all defaults. The sources are the numbers of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.config.settings import BROKER_SETTINGS, Setting, settings_of
from barnabas.config.values import Value, parse_value

UNKNOWN_SOURCE = 0
TOPIC = 1
DYNAMIC_BROKER = 2
DYNAMIC_DEFAULT_BROKER = 3
STATIC_BROKER = 4
DEFAULT = 5
BROKER_LOGGER = 6
CLIENT_METRICS = 7
GROUP = 8
OWN_SOURCE = {"topic": TOPIC, "group": GROUP}

TYPE_CODES = {
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}


class Candidate:
    """A text of a value, its source, and the factor that converts it to the requested unit."""

    __slots__ = ("setting", "text", "source", "multiplier")

    def __init__(self, setting: Setting, text: str, source: int, multiplier: int = 1) -> None:
        self.setting, self.text, self.source = setting, text, source
        self.multiplier = multiplier

    def value(self) -> Value:
        """Returns the typed value, converted to the requested unit. Raises ConfigError."""
        value = parse_value(self.setting, self.text)
        if self.multiplier != 1 and isinstance(value, int):
            return value * self.multiplier if value >= 0 else -1  # -1 is "no limit" in any unit
        return value


class TypedAccess:
    """Methods that return `config[name]` with the type that the caller needs; another type in the
    table is a bug of the caller."""

    def __getitem__(self, name: str) -> Value:
        raise NotImplementedError

    def get(self, name: str) -> Value:
        return self[name]

    def integer(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int) and not isinstance(value, bool), name
        return value

    def number(self, name: str) -> float:
        value = self[name]
        assert isinstance(value, int | float) and not isinstance(value, bool), name
        return value

    def boolean(self, name: str) -> bool:
        value = self[name]
        assert isinstance(value, bool), name
        return value

    def text(self, name: str) -> str:
        value = self[name]
        assert isinstance(value, str), name
        return value

    def names(self, name: str) -> tuple[str, ...]:
        value = self[name]
        assert isinstance(value, tuple), name
        return value


class ConfigEntry:
    """One row of a DescribeConfigs answer. `synonyms`: (name, value, source)."""

    __slots__ = (
        "name",
        "value",
        "read_only",
        "is_default",
        "source",
        "is_sensitive",
        "synonyms",
        "type",
        "documentation",
    )

    def __init__(
        self,
        *,
        name: str,
        value: str | None,
        read_only: bool,
        source: int,
        is_sensitive: bool,
        synonyms: list[tuple[str, str | None, int]],
        type: int,
        documentation: str,
    ) -> None:
        self.name, self.value, self.read_only, self.source = name, value, read_only, source
        self.is_default = source == DEFAULT
        self.is_sensitive, self.synonyms = is_sensitive, synonyms
        self.type, self.documentation = type, documentation


class Layers:
    """The values of one broker by source. Each mapping has texts by name.

    `typed` caches the values of exactly these layers: a thread that reads while another one changes
    a setting cannot put an old value into the cache of the new layers.
    """

    __slots__ = ("broker", "cluster", "static", "typed")

    def __init__(
        self,
        static: Mapping[str, str],
        cluster: Mapping[str, str] | None = None,
        broker: Mapping[str, str] | None = None,
    ) -> None:
        self.static, self.cluster, self.broker = static, cluster or {}, broker or {}
        self.typed: dict[str, Value] = {}

    def texts(self) -> dict[str, str]:
        """Returns the text in force of each name that was set."""
        return {**self.static, **self.cluster, **self.broker}

    def given(self, setting: Setting, multiplier: int = 1) -> list[Candidate]:
        """Returns the values that were set under this name, highest priority first."""
        found = []
        for source, layer in (
            (DYNAMIC_BROKER, self.broker),
            (DYNAMIC_DEFAULT_BROKER, self.cluster),
            (STATIC_BROKER, self.static),
        ):
            if setting.name in layer:
                found.append(Candidate(setting, layer[setting.name], source, multiplier))
        return found


def candidates(
    setting: Setting, layers: Layers, own: Mapping[str, str] | None = None
) -> list[Candidate]:
    """Returns all values of a setting, highest priority first. `own`: the overrides of a topic or
    group."""
    given: list[Candidate] = []
    defaults: list[Candidate] = []
    own_source = OWN_SOURCE.get(setting.scope, UNKNOWN_SOURCE)
    if setting.scope == "broker":
        given += layers.given(setting)
    elif own and setting.name in own:
        given.append(Candidate(setting, own[setting.name], own_source))
    if setting.scope == "broker" or not setting.synonyms:
        if setting.default is not None:
            defaults.append(Candidate(setting, setting.default, DEFAULT))
    for synonym in setting.synonyms:
        if synonym.same_resource:
            if own and synonym.name in own:
                other = settings_of(setting.scope)[synonym.name]
                given.append(Candidate(other, own[synonym.name], own_source, synonym.multiplier))
            continue
        other = BROKER_SETTINGS[synonym.name]
        given += layers.given(other, synonym.multiplier)
        if other.default is not None:
            defaults.append(Candidate(other, other.default, DEFAULT, synonym.multiplier))
    return given + defaults


def value_in_force(setting: Setting, layers: Layers, own: Mapping[str, str] | None = None) -> Value:
    """Returns the typed value in force; None if it has no value. `own`: the overrides of a topic or
    group."""
    found = candidates(setting, layers, own)
    return found[0].value() if found else None


def describe_setting(
    setting: Setting, layers: Layers, own: Mapping[str, str] | None = None
) -> ConfigEntry:
    """Returns the row of DescribeConfigs: for a broker setting the value under its own name, for a
    topic or group the value in force."""
    found = candidates(setting, layers, own)
    shown = [c for c in found if setting.scope != "broker" or c.setting is setting]
    best = shown[0] if shown else None
    hidden = setting.is_sensitive
    text = best.text.strip() if best else None
    if best and best.multiplier != 1:
        text = str(best.value())
    return ConfigEntry(
        name=setting.name,
        value=None if hidden else text,
        read_only=setting.scope == "broker" and setting.is_read_only,
        source=best.source if best else DEFAULT,
        is_sensitive=hidden,
        synonyms=[
            (c.setting.name, None if hidden else c.text.strip(), c.source)
            for c in _synonyms_shown(setting, found)
        ],
        type=TYPE_CODES[setting.type],
        documentation=setting.meaning,
    )


def _synonyms_shown(setting: Setting, found: list[Candidate]) -> list[Candidate]:
    """Returns the synonyms that Kafka shows: the values that were set, then one default. If nothing
    was set for the broker, the default is shown only when it belongs to the first name."""
    given = [c for c in found if c.source != DEFAULT]
    default = next((c for c in found if c.source == DEFAULT), None)
    if default is None or setting.scope == "group":
        return given if default is None else [*given, default]
    first = setting.name
    if setting.scope == "topic":
        first = next((s.name for s in setting.synonyms if not s.same_resource), "")
    by_broker = any(c.setting.scope == "broker" for c in given)
    return [*given, default] if by_broker or default.setting.name == first else given


def is_listed(setting: Setting, entry: ConfigEntry) -> bool:
    """Returns whether DescribeConfigs without names lists this setting."""
    return entry.source != DEFAULT or not setting.is_unlisted


def describe_unknown(name: str, source: int) -> ConfigEntry:
    """Returns the row of a setting that is not in the table. It has no value, because it may be the
    secret of a plugin."""
    return ConfigEntry(
        name=name,
        value=None,
        read_only=False,
        source=source,
        is_sensitive=True,
        synonyms=[(name, None, source)],
        type=0,
        documentation="",
    )
