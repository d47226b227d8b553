"""Bound -> Serving: leads this node's partitions, and starts coordinators and request handlers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.api import contexts, k10_find_coordinator
from barnabas.api.dispatch import CloseConnection, Dispatcher
from barnabas.api.response_cache import forgetting, storing
from barnabas.api.table import advertised_versions
from barnabas.cext.network.request_queue import CERTIFICATE, RAW_TOKENS, PendingRequest
from barnabas.config import TopicConfig
from barnabas.config.memory import budget
from barnabas.config.settings import MEMORY_LIMIT_BYTES
from barnabas.controller import config_changes
from barnabas.controller.auto_creation import AutoTopicCreation
from barnabas.controller.config_changes import ConfigChanges
from barnabas.controller.controller_role import ClusterRole, ControllerRole, SingleNodeRole
from barnabas.controller.entity_configs import EntityConfigs
from barnabas.controller.features import Features
from barnabas.controller.partition_growth import PartitionGrowth
from barnabas.controller.single_node import lead_all
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.controller.topics import TopicController
from barnabas.coordinator.coordinators import Coordinators, Dependencies
from barnabas.coordinator.groups.tree_offsets import TreeOffsets
from barnabas.coordinator.rounds import rounds_on_exit
from barnabas.coordinator.timers import Timers
from barnabas.coordinator.transactions.producer_ids import ProducerIds
from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.producer_ids import allocate_block
from barnabas.server.decode_pool import decode_threads
from barnabas.server.down_conversion import down_conversion_threads
from barnabas.server.request_handlers import ANSWERED_LATER, Answer, RequestHandlers
from barnabas.stages.bound import Bound, build_principal
from barnabas.stages.configured import CannotStart
from barnabas.stages.loaded import Loaded
from barnabas.stages.opened import Opened
from barnabas.storage.partition_dirs import ADDRESSES
from barnabas.telemetry.network_events import BadRequests
from barnabas.telemetry.request_errors import RequestErrors

if TYPE_CHECKING:
    from barnabas.controller.client_quotas import ClientQuotas
    from barnabas.controller.controller import Controller
    from barnabas.controller.elections import Elections
    from barnabas.controller.isr_requests import IsrRequests
    from barnabas.controller.reassignments import Reassignments
    from barnabas.controller.user_credentials import UserCredentials
    from barnabas.hooks.services import Services
    from barnabas.legacy07.service import Legacy07
    from barnabas.metadata.znodes import ProducerIdBlock
    from barnabas.server.alter_log_dirs import AlterLogDirs
    from barnabas.server.controlled_shutdown import ControlledShutdown
    from barnabas.server.inter_broker import InterBroker
    from barnabas.server.quota_enforcement import QuotaEnforcement, Used
    from barnabas.server.replica_fetchers import ReplicaFetchers
    from barnabas.server.replication_throttles import ReplicationThrottles


DECODE_THREADS = 2
DOWN_CONVERSION_THREADS = 2
MARKERS = "transaction-markers"  # client id
HANDLER_THREADS = "num.io.threads"
FETCHER_THREADS = "num.replica.fetchers"
HANDLERS_END_S = 5
FAILED_DELAY = "connection.failed.authentication.delay.ms"
QUOTA_PATHS = ("users/", "clients/", "ips/")
LEGACY07_KEY = -7  # cext/network/network_state.pxd


class Control(NamedTuple):
    """The objects that the controller of the cluster uses; every node has them. A single node
    seldom needs more than the role, and imports the others on first use."""

    controller_role: ControllerRole
    elections: Callable[[], Elections]
    reassignments: Callable[[], Reassignments]
    isr_requests: Callable[[], IsrRequests]
    producer_ids: Callable[[int], ProducerIdBlock]


class Administration(NamedTuple):
    """The objects that change the cluster's metadata."""

    control: Control
    topics: TopicController
    deletion: TopicDeletion
    growth: PartitionGrowth
    configs: ConfigChanges
    entities: EntityConfigs
    features: Features
    producer_ids: ProducerIds
    auto_creation: AutoTopicCreation


