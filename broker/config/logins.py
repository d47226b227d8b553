"""The settings of SASL that this build supports, and checks that refuse a start.

    sasl.enabled.mechanisms=SCRAM-SHA-512
    listener.name.internal.sasl.enabled.mechanisms=PLAIN
    listener.name.internal.plain.sasl.jaas.config=org.apache...PlainLoginModule required ...;
    listener.name.internal.plain.connections.max.reauth.ms=3600000
    listener.name.internal.sasl.server.max.receive.size=10000
    connection.failed.authentication.delay.ms
    sasl.mechanism.inter.broker.protocol, and the source of this node's own OAUTHBEARER token:
    listener.name.internal.oauthbearer.sasl.login.callback.handler.class=...LoginCallbackHandler
    sasl.oauthbearer.token.endpoint.url=file:/run/secrets/token

Names of listeners and mechanisms are in lower case, as in Kafka. A name with a listener and a
mechanism overrides a name with a listener, which overrides the plain name. As in Kafka,
sasl.jaas.config is read only with the prefix of a listener and a mechanism. Every other setting of
SASL is refused (protection.py), and so is one of these that would protect nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.config.connection_limits import PREFIX
from barnabas.config.listeners import Listener, PrefixedSettings
from barnabas.config.settings import BROKER_SETTINGS
from barnabas.config.values import list_of

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
ENABLED, JAAS = "sasl.enabled.mechanisms", "sasl.jaas.config"
REAUTHENTICATION = "connections.max.reauth.ms"
HANDLER = "sasl.server.callback.handler.class"
# Kafka's classes that validate signed tokens; the second is the former name.
SIGNED_HANDLERS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{name}OAuthBearerValidatorCallbackHandler"
    for name in ("", "secured.")
)
UNSIGNED_HANDLER = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)
LOGIN_HANDLER = "sasl.login.callback.handler.class"
# Kafka's class that gets tokens for logins to other brokers; the second is the former name.
LOGIN_HANDLERS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{name}OAuthBearerLoginCallbackHandler"
    for name in ("", "secured.")
)
BETWEEN_BROKERS = "sasl.mechanism.inter.broker.protocol"
RECEIVE_BYTES = "sasl.server.max.receive.size"
# The prefixes that a setting may have: none, a listener, a listener and a mechanism.
NOTHING, LISTENER, MECHANISM = "nothing", "listener", "mechanism"
ANYTHING = frozenset({NOTHING, LISTENER, MECHANISM})
# Settings of one mechanism, by the start of their names.
OWNERS = {
    "sasl.oauthbearer.": "OAUTHBEARER",
    HANDLER: "OAUTHBEARER",
    LOGIN_HANDLER: "OAUTHBEARER",
    "sasl.kerberos.": "GSSAPI",
}
IN_FRONT: Mapping[str, frozenset[str]] = {
    ENABLED: frozenset({NOTHING, LISTENER}),
    JAAS: frozenset({MECHANISM}),
    REAUTHENTICATION: ANYTHING,
    HANDLER: frozenset({MECHANISM}),
    LOGIN_HANDLER: frozenset({MECHANISM}),
    "sasl.kerberos.principal.to.local.rules": frozenset({NOTHING, LISTENER}),
    "sasl.kerberos.service.name": frozenset({NOTHING, LISTENER}),
    **{
        f"sasl.oauthbearer.{name}": ANYTHING
        for name in (
            "allow.unverified.audience",
            "allow.unverified.issuer",
            "client.credentials.client.id",
            "client.credentials.client.secret",
            "clock.skew.seconds",
            "expected.audience",
            "expected.issuer",
            "jwks.endpoint.refresh.ms",
            "jwks.endpoint.retry.backoff.max.ms",
            "jwks.endpoint.retry.backoff.ms",
            "jwks.endpoint.url",
            "scope",
            "scope.claim.name",
            "sub.claim.name",
            "token.endpoint.url",
        )
    },
    BETWEEN_BROKERS: frozenset({NOTHING}),
    RECEIVE_BYTES: frozenset({NOTHING, LISTENER}),
}
# The broker accepts these without the prefix of a listener also when no listener uses SASL. The
# others configure how clients log in, and would have no effect then.
HARMLESS = frozenset({BETWEEN_BROKERS, RECEIVE_BYTES})


class LoginSetting(NamedTuple):
    """The meaning of a name: a setting, of a listener ("" for all) and a mechanism ("" for all)."""

    listener: str
    mechanism: str
    base: str


def login_setting(name: str) -> LoginSetting | None:
    """Returns the meaning of a name; None if it is not a SASL setting of this build."""
    if not name.startswith(PREFIX):
        return LoginSetting("", "", name) if NOTHING in IN_FRONT.get(name, ()) else None
    listener, _, rest = name.removeprefix(PREFIX).partition(".")
    if listener and LISTENER in IN_FRONT.get(rest, ()):
        return LoginSetting(listener, "", rest)
    for mechanism in MECHANISMS if listener else ():
        base = rest.removeprefix(mechanism.lower() + ".")
        if base != rest and MECHANISM in IN_FRONT.get(base, ()) and _is_of(base, mechanism):
            return LoginSetting(listener, mechanism, base)
    return None


def _is_of(base: str, mechanism: str) -> bool:
    return all(owner == mechanism for start, owner in OWNERS.items() if base.startswith(start))


def are_of(names: Iterable[str], listener: str, mechanism: str = "") -> bool:
    """Returns whether one of the names is a setting of the logins by a mechanism on a listener;
    without a mechanism, of the logins on a listener."""
    found = [setting for name in names if (setting := login_setting(name)) is not None]
    of_listener = [row for row in found if row.listener in ("", listener.lower())]
    if not mechanism:
        return bool(of_listener)
    return any(
        row.base != ENABLED and row.mechanism in ("", mechanism) and _is_of(row.base, mechanism)
        for row in of_listener
    )


def is_fulfilled(name: str, value: str | None) -> bool:
    """Returns whether this build does what the setting requests."""
    setting = login_setting(name)
    if setting is None:
        return False
    if setting.base in (ENABLED, BETWEEN_BROKERS):
        asked = list_of(value or "")
        return bool(asked) and all(mechanism in MECHANISMS for mechanism in asked)
    if setting.base == HANDLER:
        return (value or "").strip() in (*SIGNED_HANDLERS, UNSIGNED_HANDLER)
    if setting.base == LOGIN_HANDLER:
        return (value or "").strip() in LOGIN_HANDLERS
    return True


def login_dynamic_problem(name: str) -> str | None:
    """Returns why a SASL setting cannot be altered, by Kafka's modes; None if it can, and for other
    settings."""
    setting = login_setting(name)
    if setting is None or not BROKER_SETTINGS[setting.base].is_read_only:
        return None
    return f"{name}: cannot change while the broker runs. Set it in the file and restart."


class LoginSettings(PrefixedSettings):
    """The login settings of one mechanism on one listener. `values`: the texts of all settings."""

    def __init__(self, values: Mapping[str, str], listener: str, mechanism: str) -> None:
        of_listener = f"{PREFIX}{listener.lower()}."
        self._of_mechanism = f"{of_listener}{mechanism.lower()}."
        super().__init__(values, self._of_mechanism, of_listener)

    def name_of_mechanism(self, base: str) -> str:
        """Returns the name with the prefix of the listener and the mechanism."""
        return self._of_mechanism + base


def jaas_name(listener: str, mechanism: str) -> str:
    return f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS}"


def mechanisms_of(values: Mapping[str, str], listener: str) -> tuple[str, ...]:
    """Returns the mechanisms of a listener. The default is Kafka's, GSSAPI."""
    own = values.get(f"{PREFIX}{listener.lower()}.{ENABLED}")
    return list_of(values.get(ENABLED, "GSSAPI") if own is None else own)


