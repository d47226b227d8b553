"""Loaded -> Bound: binds the listeners, and registers this node with their addresses."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.api.response_cache import response_cache
from barnabas.api.table import Api, api_table
from barnabas.cext.fetch.fetch import FetchHandler
from barnabas.cext.fetch.sessions import FetchSessions
from barnabas.cext.network.reactor import LIMITS, Reactor
from barnabas.cext.network.response_cache import ResponseCache
from barnabas.cext.produce.produce import ProduceHandler
from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.access import AUTHORIZER, BUILDER, plugin_of
from barnabas.config.dynamic_config import listeners_of
from barnabas.config.layers import Layers
from barnabas.config.listeners import LEGACY07, Listener
from barnabas.config.logins import receive_bytes_max
from barnabas.config.replica_selector import SELECTOR, selects_by_rack
from barnabas.config.tls import PROTOCOLS
from barnabas.coordinator.coordinators import CoordinatorHandlers, coordinator_handlers
from barnabas.server.listener_changes import ListenerChanges
from barnabas.server.listeners import advertised
from barnabas.server.network_settings import THREADS, NetworkSettings, network_threads
from barnabas.server.registration import warn_of_mixed_racks
from barnabas.stages.configured import CannotStart
from barnabas.stages.loaded import Loaded
from barnabas.wire.api_keys import api_keys

if TYPE_CHECKING:
    from barnabas.cext.network.tls import TlsContext
    from barnabas.controller.delegation_tokens import DelegationTokenChanges
    from barnabas.security.certificates import Certificates
    from barnabas.security.decisions import Decisions
    from barnabas.security.logins import Logins
    from barnabas.security.principal import BuildPrincipal
    from barnabas.tls.listener_tls import ListenersTls

FILES_LOOK_MS = 1000
TOKEN_KEY, FORMER_TOKEN_KEY = "delegation.token.secret.key", "delegation.token.master.key"
VERIFICATION = "transaction.partition.verification.enable"


class NativeHandlers(NamedTuple):
    """The handlers that answer requests on the network threads."""

    produce: ProduceHandler
    fetch: FetchHandler
    response_cache: ResponseCache
    coordinators: CoordinatorHandlers

    @property
    def all(self) -> list[Any]:
        return [self.produce, self.fetch, self.response_cache, *self.coordinators.all]


class Bound(NamedTuple):
    """Clients can connect; the broker does not read from their connections yet."""

    before: Loaded
    sessions: FetchSessions
    native: NativeHandlers
    apis: Mapping[int, Api]  # by API key
    reactor: Reactor
    logins: Callable[[], Logins]  # made for the first SASL listener
    tokens: Callable[[], DelegationTokenChanges | None]  # None without a secret key
    tls: Callable[[], ListenersTls]  # made for the first SSL or SASL_SSL listener
    certificates: Callable[[], Certificates]  # made for the first SSL listener
    decisions: Decisions | None  # None: no authorizer is configured


def bind_listeners(before: Loaded) -> Bound:
    """Binds the listeners and registers this node. Raises CannotStart when an address or a setting
    is not usable, UnusableDirectory when another live node has this id, and MetadataError."""
    opened, start = before.before, before.before.before
    config, dynamic, listeners = start.config, opened.dynamic, start.listeners
    sessions = FetchSessions(
        config.integer("max.incremental.fetch.session.cache.slots"),
        seed=int.from_bytes(os.urandom(8), "big"),
    )
    apis = api_table(opened.tree.is_shared, config.text("api.versions.of"))
    native = _native_handlers(before, sessions, apis)
    reactor = _new_reactor(before, native, apis)
    decisions = _decisions(before, reactor)
    settings = NetworkSettings(reactor, dynamic)
    tokens = _tokens(before)
    logins = _logins(before, tokens)
    dynamic.on_change.append(settings.changed)
    start.clock.on_move.append(reactor.look_at_timers)
    start.undo.callback(start.clock.on_move.clear)
    tls, certificates = _tls(before), _certificates(before)
    asked = dynamic.listeners
    begin_logins = partial(_begin_logins, config.values, logins, certificates)
    bind = partial(_bind, reactor, config, begin_logins, tls)
    listeners.bound = tuple(
        Listener(row.name, row.host, bind(row), row.protocol) for row in asked.bound
    )
    _begin_limits(settings, listeners.bound)
    listeners.advertised = advertised(asked.advertised, listeners.bound)
    opened.membership.begin()
    opened.reader.refresh_brokers()
    opened.reader.refresh_controller()
    warn_of_mixed_racks(opened.node_id, opened.reader.state.brokers)
    bound = Bound(
        before, sessions, native, apis, reactor, logins, tokens, tls, certificates, decisions
    )
    _follow_listeners(bound, settings)
    _follow_certificates(bound)
    _follow_logins(bound)
    return bound


def _native_handlers(
    loaded: Loaded, sessions: FetchSessions, apis: Mapping[int, Api]
) -> NativeHandlers:
    opened, start = loaded.before, loaded.before.before
    config, dynamic = start.config, opened.dynamic
    coordinators = coordinator_handlers(config, loaded.table)
    produce = ProduceHandler(loaded.table, coordinators.steps)
    produce.verifies = dynamic.boolean(VERIFICATION)

    def verification_changed(names: frozenset[str]) -> None:
        if VERIFICATION in names:
            produce.verifies = dynamic.boolean(VERIFICATION)

    dynamic.on_change.append(verification_changed)
    fetch = FetchHandler(
        loaded.table,
        sessions,
        fetch_bytes_max=config.integer("fetch.max.bytes"),
        selects_by_rack=selects_by_rack(config[SELECTOR]),
    )
    return NativeHandlers(produce, fetch, response_cache(apis), coordinators)


def _new_reactor(loaded: Loaded, native: NativeHandlers, apis: Mapping[int, Api]) -> Reactor:
    opened, start = loaded.before, loaded.before.before
    dynamic = opened.dynamic
    rows = api_keys()
    flexible_from = [-1] * (max(rows) + 1)
    for row in rows.values():
        if row.request_flexible_from is not None:
            flexible_from[row.key] = row.request_flexible_from
    reactor = Reactor(
        start.system,
        native.all,
        network_threads=network_threads(dynamic, start.config.is_set(THREADS)),
        flexible_from=flexible_from,
        limits={name: dynamic.integer(name) for name in LIMITS},
        served={row.key: (row.version_min, row.version_max) for row in apis.values()},
    )
    start.undo.callback(reactor.close)
    start.undo.callback(reactor.stop)
    return reactor


def _decisions(loaded: Loaded, reactor: Reactor) -> Decisions | None:
    """Makes the native handlers check permissions from the first connection on. Returns the
    decisions that they use; None: no authorizer is configured."""
    authorizer = loaded.before.authorizer
    if authorizer is None:
        return None
    from barnabas.security.decisions import Decisions  # few brokers need it

    start, plugins = loaded.before.before, loaded.plugins
    if plugin_of(start.config.text(AUTHORIZER)):
        authorizer.decide_first(plugins.authorize)
        plugins.on_reload.append(authorizer.rules_changed)
    made = Decisions(authorizer.authorize, start.system.monotonic_ns)
    authorizer.on_change.append(made.rules_changed)
    reactor.set_permissions(made.table)
    return made


def _tokens(loaded: Loaded) -> Callable[[], DelegationTokenChanges | None]:
    opened, start = loaded.before, loaded.before.before

    @cache
    def made() -> DelegationTokenChanges | None:
        key = start.config[TOKEN_KEY] or start.config[FORMER_TOKEN_KEY]
        if not key:
            return None
        from barnabas.controller.delegation_tokens import DelegationTokenChanges
        from barnabas.security.delegation_tokens import DelegationTokens
        from barnabas.security.unknown_users import login_secret

        secret = cache(partial(login_secret, opened.tree))
        tokens = DelegationTokens(opened.tree, str(key).encode(), secret, start.system.wall_ms)
        return DelegationTokenChanges(
            opened.tree,
            tokens,
            start.config.integer("delegation.token.max.lifetime.ms"),
            start.config.integer("delegation.token.expiry.time.ms"),
        )

    return made


def _logins(
    loaded: Loaded, tokens: Callable[[], DelegationTokenChanges | None]
) -> Callable[[], Logins]:
    opened, start = loaded.before, loaded.before.before

    @cache
    def made() -> Logins:
        # These modules import hashes, which takes 5 ms of a start.
        from barnabas.security.logins import Logins
        from barnabas.security.unknown_users import login_secret

        secret = partial(login_secret, opened.tree)
        changes = tokens()
        return Logins(
            opened.dynamic.texts_in_force,
            lambda: opened.reader.state,
            secret,
            start.system,
            None if changes is None else changes.tokens,
        )

    return made


def _tls(loaded: Loaded) -> Callable[[], ListenersTls]:
    @cache
    def made() -> ListenersTls:
        from barnabas.tls.listener_tls import ListenersTls  # imports OpenSSL; few brokers need it

        return ListenersTls(loaded.before.dynamic.texts_in_force)

    return made


def _certificates(loaded: Loaded) -> Callable[[], Certificates]:
    @cache
    def made() -> Certificates:
        from barnabas.security.certificates import Certificates  # few brokers need it

        return Certificates(loaded.before.before.config.values, build_principal(loaded))

    return made


def build_principal(loaded: Loaded) -> BuildPrincipal | None:
    """Returns the hook that builds principals; None: principal.builder.class names no plugin."""
    builder = loaded.before.before.config.text(BUILDER)
    return loaded.plugins.build_principal if plugin_of(builder) else None


def _begin_logins(
    values: Mapping[str, str],
    logins: Callable[[], Logins],
    certificates: Callable[[], Certificates],
    listener: Listener,
) -> None:
    """Prepares the authentication of a listener's clients: by SASL, or by their certificates.
    Raises ConfigError."""
    if _asks_for_login(listener):
        receive_bytes_max(values, listener.name)
        logins().add(listener)
    elif listener.protocol in PROTOCOLS:
        certificates().add(listener)


def _asks_for_login(listener: Listener) -> bool:
    return listener.protocol.startswith("SASL_")


def _transport(tls: Callable[[], ListenersTls], listener: Listener) -> TlsContext | None:
    """Returns the TLS context of a listener's connections; None: they are plaintext. Raises
    CannotStart."""
    if listener.protocol not in PROTOCOLS:
        return None
    try:
        return tls().add(listener)
    except ConfigError as error:
        raise CannotStart(" ".join(error.problems)) from None


def _bind(
    reactor: Reactor,
    config: BrokerConfig,
    begin_logins: Callable[[Listener], None],
    tls: Callable[[], ListenersTls],
    listener: Listener,
) -> int:
    """Binds a listener and returns its port. Raises CannotStart."""
    backlog = config.integer("socket.listen.backlog.size")
    try:
        begin_logins(listener)
    except ConfigError as error:
        raise CannotStart(" ".join(error.problems)) from None
    transport = _transport(tls, listener)
    login_bytes_max = receive_bytes_max(config.values, listener.name)
    try:
        return int(
            reactor.listen(
                listener.name,
                listener.host,
                listener.port,
                backlog,
                _asks_for_login(listener),
                login_bytes_max=login_bytes_max,
                transport=transport,
                legacy07=listener.name == LEGACY07,
            )
        )
    except OSError as error:
        raise CannotStart(
            f"cannot listen on {listener.host}:{listener.port}:"
            f" {error.strerror or os.strerror(error.errno or 0)}."
            f" {_remedy(error, listener)}"
        ) from error


def _remedy(error: OSError, listener: Listener) -> str:
    """Returns what to do when a listener cannot be bound."""
    another = f"--set listeners={listener.name}://{listener.host}:PORT"
    if error.errno == errno.EACCES:
        return (
            "A port below 1024 needs the capability CAP_NET_BIND_SERVICE (docs/service.md); or take"
            f" another one: {another}"
        )
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return (
            "This host does not have the address: correct `listeners`; the address that clients use"
            " is `advertised.listeners`."
        )
    return f"Stop the process that uses the port, or take another one: {another}"


def _unbind(node: Bound, listener: Listener) -> None:
    """Closes a listener, and releases its TLS context and its login settings."""
    node.reactor.unlisten(listener.name)
    if listener.protocol in PROTOCOLS:
        node.tls().forget(listener.name)
    if _asks_for_login(listener):
        node.logins().forget(listener.name)


def _begin_limits(settings: NetworkSettings, bound: tuple[Listener, ...]) -> None:
    try:
        settings.begin(listener.name for listener in bound)
    except OSError as error:
        raise CannotStart(
            f"max.connections.per.ip.overrides: unknown host: {error.strerror}."
            " Use its address, or correct the name."
        ) from error


def _follow_listeners(node: Bound, settings: NetworkSettings) -> None:
    """Makes the reactor follow changes of the setting `listeners` from now on."""
    opened, start = node.before.before, node.before.before.before
    config, listeners, dynamic = start.config, start.listeners, opened.dynamic
    begin_logins = partial(_begin_logins, config.values, node.logins, node.certificates)

    def announce(bound: tuple[Listener, ...], advertised: tuple[Listener, ...]) -> None:
        listeners.bound, listeners.advertised = bound, advertised
        settings.listen(listener.name for listener in bound)
        opened.membership.announce_again()
        opened.reader.refresh_brokers()

    changes = ListenerChanges(
        dynamic,
        listeners.bound,
        partial(_bind, node.reactor, config, begin_logins, node.tls),
        partial(_unbind, node),
        announce,
        partial(_listener_problems, node.tls, node.logins, node.certificates),
    )
    dynamic.checks.append(changes.check)
    dynamic.on_change.append(changes.changed)


def _listener_problems(
    tls: Callable[[], ListenersTls],
    logins: Callable[[], Logins],
    certificates: Callable[[], Certificates],
    listener: Listener,
    layers: Layers,
) -> list[str]:
    """Returns why a listener cannot be added: errors in its settings of logins, certificates or
    TLS."""
    values = layers.texts()
    problems = _login_problems(logins, certificates, listener, values)
    if listener.protocol in PROTOCOLS:
        problems += tls().problems(listener, values)
    return problems


def _login_problems(
    logins: Callable[[], Logins],
    certificates: Callable[[], Certificates],
    listener: Listener,
    values: Mapping[str, str],
) -> list[str]:
    if not _asks_for_login(listener):
        return certificates().problems(listener) if listener.protocol in PROTOCOLS else []
    try:
        receive_bytes_max(values, listener.name)
    except ConfigError as error:
        return error.problems
    return logins().problems(listener, values)


def _follow_certificates(node: Bound) -> None:
    """Makes TLS listeners follow changed settings and changed files from now on."""
    opened, start = node.before.before, node.before.before.before
    dynamic, tls = opened.dynamic, node.tls

    def serves() -> bool:
        return any(row.protocol in PROTOCOLS for row in start.listeners.bound)

    @cache
    def watch_files() -> None:
        start.background.add("certificates", tls().look_at_files, lambda: FILES_LOOK_MS)

    def check(layers: Layers, names: frozenset[str]) -> list[str]:
        if not serves():
            return []
        return tls().check(layers.texts(), names, _names_bound(layers))

    def changed(names: frozenset[str]) -> None:
        if serves():
            tls().changed(names)
            watch_files()

    dynamic.checks.append(check)
    dynamic.on_change.append(changed)
    if serves():
        watch_files()


def _names_bound(layers: Layers) -> set[str]:
    return {row.name for row in listeners_of(layers).bound}


def _follow_logins(node: Bound) -> None:
    """Makes SASL listeners follow changed settings from now on."""
    opened, start = node.before.before, node.before.before.before
    dynamic, logins = opened.dynamic, node.logins

    def asks() -> bool:
        return any(_asks_for_login(row) for row in start.listeners.bound)

    def check(layers: Layers, names: frozenset[str]) -> list[str]:
        if not asks():
            return []
        return logins().check(layers.texts(), names, _names_bound(layers))

    def changed(names: frozenset[str]) -> None:
        if asks():
            logins().changed(names)

    dynamic.checks.append(check)
    dynamic.on_change.append(changed)
