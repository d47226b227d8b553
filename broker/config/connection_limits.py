"""Limits of connections that are no plain numbers: of one listener, and of single addresses.

    listener.name.internal.max.connections=100
    listener.name.internal.max.connection.creation.rate=5
    max.connections.per.ip.overrides=10.0.0.7:200,gateway.example:50

A listener's name is in small letters there, as Kafka writes it. The limits of a listener come
beside the broker's own; a listener without any has none.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.config.settings import BROKER_SETTINGS, ConfigError, Setting
from barnabas.config.values import list_of

OVERRIDES = "max.connections.per.ip.overrides"
OVERRIDE_COUNT_MAX = 1000  # each new connection is compared with all of them
PREFIX = "listener.name."
OF_A_LISTENER = ("max.connections", "max.connection.creation.rate")


class ListenerLimit(NamedTuple):
    """What `listener.name.internal.max.connections` says."""

    listener: str
    setting: Setting


def listener_limit(name: str) -> ListenerLimit | None:
    if name.startswith(PREFIX):
        listener, _, rest = name.removeprefix(PREFIX).partition(".")
        if listener and rest in OF_A_LISTENER:
            return ListenerLimit(listener, BROKER_SETTINGS[rest])
    return None


def name_of_limit(listener: str, name: str) -> str:
    return f"{PREFIX}{listener.lower()}.{name}"


def parse_overrides(text: str) -> dict[str, int]:
    """Host (a name or an address) -> connections it may have."""
    found: dict[str, int] = {}
    for entry in list_of(text):
        host, colon, count = entry.rpartition(":")
        host, count = host.strip().removeprefix("[").removesuffix("]"), count.strip()
        if not (colon and host and count.isascii() and count.isdigit() and len(count) < 11):
            raise ConfigError(
                f"{OVERRIDES}={text}: {entry!r} is no entry. Write HOST:COUNT between commas."
            )
        found[host] = int(count)
    if len(found) > OVERRIDE_COUNT_MAX:
        raise ConfigError(f"{OVERRIDES}: more than {OVERRIDE_COUNT_MAX} hosts.")
    return found