def receive_bytes_max(values: Mapping[str, str], listener: str) -> int:
    """Returns the largest frame in bytes of a client that has not logged in. Raises ConfigError."""
    return PrefixedSettings(values, f"{PREFIX}{listener.lower()}.").integer(RECEIVE_BYTES)


def login_problems(
    values: Mapping[str, str],
    bound: Sequence[Listener],
    elsewhere: Sequence[Listener],
    altered: Collection[str] | None = None,
) -> list[str]:
    """Returns the errors of the SASL settings. `elsewhere`: listeners that are named and not bound.
    `altered`: the settings of `values` to check; None: all."""
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
    for name, text in values.items():
        setting = login_setting(name) if altered is None or name in altered else None
        if setting is None or (setting.base in HARMLESS and not setting.listener):
            continue
        if setting.listener and setting.listener not in known:
            wrong.append(
                f"{name}: no SASL listener has this name, so the setting would have no effect."
                " Add the listener, or remove the setting."
            )
        elif not setting.listener and not known and not _is_default(setting.base, text):
            wrong.append(
                f"{name}: no listener uses SASL, so the setting would have no effect. Add a"
                " SASL_SSL or SASL_PLAINTEXT listener, or remove the setting."
            )
        elif not _is_offered(values, setting, known) and not _is_default(setting.base, text):
            wrong.append(
                f"{name}: no listener has the mechanism of this setting enabled, so the setting"
                f" would have no effect. Add the mechanism to {ENABLED}, or remove the setting."
            )
    return wrong


def inter_broker_problems(values: Mapping[str, str], listener: Listener) -> list[str]:
    """Returns why brokers of a cluster could not log in to each other on the inter-broker
    listener."""
    mechanism = values.get(BETWEEN_BROKERS) or str(BROKER_SETTINGS[BETWEEN_BROKERS].default)
    known = mechanisms_of(values, listener.name)
    if not listener.protocol.startswith("SASL_") or mechanism in known:
        return []
    return [
        f"{BETWEEN_BROKERS}={mechanism}: the listener between brokers, {listener.name}, offers"
        f" {', '.join(known)}. Set it to one of these, or add {mechanism} to {ENABLED}."
    ]


def _is_offered(
    values: Mapping[str, str], setting: LoginSetting, listeners: Collection[str]
) -> bool:
    """Returns whether a listener has the mechanism that the setting belongs to."""
    owners = [owner for start, owner in OWNERS.items() if setting.base.startswith(start)]
    names = [setting.listener] if setting.listener else listeners
    return not owners or any(owners[0] in mechanisms_of(values, name) for name in names)


def _is_default(base: str, text: str) -> bool:
    return text.strip().lower() == (BROKER_SETTINGS[base].default or "").lower()