class Serving(NamedTuple):
    """The broker serves clients."""

    before: Bound
    administration: Administration
    coordinators: Coordinators
    controller: Controller | None  # None on an embedded store, which no other node writes to
    controlled_shutdown: ControlledShutdown | None  # None on an embedded store too
    handlers: RequestHandlers
    errors: RequestErrors
    bad_requests: BadRequests
    quotas: QuotasInForce
    log_dir_moves: Callable[[], AlterLogDirs]


def serve(before: Bound) -> Serving:
    """Loads the plugins, leads the partitions, and starts to answer requests. Raises
    UnusablePlugins, MetadataError."""
    loaded, opened, start = before.before, before.before.before, before.before.before.before
    plugins, native, undo = loaded.plugins, before.native, start.undo
    plugins.load()
    loaded.logs.choose_directory = plugins.choose_directory
    plugins.attach(loaded.replicas.topic_config, native.fetch.rewrites, opened.node_id)
    control = _elect(before)
    inter_broker = _inter_broker(before) if opened.tree.is_shared else None
    if inter_broker is not None:
        loaded.replicas.listener_names = lambda: before.reactor.listener_names
        loaded.replicas.throttles = throttles = _throttles(before)
        loaded.replicas.fetchers = _fetchers(before, inter_broker, throttles)
    _lead_partitions(before)
    administration = _administration(before, control)
    coordinators = _coordinators(before, administration, inter_broker)
    loaded.replicas.on_applied.append(plugins.apply)
    plugins.apply(opened.reader.state)
    controller = controlled_shutdown = None
    if inter_broker is not None:
        controller = _controller(before, administration, inter_broker)
        controlled_shutdown = _controlled_shutdown(
            before, administration.control, controller, inter_broker
        )
    undo.callback(start.background.stop)
    undo.callback(start.metrics.close)  # a read of metrics reads logs, so it ends first
    decoders = decode_threads(native.produce.decodes, DECODE_THREADS, plugins.intercept)
    undo.callback(decoders.stop)
    decoders.start()
    conversions = native.fetch.conversions
    conversions.memory_bytes_max = budget(conversions.memory_bytes_max, MEMORY_LIMIT_BYTES)
    converters = down_conversion_threads(conversions, DOWN_CONVERSION_THREADS)
    undo.callback(converters.stop)
    converters.start()
    errors, bad_requests = RequestErrors(), BadRequests()
    undo.callback(bad_requests.write)
    quotas = QuotasInForce(before)
    loaded.replicas.on_applied.append(quotas.apply)
    quotas.apply(opened.reader.state)
    plugins.on_reload.append(quotas.plugins_changed)
    quotas.plugins_changed()
    log_dir_moves = _log_dir_moves(before)
    handlers = _request_handlers(
        before, administration, coordinators, errors, bad_requests, quotas, log_dir_moves
    )
    plugins.serving(lambda: _plugin_services(loaded, administration, coordinators))
    undo.callback(native.fetch.stop)
    undo.callback(handlers.join, HANDLERS_END_S)
    undo.callback(before.reactor.stop)
    undo.callback(coordinators.groups.stop)  # before the reactor, which still sends the answers
    handlers.start()
    native.fetch.start(directory_count=len(opened.directories))
    before.reactor.start()
    return Serving(
        before,
        administration,
        coordinators,
        controller,
        controlled_shutdown,
        handlers,
        errors,
        bad_requests,
        quotas,
        log_dir_moves,
    )


