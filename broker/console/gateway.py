"""How the console talks to brokers: as a client of a listener, logged in as the console's user.

The listener is `console.listener.name`. To its own broker the console connects at the bound
address, whatever address is advertised; TLS to this address needs no check of the certificate,
because the port is this process's own. Other brokers are reached at their advertised addresses and
checked by the truststore of the listener.

On a SASL listener a user logs in with a password (PLAIN or SCRAM). A PLAINTEXT listener has no
logins: every visitor is User:ANONYMOUS. A listener SSL is refused, because it would take the
broker's certificate for that of the user.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence

from barnabas.client import CannotConnect, Cluster, Connection
from barnabas.client.security import HASHES, Sasl, Security, Tls
from barnabas.client.security_settings import parse_security
from barnabas.config import ConfigError
from barnabas.config.listeners import EVERY_ADDRESS, Listener, PrefixedSettings
from barnabas.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism

CLIENT_ID = "console"
CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S, TIMEOUT_S = 5.0, 10.0, 5.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
PASSWORDS = (*HASHES, "PLAIN")  # SCRAM first: its exchange proves that the broker knows the user


class WrongPassword(Exception):
    """The broker knows no such user, or another password."""


class _OwnTls(Tls):
    """TLS to the listener of this process."""

    def context(self) -> ssl.SSLContext:
        context = super().context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


class OwnCluster(Cluster):
    """The cluster of this broker. `bound` and `own_security`: this broker's listener; `advertised`
    returns the address that clients get for it."""

    def __init__(
        self,
        bound: tuple[str, int],
        advertised: Callable[[], tuple[str, int]],
        own_security: Security | None,
        security: Security | None,
    ) -> None:
        host, port = bound
        super().__init__(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            client_id=CLIENT_ID,
            timeout_s=TIMEOUT_S,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            answer_timeout_s=ANSWER_TIMEOUT_S,
            security=security,
        )
        self._bound, self._advertised, self._own_security = bound, advertised, own_security

    def _connect(self, host: str, port: int) -> Connection:
        is_own = (host, port) in (self._bound, self._advertised())
        to_host, to_port = self._bound if is_own else (host, port)
        return Connection(
            to_host,
            to_port,
            client_id=self.client_id,
            connect_timeout_s=self.connect_timeout_s,
            answer_timeout_s=self.answer_timeout_s,
            answer_bytes_max=ANSWER_BYTES_MAX,
            security=self._own_security if is_own else self.security,
        )


class Gateway:
    """The listener that the console uses. Raises ConfigError when it cannot."""

    def __init__(
        self,
        asked: str | None,
        bound: Callable[[], Sequence[Listener]],
        advertised: Callable[[], Sequence[Listener]],
        values: Callable[[], Mapping[str, str]],
    ) -> None:
        """`asked`: console.listener.name; `bound`, `advertised`: the listeners of the broker;
        `values`: the texts of all settings in force."""
        self._bound, self._advertised, self._values = bound, advertised, values
        names = [row.name for row in bound()]
        self.name = (asked or names[0]).upper()
        if self.name not in names:
            raise ConfigError(
                f"console.listener.name={asked}: there is no such listener. Name one of"
                f" {', '.join(names)}."
            )
        protocol = self._of(self._bound()).protocol
        if protocol == "SSL":
            raise ConfigError(
                f"console.listener.name: the listener {self.name} is SSL, and the console can"
                " log in with passwords only. Name one"
                " that is SASL_SSL, SASL_PLAINTEXT or PLAINTEXT."
            )
        self.asks_for_login = protocol.startswith("SASL")
        self._has_tls = protocol.endswith("SSL")
        if self.asks_for_login and not self.mechanisms():
            raise ConfigError(
                f"console.listener.name: the listener {self.name} has no login with a password. Add"
                " PLAIN or SCRAM-SHA-512 to sasl.enabled.mechanisms, or name another listener."
            )

    def _of(self, rows: Sequence[Listener]) -> Listener:
        for row in rows:
            if row.name == self.name:
                return row
        raise CannotConnect(f"the listener {self.name} (console.listener.name) is closed")

    def mechanisms(self) -> list[str]:
        """Returns the mechanisms with passwords that the listener has, in the order of their
        use."""
        settings = PrefixedSettings(self._values(), f"listener.name.{self.name.lower()}.")
        enabled = settings.names("sasl.enabled.mechanisms")
        return [name for name in PASSWORDS if name in enabled]

    def log_in(self, user: str, password: str) -> tuple[Sasl, Cluster]:
        """Returns the login of a user, and a client with an open connection. Raises WrongPassword,
        ClientError."""
        for mechanism in self.mechanisms():
            login = Sasl(mechanism, user, password)
            cluster = self.cluster(login)
            try:
                cluster.any_connection()
            except (SaslAuthenticationFailed, UnsupportedSaslMechanism):
                continue
            return login, cluster
        raise WrongPassword

    def cluster(self, login: Sasl | None) -> Cluster:
        """Returns a client with this login, which has no connection yet. Raises ClientError when
        the listener or its TLS settings cannot be used."""
        bound = self._of(self._bound())
        host = bound.host
        if host in EVERY_ADDRESS:
            host = "::1" if ":" in host else "127.0.0.1"
        own = others = None
        if login is not None:
            tls = self._tls() if self._has_tls else None
            others = Security(tls, login)
            own_tls = None
            if tls is not None:
                own_tls = _OwnTls(None, tls.own_chain, tls.own_key, tls.key_password)
            own = Security(own_tls, login)
        return OwnCluster((host, bound.port), self._advertised_address, own, others)

    def _advertised_address(self) -> tuple[str, int]:
        row = self._of(self._advertised())
        return row.host, row.port

    def _tls(self) -> Tls | None:
        prefix, values = f"listener.name.{self.name.lower()}.", self._values()
        given = {name: text for name, text in values.items() if name.startswith("ssl.")}
        given |= {
            name.removeprefix(prefix): text
            for name, text in values.items()
            if name.startswith(f"{prefix}ssl.")
        }
        found = parse_security(given | {"security.protocol": "SSL"})
        return None if found is None else found.tls
