"""SASL GSSAPI (RFC 4752) with Kerberos, by the package gssapi.

    client    a token of Kerberos
    broker    its token; the client acknowledges it with an empty message
    broker    4 bytes, wrapped: no security layer is offered, as TLS protects the connection
    client    4 bytes, wrapped: it takes none; and an authorization id, which counts for nothing

Between two messages the context of Kerberos is exported into the bytes of the connection. The
broker's key comes from a keytab, which its JAAS line names:

    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true
        keyTab="/etc/kafka.keytab" principal="kafka/broker.example.com@EXAMPLE.COM";

The user is the short name of the client's principal (kerberos_names.py).
"""

from __future__ import annotations

from typing import Any

from barnabas.config import ConfigError
from barnabas.config.jaas import LoginModule
from barnabas.config.logins import LoginSettings
from barnabas.config.providers import check_private
from barnabas.security.failures import InvalidCredentials, LoginFailed
from barnabas.security.kerberos_names import NoShortName, ShortNames
from barnabas.security.mechanism import Answer
from barnabas.security.principal import USER_CHARS_MAX

NAME = "GSSAPI"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SERVICE, RULES = "sasl.kerberos.service.name", "sasl.kerberos.principal.to.local.rules"
NO_LAYER = b"\1\0\0\0"  # the layers that are offered, and the largest message of one: none
# What comes next, the first byte of an exchange; the exported context follows.
ACKNOWLEDGED, CHOSEN = b"a", b"c"


class Kerberos:
    """The clients of one listener, which may be any of the realm and those it trusts."""

    def __init__(self, settings: LoginSettings, module: LoginModule) -> None:
        """Raises ConfigError."""
        try:
            import gssapi
        except (ImportError, OSError):  # OSError: without the libraries of Kerberos
            raise ConfigError(
                "GSSAPI needs the package gssapi, and libkrb5: pip install 'barnabas[kerberos]'."
            ) from None
        self._gssapi: Any = gssapi
        principal, keytab = module.options.get("principal"), module.options.get("keyTab")
        service = settings.text(SERVICE) or module.options.get("serviceName")
        if not principal or not keytab or module.options.get("useKeyTab", "").lower() != "true":
            raise ConfigError('GSSAPI needs useKeyTab=true, keyTab="FILE" and principal="NAME".')
        if not service or service != principal.partition("/")[0]:
            raise ConfigError(
                f"{settings.name_of(SERVICE)} must be the first part of the principal {principal}."
            )
        try:
            check_private(keytab, "the key of the broker")
            self._credentials = gssapi.Credentials(
                name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
                usage="accept",
                mechs=[gssapi.MechType.kerberos],
                store={"keytab": f"FILE:{keytab}"},
            )
            someone = gssapi.Name("x", gssapi.NameType.user)
            realm = str(someone.canonicalize(gssapi.MechType.kerberos)).rpartition("@")[2]
        except OSError as error:
            raise ConfigError(f"the keytab {keytab} cannot be read: {error.strerror}.") from None
        except gssapi.exceptions.GSSError as error:
            raise ConfigError(f"no key of {principal} in {keytab}: {error}.") from None
        try:
            self._names = ShortNames(settings.names(RULES), realm)
        except ConfigError as error:
            raise ConfigError(f"{settings.name_of(RULES)}: {error.problems[0]}") from None

    def step(self, exchange: bytes, token: bytes) -> Answer:
        """Raises LoginFailed."""
        gssapi = self._gssapi
        try:
            if not exchange:
                return self._first(token)
            context = gssapi.SecurityContext(token=exchange[1:])
            if exchange.startswith(ACKNOWLEDGED):
                if token:
                    raise InvalidCredentials(NAME)
                return _offer(context)
            chosen = context.unwrap(token).message
            if len(chosen) < 4 or chosen[:1] != NO_LAYER[:1]:
                raise InvalidCredentials(NAME)
            return Answer(b"", user=self._user(str(context.initiator_name)))
        except gssapi.exceptions.GSSError:
            raise InvalidCredentials(NAME) from None

    def _first(self, token: bytes) -> Answer:
        context = self._gssapi.SecurityContext(creds=self._credentials, usage="accept")
        answer = context.step(token)
        if not context.complete:
            raise InvalidCredentials(NAME)
        return Answer(answer, ACKNOWLEDGED + context.export()) if answer else _offer(context)

    def _user(self, principal: str) -> str:
        try:
            user = self._names.of(principal)
        except NoShortName:
            raise LoginFailed(
                "Authentication failed: no rule of sasl.kerberos.principal.to.local.rules matches"
                " the principal"
            ) from None
        if len(user) > USER_CHARS_MAX:
            raise InvalidCredentials(NAME)
        return user


def _offer(context: Any) -> Answer:
    return Answer(context.wrap(NO_LAYER, False).message, CHOSEN + context.export())