def _log_dir_moves(node: Bound) -> Callable[[], AlterLogDirs]:
    """Returns a function whose first call makes the moves between log directories and starts their
    thread: most brokers never need them."""
    loaded, opened, start = node.before, node.before.before, node.before.before.before
    lock = threading.Lock()  # `cache` alone may make two

    @cache
    def made() -> AlterLogDirs:
        from barnabas.server.alter_log_dirs import AlterLogDirs
        from barnabas.server.replication_throttles import alter_log_dirs_throttle

        moves = AlterLogDirs(
            loaded.replicas,
            loaded.table,
            loaded.logs,
            loaded.checkpoints,
            alter_log_dirs_throttle(opened.dynamic),
            start.system.monotonic_ns,
            lambda: start.undo.has_begun,
        )
        moves.wake = start.background.add("alter-log-dirs", moves.run, moves.period_ms)
        return moves

    def one() -> AlterLogDirs:
        with lock:
            return made()

    return one


def _elect(node: Bound) -> Control:
    """Elects leaders for the partitions that need one, if this node is the controller."""
    opened = node.before.before
    tree, reader = opened.tree, opened.reader

    @cache
    def elections() -> Elections:
        from barnabas.controller.elections import Elections

        def topic_config(name: str) -> TopicConfig:
            return TopicConfig(reader.state.config("topics", name), opened.dynamic)

        return Elections(tree, reader, topic_config)

    @cache
    def reassignments() -> Reassignments:
        from barnabas.controller.reassignments import Reassignments

        return Reassignments(tree, reader)

    @cache
    def isr_requests() -> IsrRequests:
        from barnabas.controller.isr_requests import IsrRequests

        return IsrRequests(tree, reader)

    made = elections, reassignments, isr_requests, partial(allocate_block, tree)
    if not tree.is_shared:
        lead_all(tree, reader, opened.node_id, is_unclean=not opened.was_clean)
        return Control(SingleNodeRole(), *made)
    controller_role = ClusterRole(tree, reader, opened.membership, opened.node_id)
    check = controller_role.fence()
    if check is not None:
        elections().run(check)
    return Control(controller_role, *made)


def _lead_partitions(node: Bound) -> None:
    loaded, opened, start = node.before, node.before.before, node.before.before.before
    start.undo.callback(loaded.replicas.stop)
    loaded.replicas.begin(opened.reader)
    opened.reader.on_change(forgetting(node.native.response_cache, loaded.replicas.apply))


def _administration(node: Bound, control: Control) -> Administration:
    loaded, opened = node.before, node.before.before
    tree, reader, dynamic, plugins = opened.tree, opened.reader, opened.dynamic, loaded.plugins
    controller_role = control.controller_role
    deletion = TopicDeletion(tree, reader, controller_role, loaded.checkpoints.write_all)
    deletion.finish()
    topics = TopicController(
        tree,
        reader,
        controller_role,
        dynamic,
        _random_below,
        os.urandom,
        plugins.place,
        plugins.check_topic,
    )
    features = Features(tree, opened.node_id)
    features.apply(reader.state)
    loaded.replicas.on_applied.append(features.apply)
    return Administration(
        control=control,
        topics=topics,
        deletion=deletion,
        growth=PartitionGrowth(tree, reader, controller_role, plugins.place),
        configs=ConfigChanges(tree, reader, dynamic, opened.passwords, plugins.check_config_change),
        entities=EntityConfigs(tree, reader, dynamic),
        features=features,
        producer_ids=ProducerIds(tree, opened.node_id),
        auto_creation=AutoTopicCreation(
            topics, dynamic, lambda: reader.state, node.before.before.before.system.monotonic_ns
        ),
    )


def _coordinators(
    node: Bound, administration: Administration, inter_broker: InterBroker | None
) -> Coordinators:
    loaded, opened, start = node.before, node.before.before, node.before.before.before
    timers = Timers(start.clock)
    given = Dependencies(
        node_id=opened.node_id,
        config=start.config,
        dynamic=opened.dynamic,
        system=start.system,
        timers=timers,
        table=loaded.table,
        reader=opened.reader,
        replicas=loaded.replicas,
        topics=administration.topics,
        features=administration.features,
        entities=administration.entities,
        producer_ids=administration.producer_ids,
        assign=loaded.plugins.assign,
        native=node.native.coordinators,
        next_closed=node.reactor.next_closed,
        connect=None if inter_broker is None else partial(inter_broker.connect, client_id=MARKERS),
        was_clean=opened.was_clean,
    )
    coordinators = Coordinators(given)
    start.undo.callback(coordinators.stop)
    start.undo.callback(administration.auto_creation.stop)
    start.undo.callback(timers.stop)
    coordinators.follow()
    return coordinators


