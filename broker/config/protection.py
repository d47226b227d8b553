"""Settings that request a protection that this build does not have: the broker refuses to start.

A broker that started without it would look secure and be open. A value equal to Kafka's default
requests nothing. When a protection is implemented, its line is removed from this file.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.config import access
from barnabas.config.logins import is_fulfilled
from barnabas.config.settings import BROKER_SETTINGS

# By protection: the names of the settings that request it, or prefixes of names (with a dot at the
# end).
WANTED = {
    "SASL logins": ("sasl.",),
    "TLS by Java classes": ("ssl.engine.factory.class", "ssl.provider"),
    "access control": (
        "authorizer.class.name",
        "super.users",
        "principal.builder.class",
    ),
    "quotas by a Java class": ("client.quota.callback.class",),
    "re-authentication": ("connections.max.reauth.ms",),
}


def base_name(name: str) -> str:
    """Returns the name without its listener: listener.name.internal.ssl.keystore.location ->
    ssl.keystore.location."""
    if name.startswith("listener.name."):
        _, _, rest = name.removeprefix("listener.name.").partition(".")
        for prefix in ("sasl.", "ssl.", "connections.max.reauth."):
            # in listener.name.x.plain.sasl.jaas.config the mechanism follows the listener
            at = ("." + rest).find("." + prefix)
            if at >= 0:
                return rest[at:]
        return rest
    return name


def protection_asked(name: str, value: str | None) -> str | None:
    """Returns the missing protection that a setting requests; None if it requests none."""
    base = base_name(name)
    for protection, names in WANTED.items():
        if any(base.startswith(n) if n.endswith(".") else base == n for n in names):
            setting = BROKER_SETTINGS.get(base)
            default = (setting.default if setting else None) or ""
            asks = (value or "").strip()
            if asks and asks.lower() != default.lower():
                return protection
    return None


def protection_problems(values: Mapping[str, str]) -> list[str]:
    """Returns an error for each setting that requests a missing protection. `values`: texts by
    name."""
    found = []
    for name, value in values.items():
        protection = protection_asked(name, value)
        if protection and not (is_fulfilled(name, value) or access.is_fulfilled(name, value)):
            found.append(
                f"{name}: asks for {protection}, not available in this build; starting without"
                " would leave open what you want closed. Remove the setting to start unprotected."
            )
    return found
