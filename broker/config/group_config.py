"""The settings of one group: its overrides, otherwise the broker's values.

Settings of the broker such as `group.consumer.min.session.timeout.ms` are bounds for the values of
a group. They apply when a client sets a value; a stored value stays when the bounds change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic_config import DynamicConfig
from barnabas.config.settings import BROKER_SETTINGS, ConfigError
from barnabas.config.topic_config import ResourceConfig, check_values

FAMILIES = ("consumer", "share", "streams")
# Settings whose bound has another name.
BOUND_NAMES = {"streams.num.standby.replicas": "streams.standby.replicas"}
# ISO 8601 as Java's Duration reads it: days, then a time; at least one part, and none negative.
DURATION = (
    r"[Pp](?=.)(?:\+?\d{1,9}[Dd])?(?:[Tt](?=.)(?:\+?\d{1,9}[Hh])?(?:\+?\d{1,9}[Mm])?"
    r"(?:\+?\d{1,9}(?:[.,]\d{0,9})?[Ss])?)?"
)
BY_DURATION = "by_duration:"


class GroupConfig(ResourceConfig):
    scope = "group"


def check_group(overrides: Mapping[str, str], broker: DynamicConfig | BrokerConfig) -> GroupConfig:
    """Checks the overrides of a group and returns its settings. Raises ConfigError."""
    check_values("group", overrides)
    config = GroupConfig(overrides, broker)
    problems = [line for name in overrides for line in _beyond_bounds(name, config, broker)]
    reset = overrides.get("share.auto.offset.reset")
    if reset is not None and not _is_reset(reset.strip()):
        problems.append(
            f"Invalid value {reset[:60]} for configuration share.auto.offset.reset: it must be"
            " 'earliest', 'latest' or 'by_duration:<PnDTnHnMn.nS>'."
        )
    for family in FAMILIES:
        session, heartbeat = f"{family}.session.timeout.ms", f"{family}.heartbeat.interval.ms"
        if {session, heartbeat} & set(overrides):
            if config.integer(session) <= config.integer(heartbeat):
                problems.append(f"{session} must be greater than {heartbeat}")
    if problems:
        raise ConfigError(problems)
    return config


def _beyond_bounds(
    name: str, config: GroupConfig, broker: DynamicConfig | BrokerConfig
) -> list[str]:
    family, _, rest = BOUND_NAMES.get(name, name).partition(".")
    least, most = f"group.{family}.min.{rest}", f"group.{family}.max.{rest}"
    if least in BROKER_SETTINGS and config.integer(name) < broker.integer(least):
        return [f"{name} must be greater than or equal to {least}"]
    if most in BROKER_SETTINGS and config.integer(name) > broker.integer(most):
        return [f"{name} must be less than or equal to {most}"]
    return []


def _is_reset(text: str) -> bool:
    if text.startswith(BY_DURATION):
        return re.fullmatch(DURATION, text.removeprefix(BY_DURATION)) is not None
    return text in ("earliest", "latest")