def _inter_broker(node: Bound) -> InterBroker:
    """Returns the connections to other brokers. Raises CannotStart when the settings of the
    inter-broker listener do not allow a connection."""
    from barnabas.client.failures import BadSetting
    from barnabas.server.inter_broker import InterBroker

    opened, start = node.before.before, node.before.before.before
    name = start.config.inter_broker_listener_name
    protocol = next(row.protocol for row in start.listeners.bound if row.name == name)
    reader, timeout_ms = opened.reader, start.config.integer("request.timeout.ms")
    dynamic = opened.dynamic
    try:
        made = InterBroker(
            name, protocol, dynamic.texts_in_force, lambda: reader.state, timeout_ms / 1000
        )
    except BadSetting as error:
        raise CannotStart(f"connections to other brokers by the listener {name}: {error}") from None
    dynamic.checks.append(lambda layers, names: made.problems(layers.texts(), names))
    dynamic.on_change.append(made.changed)
    return made


def _throttles(node: Bound) -> ReplicationThrottles:
    from barnabas.server.replication_throttles import ReplicationThrottles

    opened = node.before.before
    throttles = ReplicationThrottles(opened.node_id, opened.dynamic)
    node.native.fetch.throttle_followers(throttles.leader)
    return throttles


def _fetchers(
    node: Bound, inter_broker: InterBroker, throttles: ReplicationThrottles
) -> ReplicaFetchers:
    from barnabas.server.replica_fetchers import (
        Brokers,
        FetchSettings,
        Listeners,
        ReplicaFetchers,
    )

    loaded, opened = node.before, node.before.before

    def own_epoch() -> int:
        own = opened.reader.state.brokers.get(opened.node_id)
        return -1 if own is None else own.epoch

    fetchers = ReplicaFetchers(
        opened.node_id,
        loaded.table,
        Brokers(inter_broker.address, lambda: inter_broker.security, own_epoch),
        FetchSettings.of(opened.dynamic),
        Listeners(truncated=lambda _topic, _index: loaded.checkpoints.write_all()),
        opened.before.system.monotonic_ns,
        throttles.follower,
    )
    opened.before.undo.callback(fetchers.stop)

    def count_changed(names: frozenset[str]) -> None:
        if FETCHER_THREADS in names:
            fetchers.resize(opened.dynamic.integer(FETCHER_THREADS))

    opened.dynamic.on_change.append(count_changed)
    return fetchers


def _controlled_shutdown(
    node: Bound, control: Control, controller: Controller, inter_broker: InterBroker
) -> ControlledShutdown:
    from barnabas.server.controlled_shutdown import ControlledShutdown

    loaded, opened, start = node.before, node.before.before, node.before.before.before
    reader, fetchers = opened.reader, loaded.replicas.fetchers
    assert fetchers is not None

    def leave(broker_id: int) -> list[tuple[str, int]] | None:
        check = control.controller_role.fence()
        return None if check is None else control.elections().leave(check, broker_id)

    return ControlledShutdown(
        opened.node_id,
        start.config,
        lambda: reader.state,
        leave,
        loaded.replicas.led_with_others,
        controller.has_told,
        inter_broker,
        fetchers.stop,
        time.sleep,
    )


