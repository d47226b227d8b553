"""The principals of clients that show a certificate on an SSL listener.

After the handshake, and before the first request is read, the network thread passes the certificate
to Python as a job of its own; its connection has the login state CERTIFICATE until it has a
principal. A plugin (principal.builder.class) may make it. A subject without a name by
ssl.principal.mapping.rules closes the connection, as in Kafka (DefaultKafkaPrincipalBuilder). A
client without a certificate stays User:ANONYMOUS, and on SASL_SSL the principal is that of the
login.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from barnabas.cext.network.request_queue import OPEN, PendingRequest
from barnabas.config import ConfigError
from barnabas.config.listeners import Listener
from barnabas.config.tls import TlsSettings
from barnabas.security.failures import LoginFailed
from barnabas.security.principal import BuildPrincipal, built_principal, principal_of
from barnabas.security.principal_rules import InvalidRule, NoRule, PrincipalRules
from barnabas.tls.subject import BadName, subject_name

log = logging.getLogger("barnabas.security")

RULES = "ssl.principal.mapping.rules"


class Certificates:
    """Which principals the certificates of clients have. `values`: the settings of the broker.
    `build_principal`: asks the plugin; None without one."""

    def __init__(self, values: Mapping[str, str], build_principal: BuildPrincipal | None) -> None:
        self._values = values
        self._build_principal = build_principal
        self._rules: dict[str, PrincipalRules] = {}

    def add(self, listener: Listener) -> None:
        """Reads the rules of an SSL listener. Raises ConfigError: it must not be bound."""
        self._rules[listener.name] = self._rules_of(listener)

    def problems(self, listener: Listener) -> list[str]:
        """Why a listener that is to be added cannot have principals; nothing is kept."""
        try:
            self._rules_of(listener)
        except ConfigError as error:
            return error.problems
        return []

    def _rules_of(self, listener: Listener) -> PrincipalRules:
        settings = TlsSettings(self._values, listener)
        try:
            return PrincipalRules(str(settings.value(RULES)))
        except InvalidRule as error:
            raise ConfigError(settings.problem(RULES, f"{error}.")) from None

    def principal(self, listener: str, host: str, certificate: bytes) -> bytes:
        """`certificate`: DER. Raises LoginFailed."""
        from barnabas.cext.network.tls import TlsError, subject  # loaded by the first SSL listener

        try:
            name = subject_name(subject(certificate))
            return built_principal(
                self._build_principal,
                listener=listener,
                host=host,
                subject=name,
                certificate=certificate,
            ) or principal_of(self._rules[listener].name_of(name))
        except (BadName, NoRule, TlsError) as error:
            raise LoginFailed(str(error)) from None

    def log_in(self, pending: PendingRequest, failed: Callable[[str, int, str], object]) -> None:
        """Gives the connection of a job its principal, or closes it. `failed` gets host, port and
        why."""
        host, port = pending.peer
        try:
            principal = self.principal(pending.listener, host, pending.data)
        except LoginFailed as failure:
            failed(host, port, f"login: {failure.text}")
            pending.close()
            return
        pending.set_principal(principal)
        pending.set_login(OPEN, b"")
        pending.silent()
        name = principal.decode()
        log.info("%s:%d on %s logged in as %.200r", host, port, pending.listener, name)
