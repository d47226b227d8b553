"""Opens and closes the console of a broker.

    console.port             its port; -1, the default: no console
    console.host             its address
    console.listener.name    the listener whose logins and rules count (gateway.py)
    console.ssl.location     a PEM file: the key, and the chain of its certificate
    console.decoders         the encoder plugins that may decode messages

Other hosts may reach the console only over TLS and with logins. allow.unauthenticated.remote=true
permits a console without logins, which is read-only; a password is never taken without TLS from
another host.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.listeners import Listener, is_loopback

if TYPE_CHECKING:
    from barnabas.hooks.plugin import Plugin
    from barnabas.telemetry.registry import Family, Page

log = logging.getLogger("barnabas.console")

PERIOD_MS = 10_000  # between two samples of rates and lag
CLIENTS_MAX = 32
BODY_BYTES_MAX = 64 * 1024
PLUGIN_OPTIONS = "plugin."


class NoConsole(Exception):
    """A setting asks for the console, and it cannot be served. The text is one line for the
    operator."""


class Served(NamedTuple):
    """The broker whose console it is."""

    config: BrokerConfig
    node_id: int
    bound: Callable[[], Sequence[Listener]]
    advertised: Callable[[], Sequence[Listener]]
    values: Callable[[], Mapping[str, str]]  # the texts of all settings in force
    problem: Callable[[], str]
    warning: Callable[[], str]
    families: Callable[[Page], Iterable[Family]]
    plugins: Callable[[], Sequence[Plugin]]
    plugin_metrics: Callable[[Plugin], Mapping[str, Mapping[str, float]]]
    monotonic_ns: Callable[[], int]


class Console:
    """The console of one broker, and its port."""

    def __init__(self, served: Served) -> None:
        """Opens the port. Raises NoConsole."""
        try:
            from barnabas.console.site import Site
        except ModuleNotFoundError as error:
            raise NoConsole(
                f"console.port: the package {error.name} is missing. Run: pip install"
                " 'barnabas[console]', or remove the setting."
            ) from None
        from barnabas.console.gateway import Gateway
        from barnabas.console.history import History
        from barnabas.console.visit import OwnBroker
        from barnabas.hooks.direct import ClientPlugins
        from barnabas.telemetry.http_server import HttpServer
        from barnabas.telemetry.page_protection import PageTls

        config = served.config
        host, port = config.text("console.host"), config.integer("console.port")
        pem = config.get("console.ssl.location")
        options = {
            name: text for name, text in served.values().items() if name.startswith(PLUGIN_OPTIONS)
        }
        self.history = History(served.families, served.monotonic_ns)
        own = OwnBroker(
            served.node_id,
            served.problem,
            served.warning,
            served.plugins,
            served.plugin_metrics,
            self.history,
            config.names("console.decoders"),
            ClientPlugins(options),
        )
        try:
            asked = config.get("console.listener.name")
            gateway = Gateway(
                str(asked) if asked else None, served.bound, served.advertised, served.values
            )
            is_open = config.boolean("allow.unauthenticated.remote")
            _check_reach(host, bool(pem), gateway.asks_for_login, is_open)
            tls = PageTls(str(pem), "console.ssl.location", "the console") if pem else None
        except ConfigError as error:
            raise NoConsole(" ".join(error.problems)) from None
        self.site = Site(own, gateway, is_open, lambda: served.monotonic_ns() / 1e9)
        try:
            self._server = HttpServer(
                host,
                port,
                self.site.answer,
                name="console",
                log=log,
                page="the console",
                tls=tls,
                clients_max=CLIENTS_MAX,
                body_bytes_max=BODY_BYTES_MAX,
            )
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise NoConsole(
                f"no console on {host}:{port}: {reason}. Stop the process that uses the port, or"
                " use another port: --set console.port=PORT (-1: no console)"
            ) from error
        self.site.cookie = f"barnabas-console-{self._server.port}"
        self.address = self._server.address
        self._decoders = own.decoder_plugins

    def start(self) -> None:
        """Starts to answer."""
        self._server.start()

    def look(self) -> None:
        """Takes a sample of rates and lag, and ends sessions that have expired."""
        self.history.sample()
        self.site.sessions.expire()

    def close(self) -> None:
        """Ends every thread and session."""
        self._server.stop()
        self.site.close()
        self._decoders.close()


def _check_reach(host: str, has_tls: bool, has_logins: bool, is_open: bool) -> None:
    """Raises NoConsole when other hosts could read the console without a login, or a password on
    the network."""
    if is_loopback(host):
        return
    if has_logins and not has_tls:
        raise NoConsole(
            f"console.host={host}: passwords would cross the network in clear text. Set"
            " console.ssl.location, or bind 127.0.0.1."
        )
    if not has_logins and not is_open:
        raise NoConsole(
            f"console.host={host}: other hosts could read topics and messages without a login. Name"
            " a SASL listener with console.listener.name, bind 127.0.0.1, or set"
            " allow.unauthenticated.remote=true."
        )