def _controller(
    node: Bound, administration: Administration, inter_broker: InterBroker
) -> Controller:
    """Starts the controller's thread, which reacts to changes that other nodes or tools make in a
    shared tree."""
    from barnabas.controller.channel_manager import ControllerChannelManager
    from barnabas.controller.controller import Controller

    loaded, opened, start = node.before, node.before.before, node.before.before.before
    connect = partial(
        inter_broker.connect,
        client_id="controller",
        answer_timeout_s=start.config.integer("controller.socket.timeout.ms") / 1000,
    )
    controller = Controller(
        opened.tree,
        opened.reader,
        opened.membership,
        administration.control.controller_role,
        administration.deletion,
        administration.control.elections(),
        administration.control.reassignments(),
        ControllerChannelManager(opened.node_id, connect),
        opened.node_id,
        loaded.replicas.offline_replicas,
        lambda: opened.dynamic.boolean("delete.topic.enable"),
        opened.topic_id_on_disk,
        os.urandom,
        start.system.monotonic_ns,
    )
    follower = config_changes.follower(opened.dynamic, opened.reader.state, opened.passwords)
    loaded.replicas.on_applied.append(follower)
    loaded.replicas.on_applied.append(controller.apply)
    start.undo.callback(controller.stop)
    controller.start()
    return controller


def _request_handlers(
    node: Bound,
    administration: Administration,
    coordinators: Coordinators,
    errors: RequestErrors,
    bad_requests: BadRequests,
    quotas: QuotasInForce,
    log_dir_moves: Callable[[], AlterLogDirs],
) -> RequestHandlers:
    opened, start = node.before.before, node.before.before.before
    login = contexts.LoginContext(
        node.logins,
        start.clock,
        coordinators.timers.after,
        start.config.integer(FAILED_DELAY),
        bad_requests.add,
        build_principal(node.before),
    )
    release = start.config.text("api.versions.of")
    api_versions = advertised_versions(node.apis, release)
    made = _contexts(node, administration, coordinators, api_versions, login, quotas, log_dir_moves)
    administration.features.on_change += [
        node.native.response_cache.forget,
        coordinators.transactions.follow_version,
    ]
    coordinators.transactions.follow_version()  # the level may have changed since it was made
    if opened.authorizer is not None:
        opened.authorizer.on_change.append(node.native.response_cache.forget)
    count = errors.count if start.metrics.is_open else None
    dispatcher = Dispatcher(
        {type(context): context for context in made}, node.apis, count, opened.authorizer
    )
    dynamic = opened.dynamic
    legacy07 = _legacy07(node, administration, bad_requests, quotas)
    handlers = RequestHandlers(
        node.reactor,
        _answering(node, dispatcher, bad_requests, login, legacy07),
        dynamic.integer(HANDLER_THREADS),
        start.gate,
        quotas.meter,
        rounds_on_exit,
    )

    def threads_changed(names: frozenset[str]) -> None:
        if HANDLER_THREADS in names:
            handlers.resize(dynamic.integer(HANDLER_THREADS))

    dynamic.on_change.append(threads_changed)
    return handlers


def _legacy07(
    node: Bound, administration: Administration, bad_requests: BadRequests, quotas: QuotasInForce
) -> Callable[[], Legacy07]:
    """Returns a function whose first call makes what answers clients of Kafka 0.7: most brokers
    have none. It is also made when the start of a log with addresses of 0.7 moves."""
    loaded, opened, start = node.before, node.before.before, node.before.before.before
    lock = threading.Lock()  # `cache` alone may make two

    @cache
    def made() -> Legacy07:
        from barnabas.legacy07.service import Legacy07

        return Legacy07(
            opened.node_id,
            loaded.replicas,
            loaded.logs,
            lambda: opened.reader.state,
            opened.dynamic,
            opened.authorizer,
            administration.auto_creation,
            quotas.charge_later,
            quotas.meter,
            quotas.fetched,
            bad_requests.add,
            start.system.wall_ms,
            lambda: start.undo.has_begun,
        )

    def one() -> Legacy07:
        with lock:
            return made()

    def start_moves(topic: str, partition: int, offset: int) -> None:
        kept = loaded.logs.get(topic, partition)
        if kept is not None and (kept.directory / ADDRESSES).exists():
            one().start_moves(topic, partition, offset)

    def stop() -> None:
        if made.cache_info().currsize:
            made().stop()

    loaded.logs.start_moves = start_moves
    start.undo.callback(stop)
    return one


