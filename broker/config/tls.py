"""The settings of TLS that this build supports, and checks that refuse a start.

    ssl.keystore.type=PEM
    ssl.keystore.location=/etc/barnabas/broker.pem
    listener.name.outside.ssl.client.auth=required

A setting with the prefix `listener.name.NAME.` belongs to one listener and overrides the setting
without the prefix, as in Kafka. This file has the rules that need no file; broker/tls reads the
files. Every other setting of TLS is refused (protection.py), and so is one of these that would
protect nothing.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from barnabas.config.connection_limits import PREFIX
from barnabas.config.listeners import Listener, PrefixedSettings, is_loopback
from barnabas.config.settings import BROKER_SETTINGS, ConfigError
from barnabas.config.values import list_of

PROTOCOLS = ("SSL", "SASL_SSL")
VERSIONS = ("TLSv1.2", "TLSv1.3")
STORE_TYPES = ("PEM", "PKCS12", "JKS")
CLIENT_AUTH = "ssl.client.auth"
KEYSTORE = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
)
TRUSTSTORE = (
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)
RULES = (
    CLIENT_AUTH,
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.protocol",
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "ssl.principal.mapping.rules",
)
FULFILLED = frozenset(KEYSTORE + TRUSTSTORE + RULES)
# These settings can change while the broker runs; passwords and inline PEM only if the broker
# stores them encrypted.
DYNAMIC = frozenset(KEYSTORE + TRUSTSTORE)
MISSING = (
    "this build has no TLS, because OpenSSL's headers were missing when it was compiled. Install"
    " libssl-dev and build again"
)


class TlsSetting(NamedTuple):
    """The meaning of a name: a setting of a listener (in lower case; "" for all)."""

    listener: str
    base: str


def is_built_in() -> bool:
    """Returns whether this build can serve TLS."""
    return importlib.util.find_spec("barnabas.cext.network.tls") is not None


def tls_setting(name: str) -> TlsSetting | None:
    """Returns the meaning of a name; None if it is not a TLS setting of this build."""
    if name in FULFILLED:
        return TlsSetting("", name)
    if name.startswith(PREFIX):
        listener, _, base = name.removeprefix(PREFIX).partition(".")
        if listener and base in FULFILLED:
            return TlsSetting(listener, base)
    return None


def tls_dynamic_problem(name: str) -> str | None:
    """Returns why a TLS setting cannot be altered; None if it can."""
    setting = tls_setting(name)
    if setting is None or setting.base in DYNAMIC:
        return None
    return f"{name}: cannot change while the broker runs. Set it in the file and restart."


class TlsSettings(PrefixedSettings):
    """The TLS settings of one listener. `values`: the texts of all settings in force."""

    def __init__(self, values: Mapping[str, str], listener: Listener) -> None:
        self.listener, self._own = listener, f"{PREFIX}{listener.name.lower()}."
        super().__init__(values, self._own)

    @property
    def client_auth(self) -> str:
        """Returns none, requested or required. A SASL listener requests certificates only by a
        setting with its own prefix (KIP-684)."""
        if self.listener.protocol == "SASL_SSL" and self._own + CLIENT_AUTH not in self._values:
            return "none"
        return self.text(CLIENT_AUTH) or "none"

    def is_on(self, name: str) -> bool:
        """Returns the value of a boolean setting of the broker."""
        return (self._values.get(name) or "").strip().lower() == "true"

    @property
    def is_anonymous(self) -> bool:
        """Returns whether a client can connect without authentication."""
        return self.listener.protocol == "SSL" and self.client_auth != "required"

    def problem(self, base: str, why: str) -> str:
        return f"{self.name_of(base)} of the listener {self.listener.name}: {why}"


def tls_problems(
    values: Mapping[str, str], bound: Sequence[Listener], elsewhere: Sequence[Listener]
) -> list[str]:
    """Returns the errors of the TLS settings, without reading files. `elsewhere`: listeners that
    are named and not bound."""
    asking = {row.name.lower() for row in bound if row.protocol in PROTOCOLS}
    known = asking | {row.name.lower() for row in elsewhere}
    wrong: list[str] = []
    for name, text in values.items():
        setting = tls_setting(name)
        if setting is None or text.strip() == (BROKER_SETTINGS[setting.base].default or ""):
            continue
        if setting.listener and setting.listener not in known:
            wrong.append(
                f"{name}: no SSL or SASL_SSL listener has this name, so the setting would have no"
                " effect. Add the listener, or remove the setting."
            )
        elif not setting.listener and not known:
            wrong.append(
                f"{name}: no listener uses TLS, so the setting would have no effect. Add an SSL or"
                " SASL_SSL listener, or remove the setting."
            )
    for row in bound:
        if row.protocol in PROTOCOLS:
            wrong += listener_problems(values, row)
    return wrong


def listener_problems(values: Mapping[str, str], listener: Listener) -> list[str]:
    """Returns the errors in the TLS settings of one listener, without reading files."""
    settings = TlsSettings(values, listener)
    checks: tuple[Callable[[TlsSettings], list[str]], ...] = (
        _version_problems,
        _keystore_problems,
        _truststore_problems,
        _reach_problems,
    )
    try:
        return [problem for check in checks for problem in check(settings)]
    except ConfigError as error:
        return error.problems


def _version_problems(settings: TlsSettings) -> list[str]:
    wrong = []
    versions = settings.names("ssl.enabled.protocols")
    unknown = [name for name in versions if name not in VERSIONS]
    if unknown or not versions:
        wrong.append(
            settings.problem(
                "ssl.enabled.protocols",
                f"{', '.join(unknown)}: this broker does not support it. Use one or both of"
                f" {', '.join(VERSIONS)}."
                if unknown
                else f"the list is empty. Use one or both of {', '.join(VERSIONS)}.",
            )
        )
    if settings.text("ssl.protocol") not in (*VERSIONS, "TLS"):
        wrong.append(
            settings.problem(
                "ssl.protocol",
                f"this broker does not support it. Use {', '.join(VERSIONS)} or TLS.",
            )
        )
    return wrong


def _store_type_problem(settings: TlsSettings, base: str) -> list[str]:
    if (settings.text(base) or "").upper() in STORE_TYPES:
        return []
    return [settings.problem(base, f"unknown format. Use one of {', '.join(STORE_TYPES)}.")]


def _keystore_problems(settings: TlsSettings) -> list[str]:
    wrong = _store_type_problem(settings, "ssl.keystore.type")
    is_pem = (settings.text("ssl.keystore.type") or "").upper() == "PEM"
    location, key = settings.text("ssl.keystore.location"), settings.text("ssl.keystore.key")
    chain = settings.text("ssl.keystore.certificate.chain")
    if not location and not key and not chain:
        wrong.append(
            settings.problem(
                "ssl.keystore.location",
                "a TLS listener needs a certificate. Set this to the path of the keystore.",
            )
        )
    elif location and (key or chain):
        wrong.append(
            settings.problem(
                "ssl.keystore.location",
                "an inline key or certificate chain is also set. Remove one of them.",
            )
        )
    elif not location and not (key and chain):
        given, missing = "ssl.keystore.key", "ssl.keystore.certificate.chain"
        if chain:
            given, missing = missing, given
        wrong.append(
            settings.problem(
                missing, f"is not set, but {given} is. Set both, or name a keystore file."
            )
        )
    elif not location and not is_pem:
        wrong.append(
            settings.problem("ssl.keystore.type", "inline certificates need the type PEM. Set it.")
        )
    if is_pem and settings.text("ssl.keystore.password"):
        wrong.append(
            settings.problem(
                "ssl.keystore.password",
                "a PEM keystore has no password. Use ssl.key.password for the key.",
            )
        )
    return wrong


def _truststore_problems(settings: TlsSettings) -> list[str]:
    wrong = _store_type_problem(settings, "ssl.truststore.type")
    is_pem = (settings.text("ssl.truststore.type") or "").upper() == "PEM"
    location = settings.text("ssl.truststore.location")
    inline = settings.text("ssl.truststore.certificates")
    if location and inline:
        wrong.append(
            settings.problem(
                "ssl.truststore.location", "inline certificates are also set. Remove one of them."
            )
        )
    if inline and not is_pem:
        wrong.append(
            settings.problem(
                "ssl.truststore.type", "inline certificates need the type PEM. Set it."
            )
        )
    if is_pem and settings.text("ssl.truststore.password"):
        wrong.append(
            settings.problem(
                "ssl.truststore.password", "a PEM truststore has no password. Remove the setting."
            )
        )
    if settings.client_auth != "none" and not location and not inline:
        wrong.append(
            settings.problem(
                "ssl.truststore.location",
                f"{CLIENT_AUTH}={settings.client_auth} needs a truststore with the certificates of"
                " the authorities that sign client certificates. Set this to its path.",
            )
        )
    return wrong


def _reach_problems(settings: TlsSettings) -> list[str]:
    listener, name = settings.listener, "allow.unauthenticated.remote"
    if settings.is_on(name) or is_loopback(listener.host) or not settings.is_anonymous:
        return []
    return [
        f"listeners={listener}: other hosts could use this broker without authentication: a TLS"
        f" listener authenticates clients only with {CLIENT_AUTH}=required. Set that, or"
        f" {name}=true."
    ]


def suites_asked(settings: TlsSettings) -> tuple[str, ...]:
    """Returns the cipher suites that the listener is limited to, under Java's names; () for the
    defaults. The signal of RFC 5746 in Java's lists is not a cipher suite."""
    asked = list_of(",".join(settings.names("ssl.cipher.suites")))
    return tuple(name for name in asked if name != "TLS_EMPTY_RENEGOTIATION_INFO_SCSV")
