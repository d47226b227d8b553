"""The settings of logins that this build fulfils, and what is wrong with them.

    sasl.enabled.mechanisms=SCRAM-SHA-512
    listener.name.internal.sasl.enabled.mechanisms=PLAIN
    listener.name.internal.plain.sasl.jaas.config=org.apache...PlainLoginModule required ...;
    sasl.server.max.receive.size, connection.failed.authentication.delay.ms

Names of listeners and mechanisms are in small letters, as Kafka writes them. As in Kafka,
sasl.jaas.config without a listener and a mechanism in front is not read. Every other setting of
SASL is refused (protection.py), and so is one of these that would protect nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.config.connection_limits import PREFIX
from barnabas.config.listeners import Listener
from barnabas.config.values import list_of

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ENABLED, JAAS = "sasl.enabled.mechanisms", "sasl.jaas.config"
BETWEEN_BROKERS = "sasl.mechanism.inter.broker.protocol"
PLAIN_NUMBERS = ("sasl.server.max.receive.size",)


class LoginSetting(NamedTuple):
    """What a name means: a setting, of a listener ("" for all) and a mechanism ("" for all)."""

    listener: str
    mechanism: str
    base: str


def login_setting(name: str) -> LoginSetting | None:
    """None for a name that is no login setting of this build."""
    if name in (ENABLED, BETWEEN_BROKERS, *PLAIN_NUMBERS):
        return LoginSetting("", "", name)
    if not name.startswith(PREFIX):
        return None
    listener, _, rest = name.removeprefix(PREFIX).partition(".")
    if listener and rest == ENABLED:
        return LoginSetting(listener, "", ENABLED)
    mechanism = rest.removesuffix("." + JAAS)
    if listener and rest != mechanism and mechanism in (m.lower() for m in MECHANISMS):
        return LoginSetting(listener, mechanism.upper(), JAAS)
    return None


def is_fulfilled(name: str, value: str | None) -> bool:
    """Whether this build does what the setting asks for."""
    setting = login_setting(name)
    if setting is None:
        return False
    if setting.base in (ENABLED, BETWEEN_BROKERS):
        asked = list_of(value or "")
        return bool(asked) and all(mechanism in MECHANISMS for mechanism in asked)
    return True


def jaas_name(listener: str, mechanism: str) -> str:
    return f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS}"


def mechanisms_of(values: Mapping[str, str], listener: str) -> tuple[str, ...]:
    """The mechanisms of a listener; GSSAPI, Kafka's default, where none are given."""
    own = values.get(f"{PREFIX}{listener.lower()}.{ENABLED}")
    return list_of(values.get(ENABLED, "GSSAPI") if own is None else own)


def login_problems(
    values: Mapping[str, str], bound: Sequence[Listener], elsewhere: Sequence[Listener]
) -> list[str]:
    """`elsewhere`: listeners that are named and not bound."""
    asking = {row.name.lower() for row in bound if row.protocol.startswith("SASL_")}
    known = asking | {row.name.lower() for row in elsewhere}
    wrong = []
    for row in bound:
        if row.name.lower() in asking:
            mechanisms = mechanisms_of(values, row.name)
            missing = [name for name in mechanisms if name not in MECHANISMS]
            if missing or not mechanisms:
                wrong.append(
                    f"listeners={row}: {', '.join(missing) or 'no mechanism'} is not available."
                    f" Set {ENABLED} to some of {', '.join(MECHANISMS)}."
                )
    for name in values:
        setting = login_setting(name)
        if setting is None or setting.base not in (ENABLED, JAAS):
            continue
        if setting.listener and setting.listener not in known:
            wrong.append(
                f"{name}: no SASL listener has this name, so that nothing would be protected."
                " Add the listener, or remove the setting."
            )
        elif not setting.listener and not known and values[name].strip().upper() != "GSSAPI":
            wrong.append(
                f"{name}: no listener asks for a login, so that nothing would be protected."
                " Add a SASL_PLAINTEXT listener, or remove the setting."
            )
    return wrong