def _contexts(
    node: Bound,
    administration: Administration,
    coordinators: Coordinators,
    api_versions: tuple[tuple[int, int, int], ...],
    login: contexts.LoginContext,
    quotas: QuotasInForce,
    log_dir_moves: Callable[[], AlterLogDirs],
) -> tuple[object, ...]:
    """Returns the contexts: each has the objects that one family of handlers may use."""
    loaded, opened, start = node.before, node.before.before, node.before.before.before
    config, dynamic, reader = start.config, opened.dynamic, opened.reader
    replicas, groups, wall_ms = loaded.replicas, coordinators.groups, start.system.wall_ms
    topics, features = administration.topics, administration.features

    def cluster() -> ClusterState:
        return reader.state

    def config_of_topic(overrides: Mapping[str, str]) -> TopicConfig:
        return TopicConfig(overrides, dynamic)

    return (
        contexts.NoContext(),
        login,
        contexts.UserContext(cluster, _user_credentials(opened)),
        contexts.QuotaContext(cluster, _client_quotas(opened)),
        contexts.TokenContext(node.tokens),
        contexts.VersionContext(api_versions, features),
        contexts.FeatureContext(features),
        contexts.MetadataContext(
            opened.node_id,
            opened.cluster_id,
            cluster,
            config,
            dynamic,
            administration.auto_creation,
            replicas,
            lambda: opened.tree.last_commit,
            wall_ms,
            quotas.charge_later,
        ),
        contexts.ControllerContext(cluster, *administration.control),
        contexts.ReplicaContext(
            opened.node_id, cluster, reader.apply_updates, reader.refresh_topics, replicas
        ),
        contexts.FindContext(
            cluster,
            {
                k10_find_coordinator.GROUP: coordinators.group_log,
                k10_find_coordinator.TRANSACTION: coordinators.transaction_log,
                k10_find_coordinator.SHARE: coordinators.share_log,
            },
        ),
        contexts.TopicContext(
            cluster,
            dynamic,
            administration.control.controller_role,
            topics,
            administration.deletion,
            administration.growth,
            config_of_topic,
            quotas.charge,
        ),
        contexts.ConfigContext(
            opened.node_id,
            cluster,
            dynamic,
            administration.configs,
            administration.entities,
            config_of_topic,
        ),
        contexts.PartitionContext(
            cluster,
            config,
            replicas,
            loaded.logs,
            loaded.checkpoints,
            config_of_topic,
            log_dir_moves,
        ),
        contexts.GroupContext(
            cluster,
            config,
            features,
            groups,
            coordinators.group_administration,
            TreeOffsets(opened.tree),
            wall_ms,
        ),
        contexts.StreamsContext(
            cluster,
            config,
            features,
            coordinators.streams,
            administration.auto_creation,
            quotas.charge_later,
        ),
        contexts.TransactionContext(
            cluster,
            replicas,
            groups,
            administration.producer_ids,
            coordinators.transactions,
            coordinators.transaction_administration,
            coordinators.markers,
            wall_ms,
        ),
        contexts.ShareContext(cluster, coordinators.share),
    )


def _plugin_services(
    loaded: Loaded, administration: Administration, coordinators: Coordinators
) -> Services:
    from barnabas.controller.plugin_services import PluginServices

    reader, authorizer = loaded.before.reader, loaded.before.authorizer
    return PluginServices(
        loaded.replicas,
        administration.topics,
        lambda: reader.state,
        loaded.checkpoints.write_log_starts,
        loaded.before.before.system.wall_ms,
        coordinators.groups.committed_of_partition,
        lambda: None if authorizer is None else authorizer.rules_changed(),
    )


def _random_below(limit: int) -> int:
    """Returns a random number from 0 to `limit` - 1. It is uniform enough for the choice of a
    broker, and does not import `secrets` and OpenSSL."""
    return int.from_bytes(os.urandom(8), "big") % limit


