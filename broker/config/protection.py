"""Settings that ask for a protection this build does not give: the broker refuses to start.

Starting without it would look secure and be open. A value equal to Kafka's default asks for
nothing. When a protection is built, its line goes from this file.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.config.settings import BROKER_SETTINGS

# What is asked for, and the names (a dot at the end: every name that begins so) that ask for it.
WANTED = {
    "SASL logins": ("sasl.",),
    "TLS": (
        "ssl.keystore.",
        "ssl.truststore.",
        "ssl.key.password",
        "ssl.client.auth",
        "ssl.engine.factory.class",
        "ssl.principal.mapping.rules",
    ),
    "access control": (
        "authorizer.class.name",
        "super.users",
        "principal.builder.class",
    ),
    "quotas": ("quota.", "client.quota.callback.class"),
    "delegation tokens": ("delegation.token.secret.key", "delegation.token.master.key"),
    "re-authentication": ("connections.max.reauth.ms",),
    "TLS to ZooKeeper": ("zookeeper.ssl.client.enable",),
    "encryption of stored settings": ("password.encoder.secret",),
}


def base_name(name: str) -> str:
    """listener.name.internal.ssl.keystore.location -> ssl.keystore.location."""
    if name.startswith("listener.name."):
        _, _, rest = name.removeprefix("listener.name.").partition(".")
        for prefix in ("sasl.", "ssl."):
            # listener.name.x.plain.sasl.jaas.config has the mechanism in between
            at = ("." + rest).find("." + prefix)
            if at >= 0:
                return rest[at:]
        return rest
    return name


def protection_asked(name: str, value: str | None) -> str | None:
    """What the setting asks for and does not get, or None."""
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
    found = []
    for name, value in values.items():
        protection = protection_asked(name, value)
        if protection:
            found.append(
                f"{name}: asks for {protection}, not available in this build; starting without"
                " would leave open what you want closed. Remove the setting to start unprotected."
            )
    return found
