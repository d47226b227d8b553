"""The login of a connection, step by step: SaslHandshake chooses a mechanism, tokens follow.

The state of a login between two steps is kept with its connection, as the bytes of its Session
(session.py); no state in this module grows with connections. Next: api/k17_sasl_handshake.py and
api/k36_sasl_authenticate.py, which answer the requests.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from barnabas.cext.memory.sys import SystemCalls
from barnabas.config import ConfigError, jaas
from barnabas.config.jaas import LoginModule
from barnabas.config.listeners import Listener
from barnabas.config.logins import (
    HANDLER,
    REAUTHENTICATION,
    SIGNED_HANDLERS,
    LoginSettings,
    are_of,
    jaas_name,
    mechanisms_of,
)
from barnabas.metadata.cluster_state import ClusterState
from barnabas.security import kerberos, oauthbearer, plain, scram
from barnabas.security.delegation_tokens import DelegationTokens
from barnabas.security.failures import InvalidCredentials, LoginFailed
from barnabas.security.kerberos import Kerberos
from barnabas.security.login_counts import LoginCounts
from barnabas.security.mechanism import Answer, Mechanism
from barnabas.security.plain import PlainUsers
from barnabas.security.scram_users import ScramUsers
from barnabas.security.session import Session
from barnabas.security.unknown_users import UnknownUsers

MODULES = {
    kerberos.NAME: kerberos.MODULE,
    oauthbearer.NAME: oauthbearer.MODULE,
    plain.NAME: plain.MODULE,
}  # others: scram.MODULE


class _Asking(NamedTuple):
    """A listener that asks for logins."""

    listener: Listener
    mechanisms: Mapping[str, Mechanism]


class Logins:
    """Who may log in on the SASL listeners of one broker."""

    def __init__(
        self,
        values: Callable[[], Mapping[str, str]],
        state: Callable[[], ClusterState],
        secret: Callable[[], bytes],
        system: SystemCalls,
        tokens: DelegationTokens | None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`values` returns the texts of all settings in force, `secret` login_secret(). KAFKA_OPTS
        of `environ` may name a JAAS file, as Kafka takes it. `tokens`: None where delegation tokens
        are off."""
        self.counts = LoginCounts()
        self._values = values
        self._state = state
        self._environ = os.environ if environ is None else environ
        self._secret = secret
        self._system = system
        self._tokens = tokens
        self._unknown_users: UnknownUsers | None = None
        self._lock = threading.Lock()  # of changes; a login reads a map that is replaced whole
        self._listeners: Mapping[str, _Asking] = {}

    def add(self, listener: Listener) -> None:
        """Reads the settings of a SASL listener. Raises ConfigError: it must not be bound; and
        MetadataError."""
        with self._lock:
            made = self._made(self._values(), listener, {})
            self._listeners = {**self._listeners, listener.name: made}

    def forget(self, name: str) -> None:
        """Follows the settings of a listener no more: it is closed."""
        with self._lock:
            self._listeners = {n: asking for n, asking in self._listeners.items() if n != name}

    def problems(self, listener: Listener, values: Mapping[str, str]) -> list[str]:
        """Why a listener that is to be added cannot ask for logins; nothing is kept."""
        try:
            self._made(values, listener, {})
        except ConfigError as error:
            return error.problems
        return []

    def check(
        self, values: Mapping[str, str], names: Iterable[str], bound: Collection[str]
    ) -> list[str]:
        """Why the altered settings `names` cannot be used, for listeners that serve and go on:
        those that will be `bound`."""
        problems = []
        for asking in self._touched(names):
            if asking.listener.name not in bound:
                continue
            try:
                self._made(values, asking.listener, _kept(asking, names))
            except ConfigError as error:
                problems += error.problems
        return problems

    def changed(self, names: Iterable[str]) -> None:
        """Logs clients in by the altered settings from now on. Clients that have logged in stay
        so, until they have to log in again. Raises ConfigError; nothing has changed then."""
        with self._lock:
            values = self._values()
            for asking in self._touched(names):
                made = self._made(values, asking.listener, _kept(asking, names))
                self._listeners = {**self._listeners, asking.listener.name: made}

    def _touched(self, names: Iterable[str]) -> list[_Asking]:
        return [row for row in self._listeners.values() if are_of(names, row.listener.name)]

    def _made(
        self, values: Mapping[str, str], listener: Listener, known: Mapping[str, Mechanism]
    ) -> _Asking:
        """`known`: mechanisms that stay as they are. Raises ConfigError."""
        found = {}
        for name in mechanisms_of(values, listener.name):
            if name in known:
                found[name] = known[name]
                continue
            where, module = self._module(values, listener.name, name)
            try:
                found[name] = self._mechanism(values, listener, name, module)
            except ConfigError as error:
                raise ConfigError(f"{where}: {error.problems[0]}") from None
        return _Asking(listener, found)

    def _mechanism(
        self, values: Mapping[str, str], listener: Listener, name: str, module: LoginModule
    ) -> Mechanism:
        """Raises ConfigError."""
        wanted = MODULES.get(name, scram.MODULE)
        if module.name != wanted:
            raise ConfigError(f"the login module of {name} is {wanted}.")
        if name == plain.NAME:
            return PlainUsers(module)
        if name == oauthbearer.NAME:
            return self._oauthbearer(values, listener, module)
        if name == kerberos.NAME:
            return Kerberos(LoginSettings(values, listener.name, name), module)
        if self._unknown_users is None:
            self._unknown_users = UnknownUsers(self._secret())
        return ScramUsers(name, self._state, self._unknown_users, self._tokens)

    def _oauthbearer(
        self, values: Mapping[str, str], listener: Listener, module: LoginModule
    ) -> Mechanism:
        """Raises ConfigError."""
        settings = LoginSettings(values, listener.name, oauthbearer.NAME)
        if settings.text(HANDLER) in SIGNED_HANDLERS:
            from barnabas.security.signed_tokens import SignedTokens

            signed = SignedTokens(settings, listener, module.options, self._system)
            return oauthbearer.OAuthBearer(signed.validate)
        from barnabas.security.unsigned_tokens import UNSAFE, UnsignedTokens

        if module.options.get(UNSAFE, "").lower() != "true":
            raise ConfigError(
                "without a validator the broker would accept unsigned tokens, and each client could"
                " log in as any user."
                f" Set {settings.name_of_mechanism(HANDLER)}={SIGNED_HANDLERS[0]},"
                f' or {UNSAFE}="true" in this line for a trial.'
            )
        return oauthbearer.OAuthBearer(UnsignedTokens(module.options, self._system).validate)

    @property
    def listeners(self) -> tuple[str, ...]:
        return tuple(self._listeners)

    def mechanisms(self, listener: str) -> tuple[str, ...]:
        return tuple(self._mechanisms(listener))

    def _mechanisms(self, listener: str) -> Mapping[str, Mechanism]:
        asking = self._listeners.get(listener)
        return {} if asking is None else asking.mechanisms

    def step(self, listener: str, session: Session, token: bytes) -> Answer:
        """Raises LoginFailed."""
        if session.is_reauth and session.before != session.mechanism:
            raise LoginFailed(
                f"SASL mechanism '{session.mechanism}' requested by client is not supported for"
                f" re-authentication of mechanism '{session.before}'"
            )
        mechanism = self._mechanisms(listener).get(session.mechanism)
        if mechanism is None:
            raise LoginFailed("Authentication failed")
        try:
            return mechanism.step(session.exchange, token)
        except InvalidCredentials:
            raise InvalidCredentials(session.mechanism, again=session.is_reauth) from None

    def lifetime_ms(
        self, listener: str, mechanism: str, expires_ms: int | None, now_ms: int
    ) -> int | None:
        """How long a login lasts: until its credentials expire, or connections.max.reauth.ms if
        that is shorter. None: it does not end. Kafka: SaslServerAuthenticator.ReauthInfo."""
        most = LoginSettings(self._values(), listener, mechanism).integer(REAUTHENTICATION)
        found = [] if expires_ms is None else [expires_ms - now_ms]
        if most > 0:
            found.append(most)
        return max(0, min(found)) if found else None

    def _module(
        self, values: Mapping[str, str], listener: str, mechanism: str
    ) -> tuple[str, LoginModule]:
        """The one module of a mechanism, and where it stands. Raises ConfigError."""
        name = jaas_name(listener, mechanism)
        text = values.get(name)
        if text is not None:
            where = name
            try:
                modules = jaas.parse_line(text)
            except ConfigError as error:
                raise ConfigError(f"{name}: {error.problems[0]}") from None
        else:
            where, modules = self._modules_of_file(listener, mechanism)
        if len(modules) != 1:
            raise ConfigError(f"{where}: it has {len(modules)} login modules, and must have one.")
        return where, modules[0]

    def _modules_of_file(self, listener: str, mechanism: str) -> tuple[str, list[LoginModule]]:
        path, sections = jaas.sections_of_process(self._environ)
        for section in jaas.server_sections(listener):
            if section in sections:
                return f"{section} in {path}", sections[section]
        raise ConfigError(
            f"{jaas_name(listener, mechanism)} is not set, and no JAAS file (KAFKA_OPTS) has a"
            f" section KafkaServer: no client could log in with {mechanism}. Set it, or leave"
            f" {mechanism} out of sasl.enabled.mechanisms."
        )


def _kept(asking: _Asking, names: Iterable[str]) -> dict[str, Mechanism]:
    """The mechanisms that altered settings do not touch."""
    return {
        mechanism: made
        for mechanism, made in asking.mechanisms.items()
        if not are_of(names, asking.listener.name, mechanism)
    }