def _user_credentials(opened: Opened) -> Callable[[], UserCredentials]:
    @cache
    def made() -> UserCredentials:
        from barnabas.controller.user_credentials import UserCredentials  # imports hashes

        return UserCredentials(opened.tree, opened.reader)

    return made


def _uncounted(_count: int) -> None:
    """Counts nothing, because the broker had no quotas when the request came."""


class QuotasInForce:
    """The quotas in force. Most brokers have no quotas, and do not import their modules."""

    def __init__(self, node: Bound) -> None:
        self._node = node
        self._made: QuotaEnforcement | None = None

    def apply(self, state: ClusterState) -> None:
        """Applies the quotas of a new state of the cluster."""
        if self._made is None and any(path.startswith(QUOTA_PATHS) for path in state.configs):
            self._make()
        if self._made is not None:
            self._made.apply(state)

    def plugins_changed(self) -> None:
        """Applies the quotas of the plugins, after they were loaded or reloaded."""
        if self._made is None and self._node.before.plugins.limit_clients:
            self._make()
        elif self._made is not None:
            self._made.refresh()

    def _make(self) -> None:
        from barnabas.server.quota_enforcement import QuotaEnforcement

        loaded, start = self._node.before, self._node.before.before.before
        self._made = QuotaEnforcement(
            self._node.reactor, start.config, start.system.monotonic_ns, loaded.plugins
        )
        self._made.refresh()

    def meter(self, pending: PendingRequest) -> None:
        """Gives the connection of a request the sensors of its client's quotas."""
        if self._made is not None:
            self._made.meter(pending)

    def fetched(self, pending: PendingRequest, size_bytes: int) -> None:
        """Counts bytes that Python answers to a fetch against the quota of its client."""
        if self._made is not None:
            self._made.fetched(pending, size_bytes)

    def used(self) -> Iterable[Used]:
        """Returns what clients use now, for the metrics."""
        return () if self._made is None else self._made.used()

    def charge_later(self, pending: PendingRequest) -> Callable[[int], object]:
        """Returns the function that counts created or deleted partitions when the request is
        answered (KIP-599). It counts nothing if the broker had no quotas when the request came."""
        return _uncounted if self._made is None else self._made.charge_later(pending)

    def charge(self, pending: PendingRequest, is_strict: bool, count: int) -> None:
        """Counts `count` created or deleted partitions (KIP-599). Raises ThrottlingQuotaExceeded if
        `is_strict` and the quota is exceeded."""
        if self._made is not None:
            self._made.charge(pending, is_strict, count)


def _client_quotas(opened: Opened) -> Callable[[], ClientQuotas]:
    @cache
    def made() -> ClientQuotas:
        from barnabas.controller.client_quotas import ClientQuotas  # few brokers need it

        return ClientQuotas(opened.tree, opened.reader)

    return made


def _answering(
    node: Bound,
    dispatcher: Dispatcher,
    bad_requests: BadRequests,
    login: contexts.LoginContext,
    legacy07: Callable[[], Legacy07],
) -> Answer:
    cache, certificates, decisions = node.native.response_cache, node.certificates, node.decisions
    cached = frozenset(key for key, _first, _last in cache.apis)

    def answer(pending: PendingRequest) -> bytes | None:
        if pending.login == RAW_TOKENS:
            from barnabas.api.k36_sasl_authenticate import answer_raw  # few brokers need it

            frame = answer_raw(pending, login)
            return ANSWERED_LATER if frame is None else frame
        if pending.login == CERTIFICATE:
            certificates().log_in(pending, bad_requests.add)
            return ANSWERED_LATER
        if pending.api_key == LEGACY07_KEY:
            legacy07().take(pending)
            return ANSWERED_LATER
        if decisions is not None and pending.questions:
            decisions.take(pending)
            return ANSWERED_LATER
        store = storing(cache, pending) if pending.api_key in cached else None
        try:
            frame = dispatcher.answer(pending, store)
            return ANSWERED_LATER if frame is None else frame
        except CloseConnection as error:
            bad_requests.add(*pending.peer, str(error))
            return None

    return answer
