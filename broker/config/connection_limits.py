"""Limits of connections for one listener, and for single addresses.

    listener.name.internal.max.connections=100
    listener.name.internal.max.connection.creation.rate=5
    max.connections.per.ip.overrides=10.0.0.7:200,gateway.example:50

The name of the listener is in lower case there, as in Kafka. The limits of a listener apply in
addition to those of the broker; without its own limits, a listener has only those of the broker.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.config.settings import BROKER_SETTINGS, ConfigError, Setting
from barnabas.config.values import list_of

OVERRIDES = "max.connections.per.ip.overrides"
OVERRIDE_COUNT_MAX = 1000  # the reactor compares each new connection with all of them
PREFIX = "listener.name."
OF_A_LISTENER = ("max.connections", "max.connection.creation.rate")


class ListenerLimit(NamedTuple):
    """A parsed name such as `listener.name.internal.max.connections`."""

    listener: str
    setting: Setting


def listener_limit(name: str) -> ListenerLimit | None:
    """Returns the limit that a name sets for one listener; None for other names."""
    if name.startswith(PREFIX):
        listener, _, rest = name.removeprefix(PREFIX).partition(".")
        if listener and rest in OF_A_LISTENER:
            return ListenerLimit(listener, BROKER_SETTINGS[rest])
    return None


def name_of_limit(listener: str, name: str) -> str:
    """Returns the name of the setting `name` for one listener."""
    return f"{PREFIX}{listener.lower()}.{name}"


def parse_overrides(text: str) -> dict[str, int]:
    """Returns the largest number of connections by host (a name or an address). Raises
    ConfigError."""
    found: dict[str, int] = {}
    for entry in list_of(text):
        host, colon, count = entry.rpartition(":")
        host, count = host.strip().removeprefix("[").removesuffix("]"), count.strip()
        if not (colon and host and count.isascii() and count.isdigit() and len(count) < 11):
            raise ConfigError(
                f"{OVERRIDES}={text}: {entry!r} is not an entry. Write HOST:COUNT between commas."
            )
        found[host] = int(count)
    if len(found) > OVERRIDE_COUNT_MAX:
        raise ConfigError(f"{OVERRIDES}: more than {OVERRIDE_COUNT_MAX} hosts.")
    return found
