"""The settings of a share group. The group's own settings override the broker's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.config import DynamicConfig
from barnabas.config.group_config import BY_DURATION, GroupConfig

LATEST, EARLIEST, BY_TIME = "latest", "earliest", "by_duration"
_PARTS = re.compile(
    r"[Pp](?:\+?(\d+)[Dd])?(?:[Tt](?:\+?(\d+)[Hh])?(?:\+?(\d+)[Mm])?(?:\+?(\d+)(?:[.,](\d*))?[Ss])?)?"
)


class ShareSettings(NamedTuple):
    """The present settings of one group."""

    lock_ms: int
    delivery_max: int
    locks_max: int
    committed_only: bool
    reset: str  # LATEST, EARLIEST, BY_TIME
    reset_age_ms: int
    renews: bool
    letters_topic: str  # empty: no dead letters
    copies_letters: bool
    session_ms: int
    heartbeat_ms: int
    assignment_ms: int

    @classmethod
    def of(cls, overrides: Mapping[str, str], broker: DynamicConfig) -> ShareSettings:
        """Reads the settings of a group. `overrides`: the group's own settings."""
        config = GroupConfig(overrides, broker)
        reset = config.text("share.auto.offset.reset").strip()
        by_time = reset.startswith(BY_DURATION)
        return cls(
            lock_ms=_bounded(config, broker, "record.lock.duration.ms"),
            delivery_max=_bounded(config, broker, "delivery.count.limit"),
            locks_max=_bounded(config, broker, "partition.max.record.locks"),
            committed_only=config.text("share.isolation.level") == "read_committed",
            reset=BY_TIME if by_time else reset,
            reset_age_ms=duration_ms(reset.removeprefix(BY_DURATION)) if by_time else 0,
            renews=config.boolean("share.renew.acknowledge.enable"),
            letters_topic=config.text("errors.deadletterqueue.topic.name").strip(),
            copies_letters=config.boolean("errors.deadletterqueue.copy.record.enable"),
            session_ms=_bounded(config, broker, "session.timeout.ms"),
            heartbeat_ms=_bounded(config, broker, "heartbeat.interval.ms"),
            assignment_ms=_bounded(config, broker, "assignment.interval.ms"),
        )


def _bounded(config: GroupConfig, broker: DynamicConfig, name: str) -> int:
    """Returns a setting. The group's own value is limited by the broker's bounds, which may have
    changed after it was set."""
    value = config.integer(f"share.{name}")
    least, most = (broker.integer(f"group.share.{bound}.{name}") for bound in ("min", "max"))
    return min(max(value, least), most) if f"share.{name}" in config.overrides else value


def duration_ms(text: str) -> int:
    """Returns the ms of an ISO 8601 duration that was checked when it was set."""
    found = _PARTS.fullmatch(text)
    if found is None:
        return 0
    days, hours, minutes, seconds, rest = (part or "0" for part in found.groups())
    whole_s = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole_s * 1000 + int(rest.ljust(3, "0")[:3])
