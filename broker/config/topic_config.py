"""The settings of one topic: its overrides, otherwise the broker's values.

`TopicConfig` reads the broker's layers when a name is used first, and caches the typed value;
`refresh` clears the cache after a dynamic change of the broker's settings. segment.bytes may be as
small as 14 bytes, the size of an empty old record; Kafka 4.x requires 1 MiB, which is too large for
tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic_config import TEXT_BYTES_MAX, DynamicConfig
from barnabas.config.layers import (
    ConfigEntry,
    TypedAccess,
    describe_setting,
    is_listed,
    value_in_force,
)
from barnabas.config.providers import refers
from barnabas.config.settings import ConfigError, settings_of
from barnabas.config.values import Value, parse_value


class ResourceConfig(TypedAccess):
    """The overrides of one topic or group, and the values in force on this broker."""

    scope = ""

    def __init__(self, overrides: Mapping[str, str], broker: DynamicConfig | BrokerConfig) -> None:
        self.overrides = dict(overrides)
        self._broker = broker
        self._settings = settings_of(self.scope)
        self._typed: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        typed = self._typed  # read once: `refresh` on another thread replaces it
        if name not in typed:
            setting = self._settings[name]
            typed[name] = value_in_force(setting, self._broker.layers, self.overrides)
        return typed[name]

    def refresh(self) -> None:
        """Clears the cached values. Call this when the broker's values may have changed."""
        self._typed = {}

    def describe(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """Returns the rows of DescribeConfigs. `names` selects settings; None: those that a
        request without names lists."""
        wanted = None if names is None else set(names)
        found = []
        for name, setting in self._settings.items():
            if (wanted is None or name in wanted) and not name.startswith("internal."):
                entry = describe_setting(setting, self._broker.layers, self.overrides)
                if wanted is not None or is_listed(setting, entry):
                    found.append(entry)
        return found


class TopicConfig(ResourceConfig):
    scope = "topic"


def check_topic(overrides: Mapping[str, str], broker: DynamicConfig | BrokerConfig) -> TopicConfig:
    """Checks the overrides of a topic (CreateTopics, both kinds of AlterConfigs), and returns its
    settings. Raises ConfigError."""
    check_values("topic", overrides)
    config = TopicConfig(overrides, broker)
    least = config.integer("min.compaction.lag.ms")
    most = config.integer("max.compaction.lag.ms")
    touched = {"min.compaction.lag.ms", "max.compaction.lag.ms"} & set(overrides)
    if touched and least > most:
        raise ConfigError(
            f"min.compaction.lag.ms={least} is more than max.compaction.lag.ms={most}."
            " Lower the first or raise the second."
        )
    from barnabas.config.throttled_replicas import replica_problems  # not at each start

    problems = replica_problems(overrides)
    if config.boolean("remote.storage.enable"):
        problems.append(
            "remote.storage.enable=true: there is no tiered storage, all records are in log.dirs."
            " Remove the setting."
        )
    checks = broker.topic_checks if isinstance(broker, DynamicConfig) else []
    problems += [line for check in checks for line in check(overrides)]
    if problems:
        raise ConfigError(problems)
    return config


def check_values(scope: str, overrides: Mapping[str, str]) -> None:
    """Raises ConfigError for a name that the scope does not have or an invalid value."""
    problems: list[str] = []
    for name, text in overrides.items():
        setting = settings_of(scope).get(name)
        if setting is None:
            problems.append(f"{name}: no {scope} setting has this name. Check the spelling.")
        elif len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
            problems.append(f"{name}: the value is longer than {TEXT_BYTES_MAX} bytes. Shorten it.")
        elif refers(text):
            problems.append(f"{name}: ${{...}} works in the server's own file only.")
        else:
            try:
                parse_value(setting, text)
            except ConfigError as error:
                problems += error.problems
    if problems:
        raise ConfigError(problems)
