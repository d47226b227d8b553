"""The login of a connection, step by step: SaslHandshake chooses a mechanism, tokens follow.

What a login needs from one step to the next lies with its connection, as the bytes of its
`session`; nothing here grows with connections.

    after the handshake         the mechanism's name
    after SCRAM's first token   the Exchange
    after the login             empty: the connection has a principal

Next: api/k17_sasl_handshake.py and api/k36_sasl_authenticate.py, which answer the requests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.config import ConfigError
from barnabas.config.listeners import Listener
from barnabas.config.logins import jaas_name, mechanisms_of
from barnabas.config.providers import check_private
from barnabas.metadata.cluster_state import ClusterState
from barnabas.security import credentials, jaas, plain, scram
from barnabas.security.failures import LoginFailed
from barnabas.security.jaas import LoginModule
from barnabas.security.plain import PlainUsers
from barnabas.security.principal import principal_of
from barnabas.security.strangers import Strangers

JAVA_OPTION = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")
JAAS_FILE_BYTES_MAX = 1 << 20
_EXCHANGE = b"["  # what an encoded Exchange begins with; no mechanism does


class Step(NamedTuple):
    """What follows a token: the broker's token, the session, and the principal; the login is over
    when the principal is not empty."""

    token: bytes
    session: bytes
    principal: bytes = b""


class Logins:
    """Who may log in on the SASL listeners of one broker."""

    def __init__(
        self,
        values: Mapping[str, str],
        state: Callable[[], ClusterState],
        secret: Callable[[], bytes],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`values`: the broker's settings. `secret` returns login_secret(). KAFKA_OPTS of `environ`
        may name a JAAS file, as Kafka takes it."""
        self._values = values
        self._state = state
        self._environ = os.environ if environ is None else environ
        self._secret = secret
        self._strangers: Strangers | None = None
        self._plain: dict[str, PlainUsers] = {}
        self._mechanisms: dict[str, tuple[str, ...]] = {}

    def add(self, listener: Listener) -> None:
        """Reads the settings of a SASL listener. Raises ConfigError: it must not be bound; and
        MetadataError."""
        found = mechanisms_of(self._values, listener.name)
        for mechanism in found:
            where, module = self._module(listener.name, mechanism)
            wanted = plain.MODULE if mechanism == plain.NAME else scram.MODULE
            if module.name != wanted:
                raise ConfigError(f"{where}: the login module of {mechanism} is {wanted}.")
            if mechanism == plain.NAME:
                self._plain[listener.name] = PlainUsers(module)
            elif self._strangers is None:
                self._strangers = Strangers(self._secret())
        self._mechanisms[listener.name] = found

    def mechanisms(self, listener: str) -> tuple[str, ...]:
        return self._mechanisms.get(listener, ())

    def step(self, listener: str, session: bytes, token: bytes) -> Step:
        """Raises LoginFailed."""
        if session.startswith(_EXCHANGE):
            exchange = scram.Exchange.decode(session)
            return _done(exchange.user, scram.finish(exchange, token))
        mechanism = session.decode()
        if mechanism not in self.mechanisms(listener):
            raise LoginFailed("Authentication failed")
        if mechanism == plain.NAME:
            return _done(self._plain[listener].authenticate(token), b"")
        first = scram.read_first(mechanism, token)
        # The same steps for a user that exists and for one that does not.
        assert self._strangers is not None, "add() made them"
        state = self._state()
        stranger = self._strangers.credential(state, mechanism, first.user)
        known = credentials.text_of(state, first.user, mechanism)
        text = credentials.encode(stranger) if known is None else known
        exchange = scram.begin(mechanism, first, credentials.usable(text) or stranger)
        return Step(exchange.answer.encode(), exchange.encode())

    def _module(self, listener: str, mechanism: str) -> tuple[str, LoginModule]:
        """The one module of a mechanism, and where it stands. Raises ConfigError."""
        name = jaas_name(listener, mechanism)
        text = self._values.get(name)
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
        option = JAVA_OPTION.search(self._environ.get("KAFKA_OPTS", ""))
        sections = {} if option is None else _sections(option[1])
        for section in (f"{listener.lower()}.KafkaServer", "KafkaServer"):
            if section in sections:
                return f"{section} in {option and option[1]}", sections[section]
        raise ConfigError(
            f"{jaas_name(listener, mechanism)} is not set, and no JAAS file (KAFKA_OPTS) has a"
            f" section KafkaServer: nobody could log in with {mechanism}. Set it, or leave"
            f" {mechanism} out of sasl.enabled.mechanisms."
        )


def _sections(path: str) -> Mapping[str, list[LoginModule]]:
    try:
        check_private(path, "passwords")
        with open(path, encoding="utf-8") as file:
            text = file.read(JAAS_FILE_BYTES_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"the JAAS file {path} (KAFKA_OPTS) cannot be read: {reason}.") from None
    try:
        return jaas.parse_file(text)
    except ConfigError as error:
        raise ConfigError(f"the JAAS file {path} (KAFKA_OPTS): {error.problems[0]}") from None


def _done(user: str, token: bytes) -> Step:
    return Step(token, b"", principal_of(user))
