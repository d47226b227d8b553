"""The plugins of one broker, as its other packages use them.

Only this file reads the plugin settings of the configuration. Nothing of barnabas.hooks
(pluggy, entry points) is imported before `plugins` names a plugin, or a topic names a policy or an
interceptor; until then every method here only tests `_registry`.

    plugins=a,b                      the plugins that run, in their order
    plugins.path                     a directory of wheels with plugins, see hooks/wheels.py
    create.topic.policy.class.name   one more plugin, which must have the hook check_new_topic
    alter.config.policy.class.name   one more plugin, which must have the hook check_config_change
    client.quota.callback.class      one more plugin, which must have the hook client_quota
    authorizer.class.name            one more plugin, which must have the hook authorize
    principal.builder.class          one more plugin, which must have the hook build_principal
    plugin.NAME.key=value            options of a plugin, see hooks/options.py
    plugins.reloads                  each change of this number loads all plugins again

Callers: Cleanup (retention, roll), Flusher, LogCleaner, the controller (placement, policies), the
log manager (directories), produce and fetch (interceptors.py), node (life cycle).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from barnabas.cext.memory.threads import start_when_allowed
from barnabas.config import DynamicConfig, TopicConfig
from barnabas.config.access import AUTHORIZER, BUILDER, QUOTAS, plugin_of
from barnabas.config.layers import Layers, value_in_force
from barnabas.config.settings import BROKER_SETTINGS
from barnabas.errors import PolicyViolation, SaslAuthenticationFailed
from barnabas.storage.log_dirs import disk_space

if TYPE_CHECKING:
    from barnabas.cext.fetch.interception import RewriteQueue
    from barnabas.cext.produce.decode import DecodeJob
    from barnabas.hooks.plugin import Plugin
    from barnabas.hooks.registry import Registry
    from barnabas.hooks.services import Services
    from barnabas.hooks.views import GroupView, LogView
    from barnabas.metadata.cluster_state import ClusterState
    from barnabas.server.interceptors import Interceptors
    from barnabas.storage.log_manager import PartitionLog

log = logging.getLogger("barnabas.hooks")

NAMES = "plugins"
RELOADS = "plugins.reloads"
PATH = "plugins.path"
PREFIX = "plugin."
HOOKS = {  # by a topic setting: the hook that the plugins in its value must have
    "retention.policy": "deletable_segments",
    "produce.interceptors": "intercept_produce",
    "fetch.interceptors": "intercept_fetch",
}
POLICIES = {  # by a setting of Kafka that names one plugin: the hook that this plugin must have
    "create.topic.policy.class.name": "check_new_topic",
    "alter.config.policy.class.name": "check_config_change",
    QUOTAS: "client_quota",
}
SECURITY = {AUTHORIZER: "authorize", BUILDER: "build_principal"}  # the same, or a class of Kafka
PLAIN_POLICIES = frozenset({"time", "size"})  # built in: these need no plugin
EVENTS_MAX = 100_000  # events partition_led and partition_lost that wait for the plugins

Event = tuple[str, dict[str, Any]]


class UnusablePlugins(Exception):
    """The plugins of the configuration cannot be used; the text says why."""


class Plugins:
    """The plugins of one broker. `add_task` (Background.add) starts the task that reports metrics,
    when the first plugin has the hook report_metrics. `metrics` returns the metrics by name."""

    def __init__(
        self,
        config: DynamicConfig,
        add_task: Callable[[str, Callable[[], object], Callable[[], float]], object],
        metrics: Callable[[], Mapping[str, float]],
        wall_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._registry: Registry | None = None
        self._interceptors: Interceptors | None = None
        self._topic_config: Callable[[str], TopicConfig] | None = None
        self._fetches: RewriteQueue | None = None
        self._add_task = add_task
        self._metrics = metrics
        self._wall_ms = wall_ms
        self._reports = False
        self._node_id = -1
        self._state: ClusterState | None = None  # the state that was applied last
        self._led: dict[tuple[str, int], int] = {}  # leader epochs that plugins have received
        self._named_by_topics: set[str] = set()
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._teller: threading.Thread | None = None
        self._services: Callable[[], Services] | None = None  # None until clients are served
        self._stopped = False
        self._wheels: list[str] = []  # what plugins.path has added to sys.path
        self.on_reload: list[Callable[[], object]] = []
        config.on_change.append(self._changed)
        config.checks.append(self._check)
        config.topic_checks.append(self.problems_of_topic)

    # -- life cycle -----------------------------------------------------------------------------

    @property
    def registry(self) -> Registry:
        """The registry of plugins; the first access imports barnabas.hooks and makes it."""
        with self._lock:
            if self._registry is None:
                from barnabas.hooks.registry import Registry

                self._registry = Registry(self._settings)
                self._registry.on_made(self._begin)
            return self._registry

    @property
    def are_used(self) -> bool:
        return self._registry is not None

    def _settings(self) -> Mapping[str, str]:
        layers = self._config.layers
        given = layers.texts()
        return {name: text for name, text in given.items() if name.startswith(PREFIX)}

    def load(self) -> None:
        """Loads the plugins of the configuration. Raises UnusablePlugins when one cannot be used.

        Dynamic plugin settings (of this broker or of the cluster) can be altered only while the
        broker runs. With such settings it logs an error for each plugin that cannot be loaded, and
        starts without it."""
        if problems := self._add_wheels():
            raise UnusablePlugins(" ".join(problems))
        names = self._names()
        if not names:
            return
        layers = self._config.layers
        if _are_ours(frozenset(layers.cluster) | frozenset(layers.broker)):
            for problem in self.registry.load_what_can(names):
                log.error(
                    "%s It does not run; the broker rejects records for topics that name it, and"
                    " what it should authorize.",
                    problem,
                )
            self._refuse_misplaced()
            return
        from barnabas.hooks.plugin import CannotLoad

        try:
            self.registry.load(names)
        except CannotLoad as error:
            raise UnusablePlugins(str(error)) from error
        for setting, hook in POLICIES.items():
            name = self._config[setting]
            reason = self.registry.problem_of(str(name), hook) if name else ""
            if reason:
                raise UnusablePlugins(f"{setting}: {reason}.")
        self._refuse_misplaced()

    def _add_wheels(self) -> list[str]:
        """Makes the wheels of plugins.path importable; returns what is wrong with them."""
        directory = str(self._config[PATH] or "")
        if not directory:
            return []
        from barnabas.hooks.plugin import CannotLoad
        from barnabas.hooks.wheels import add_wheels

        try:
            self._wheels = add_wheels(directory, self._wheels)
        except CannotLoad as error:
            return error.problems
        return []

    def _refuse_misplaced(self) -> None:
        if problems := self._misplaced(self.registry.plugins()):
            raise UnusablePlugins(" ".join(problems))

    def _misplaced(self, plugins: Iterable[Plugin]) -> list[str]:
        """Returns what is wrong with hooks that protect the broker: one that no setting names would
        protect nothing."""
        problems = []
        for plugin in plugins:
            for setting, hook in SECURITY.items():
                is_named = plugin_of(self._config[setting]) == plugin.name
                if is_named and hook not in plugin.hooks:
                    problems.append(f"{setting}: the plugin {plugin.name} lacks the hook {hook}.")
                if hook in plugin.hooks and not is_named:
                    problems.append(
                        f"plugins: {plugin.name} implements {hook}, and would not be asked. Set"
                        f" {setting}={plugin.name}, or do not load it."
                    )
            if "authorize" in plugin.hooks and plugin.is_isolated:
                problems.append(
                    f"plugin.{plugin.name}.isolation: a plugin with the hook authorize runs in the"
                    " broker (isolation=thread), so that it can take back what it has allowed."
                )
        return problems

    def _names(self, plugins: Sequence[str] | None = None) -> tuple[str, ...]:
        """Returns the names of all plugins in their order: those of the setting `plugins` (or of
        the argument, which replaces it), then those that other settings name."""
        named = self._config.names(NAMES) if plugins is None else plugins
        others = [
            *(self._config[setting] for setting in POLICIES),
            *(plugin_of(self._config[setting]) for setting in SECURITY),
        ]
        return tuple(dict.fromkeys([*named, *(str(name) for name in others if name)]))

    def attach(
        self, topic_config: Callable[[str], TopicConfig], fetches: RewriteQueue, node_id: int
    ) -> None:
        """Connects the plugins with the broker: `topic_config` returns a topic's settings by its
        name, `fetches` is the queue of the fetches that interceptors change."""
        self._topic_config = topic_config
        self._fetches = fetches
        self._node_id = node_id

    def serving(self, services: Callable[[], Services]) -> None:
        """Starts the plugins: from now on the broker serves clients. `services` makes the object
        through which plugins use the broker; it is called when the first plugin starts."""
        self._services = services
        registry = self._registry
        for plugin in registry.plugins() if registry is not None else []:
            self._begin(plugin)
        self._begin_named_by_topics()

    def stop_serving(self) -> None:
        """Stops all plugins, before the logs are closed. No plugin code runs after this."""
        self._stopped = True
        if self._teller is not None:
            self._events.put(None)
            self._teller.join()
        if self._interceptors is not None:
            self._interceptors.stop()
        if self._registry is not None:
            self._registry.close()

    def _begin(self, plugin: Plugin) -> None:
        if self._services is None or self._registry is None:
            return
        if "report_metrics" in plugin.hooks and not self._reports:
            self._reports = True
            period = "plugins.report.interval.ms"
            self._add_task("plugin-reports", self.report, lambda: self._config.integer(period))
        services = None if plugin.is_isolated else self._services()
        self._registry.tell(plugin, "broker_started", {"services": services})
        if "partition_led" not in plugin.hooks or self._state is None:
            return
        self._led = _led_in(self._state, self._node_id)
        for (topic, partition), epoch in self._led.items():
            arguments = {"topic": topic, "partition": partition, "leader_epoch": epoch}
            self._registry.tell(plugin, "partition_led", arguments)

    # -- the configuration ------------------------------------------------------------------------

    def problems_of_topic(self, overrides: Mapping[str, str]) -> list[str]:
        """Returns the errors in the plugins that a topic's settings name."""
        problems = []
        for setting in HOOKS.keys() & overrides.keys():
            for name in _listed(overrides[setting]):
                if setting == "retention.policy" and name in PLAIN_POLICIES:
                    continue
                reason = self.registry.problem_of(name, HOOKS[setting])
                if reason:
                    problems.append(f"{setting}: {reason}.")
        return problems

    def _check(self, layers: Layers, names: frozenset[str]) -> list[str]:
        if not _are_ours(names):
            return []
        from barnabas.hooks.registry import Registry

        given = layers.texts()
        wanted = value_in_force(BROKER_SETTINGS[NAMES], layers)
        assert isinstance(wanted, tuple)
        wanted = self._names(wanted)
        tried = Registry(lambda: {name: text for name, text in given.items()})
        problems = []
        if RELOADS in names:
            problems = self._add_wheels() or tried.forget_code(wanted)
        problems = problems or tried.check(wanted, self._misplaced)
        tried.close()
        return problems

    def _changed(self, names: frozenset[str]) -> None:
        if _are_ours(names) and not self._stopped:
            self.registry.reload(self._names())
            self._begin_named_by_topics()
            for listener in self.on_reload:
                listener()

    def _begin_named_by_topics(self) -> None:
        """Starts built-in plugins that `plugins` does not list as soon as a topic names them: one
        with delayed records, for example, has work before the next record arrives."""
        for name in sorted(self._named_by_topics):
            self.registry.plugin(name)

    # -- hooks -----------------------------------------------------------------------------------

    def policy_flags(self, config: TopicConfig) -> dict[str, bool]:
        """Returns the flags of a topic that the native handlers test: whether Produce or Fetch must
        call interceptors. Starts the fetch threads when they are needed for the first time."""
        produced = config.names("produce.interceptors")
        fetched = bool(config.names("fetch.interceptors"))
        self._named_by_topics.update(produced)
        if fetched and self._fetches is not None:
            self._intercepting().begin_fetches(self._fetches)
        return {
            "produce_intercepted": bool(produced),
            "fetch_intercepted": fetched,
        }

    def _intercepting(self) -> Interceptors:
        registry = self.registry
        with self._lock:
            if self._interceptors is None:
                from barnabas.server.interceptors import Interceptors

                assert self._topic_config is not None
                self._interceptors = Interceptors(registry, self._topic_config)
            return self._interceptors

    def intercept(self, job: DecodeJob, decoded: bytes) -> None:
        self._intercepting().produce(job, decoded)

    def deletable_segments(self, view: LogView, now_ms: int, policies: Sequence[str]) -> int:
        return self.registry.deletable_segments(view, now_ms, policies)

    def should_roll(self, view: Callable[[], LogView], now_ms: int) -> bool:
        registry = self._registry
        if registry is None or not registry.implements("should_roll"):
            return False
        return registry.should_roll(view(), now_ms)

    def assign(
        self, assignor: str, group: GroupView
    ) -> Mapping[str, Mapping[bytes, Collection[int]]]:
        """Returns the partitions of each member, by member id and topic id, from the plugin
        `assignor`. Raises ValueError when it cannot assign."""
        return self.registry.assign_partitions(assignor, group)

    def should_flush(
        self, row: PartitionLog, record_count: int, age_ms: int, flush_ms: int
    ) -> bool:
        registry = self._registry
        if registry is None or not registry.implements("should_flush"):
            return False
        from barnabas.hooks.views import UnflushedLog

        view = UnflushedLog(row.topic, row.partition, record_count, age_ms, flush_ms)
        return registry.should_flush(view)

    def may_compact(
        self, row: PartitionLog, dirty_bytes: int, dirty_ratio: float, is_overdue: bool
    ) -> bool:
        registry = self._registry
        if registry is None or not registry.implements("may_compact"):
            return True
        from barnabas.hooks.views import DirtyLog

        return registry.may_compact(
            DirtyLog(row.topic, row.partition, dirty_bytes, dirty_ratio, is_overdue)
        )

    def place(
        self, brokers: Sequence[int], partition_count: int, replication_factor: int, first: int
    ) -> list[tuple[int, ...]] | None:
        registry = self._registry
        if registry is None or not registry.implements("place_partitions"):
            return None
        return registry.place_partitions(brokers, partition_count, replication_factor, first)

    def choose_directory(
        self, topic: str, partition: int, directories: Mapping[str, int]
    ) -> str | None:
        """Returns the path of the log directory for a new partition; None when no plugin chooses.
        `directories`: the number of partitions by path."""
        registry = self._registry
        if registry is None or not registry.implements("choose_log_directory"):
            return None
        from barnabas.hooks.views import DirectoryView

        rows = []
        for path, count in directories.items():
            _, free_bytes = disk_space(path)
            rows.append(DirectoryView(path, count, free_bytes))
        return registry.choose_log_directory(topic, partition, rows)

    @property
    def limit_clients(self) -> bool:
        """Whether a plugin has the hook client_quota."""
        return self._registry is not None and self._registry.implements("client_quota")

    def client_quota(self, quota: str, user: str, client_id: str) -> float | None:
        """Asks the plugins for the quota of a client; None when none of them has one."""
        if self._registry is None or not self._registry.implements("client_quota"):
            return None
        return self._registry.client_quota(quota, user, client_id)

    def authorize(
        self, principal: str, host: str, operation: str, resource_type: str, name: str | None
    ) -> bool | None:
        """Asks the plugin of authorizer.class.name; False when it fails."""
        arguments = {
            "principal": principal,
            "host": host,
            "operation": operation,
            "resource_type": resource_type,
            "name": name,
        }
        return self.registry.authorize(plugin_of(self._config[AUTHORIZER]) or "", arguments)

    def build_principal(
        self,
        listener: str,
        host: str,
        mechanism: str = "",
        user: str = "",
        subject: str = "",
        certificate: bytes | None = None,
    ) -> str | None:
        """Asks the plugin of principal.builder.class: TYPE:NAME, or None. Raises
        SaslAuthenticationFailed when it refuses the connection or fails."""
        from barnabas.hooks.views import ConnectionView, Reject

        view = ConnectionView(listener, host, mechanism, user, subject, certificate)
        found = self.registry.build_principal(plugin_of(self._config[BUILDER]) or "", view)
        if isinstance(found, Reject):
            raise SaslAuthenticationFailed(found.message)
        return found

    def check_topic(
        self, name: str, partition_count: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Asks the plugins about a new topic. Raises PolicyViolation when one refuses it."""
        registry = self._registry
        if registry is None or not registry.implements("check_new_topic"):
            return
        from barnabas.hooks.views import NewTopicView

        view = NewTopicView(name, partition_count, replication_factor, dict(configs))
        reason = registry.refusal_of_topic(view)
        if reason is not None:
            raise PolicyViolation(reason)

    def check_config_change(
        self, resource_type: str, name: str, configs: Mapping[str, str | None]
    ) -> None:
        """Asks the plugins about new values of settings; None removes a value. Raises
        PolicyViolation when a plugin refuses them."""
        registry = self._registry
        if registry is None or not registry.implements("check_config_change"):
            return
        from barnabas.hooks.views import ConfigChange

        reason = registry.refusal_of_change(ConfigChange(resource_type, name, dict(configs)))
        if reason is not None:
            raise PolicyViolation(reason)

    def report(self) -> None:
        registry = self._registry
        if registry is not None and registry.implements("report_metrics"):
            arguments = {"metrics": self._metrics(), "now_ms": self._wall_ms()}
            registry.tell_all("report_metrics", arguments)

    def own_metrics(self, plugin: Plugin) -> Mapping[str, Mapping[str, float]]:
        """Returns a plugin's own metrics for /metrics; none when it fails."""
        registry = self._registry
        if registry is None or self._stopped:
            return {}
        return registry.own_metrics(plugin)

    # -- led partitions ---------------------------------------------------------------------------

    def apply(self, state: ClusterState) -> None:
        """Queues partition_led and partition_lost events for the differences between `state` and
        the previous one. Call this after the replica manager has applied `state`."""
        self._state = state
        registry = self._registry
        if registry is None or self._services is None or self._stopped:
            return
        if not registry.implements("partition_led") and not registry.implements("partition_lost"):
            return
        now = _led_in(state, self._node_id)
        before, self._led = self._led, now
        for topic, partition in before.keys() - now.keys():
            self._tell("partition_lost", {"topic": topic, "partition": partition})
        for (topic, partition), epoch in now.items():
            if before.get((topic, partition)) != epoch:
                arguments = {"topic": topic, "partition": partition, "leader_epoch": epoch}
                self._tell("partition_led", arguments)

    def _tell(self, hook: str, arguments: dict[str, Any]) -> None:
        if self._events.qsize() >= EVENTS_MAX:
            log.error(
                "event queue of plugins is full (%d events): dropped %s %s; a plugin is too slow",
                EVENTS_MAX,
                hook,
                arguments,
            )
            return
        self._events.put((hook, arguments))
        if self._teller is None:
            self._teller = start_when_allowed(self._tell_all, "plugin-events")

    def _tell_all(self) -> None:
        while (event := self._events.get()) is not None:
            hook, arguments = event
            if self._registry is not None and not self._stopped:
                self._registry.tell_all(hook, arguments)


def _led_in(state: ClusterState, node_id: int) -> dict[tuple[str, int], int]:
    return {
        (topic.name, index): row.state.leader_epoch
        for topic in state.topics.values()
        if not topic.deleting
        for index, row in topic.partitions.items()
        if row.state is not None and state.leads(node_id, row)
    }


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _are_ours(names: frozenset[str]) -> bool:
    return bool(names & {NAMES, RELOADS}) or any(name.startswith(PREFIX) for name in names)
