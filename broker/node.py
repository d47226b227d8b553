"""One node: starts in stages, and stops in the reverse order.

A start locks the log directories, opens the metadata store and checks the directories against it,
opens the logs (and recovers them after an unclean stop), binds the listeners, registers this node,
makes it leader of its partitions, and serves. Repeating tasks begin after that: they must not delay
the first answer. A stop reverses the stages reached so far and leaves the mark of a clean stop, so
that the next start needs no recovery.
Next: stages/__init__.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.memory.threads import NoThread
from barnabas.cext.network.reactor import Reactor
from barnabas.config import BrokerConfig, DynamicConfig
from barnabas.config.listeners import Listener
from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import MetadataError, MetadataTree
from barnabas.server.background import Background
from barnabas.server.clock import Clock
from barnabas.server.listeners import Listeners
from barnabas.server.plugins import Plugins, UnusablePlugins
from barnabas.server.request_handlers import Gate, RequestHandlers
from barnabas.stages.bound import Bound, bind_listeners
from barnabas.stages.configured import CannotStart, Configured, OpenTree, Undo
from barnabas.stages.loaded import Loaded, load_logs
from barnabas.stages.opened import Opened, open_stores
from barnabas.stages.running import Running, run_tasks
from barnabas.stages.serving import Serving, serve
from barnabas.storage.log_dirs import UnusableDirectory
from barnabas.telemetry.metrics_page import SHUTTING_DOWN, MetricsPage, NoMetricsPage
from barnabas.telemetry.registry import Collector

if TYPE_CHECKING:
    from barnabas.console.opening import Console

__all__ = ["CannotStart", "Node", "NotStarted", "open_embedded"]

Stage = Configured | Opened | Loaded | Bound | Serving | Running
# What keeps a node from starting; their texts name the remedy.
CAUSES = (UnusableDirectory, MetadataError, NoMetricsPage, NoThread, UnusablePlugins)
Reached = TypeVar("Reached", Opened, Loaded, Bound, Serving, Running)


class NotStarted(RuntimeError):
    """The node has not reached the stage that the caller needs."""


def open_embedded(directory: Path, wall_ms: Callable[[], int]) -> MetadataTree:
    """Opens the metadata store of a single node: an SQLite file in `directory` that is synced at
    every commit. Raises StoreUnavailable, StoreInUse, StoreCorrupt, SchemaTooNew."""
    return EmbeddedTree(directory, clock_ms=wall_ms)


class Node:
    """One broker of this process. Call `start` once, and `stop` once or more.

    A node changes nothing that belongs to the whole process, so that one process may run several
    nodes; `barnabas start` sets what exists once in a process (signals, the switch interval).
    `gate` sees every request that Python handles.
    """

    def __init__(
        self,
        config: BrokerConfig,
        system: SystemCalls | None = None,
        open_tree: OpenTree = open_embedded,
        gate: Gate | None = None,
        default_metrics_port: int = -1,
    ) -> None:
        system = system or SystemCalls()
        clock = Clock(system)
        began_ns = system.monotonic_ns()
        self._configured = Configured(
            config=config,
            system=system,
            clock=clock,
            background=Background(clock),
            listeners=Listeners(),
            metrics=MetricsPage(
                config, default_metrics_port, system.monotonic_ns, self._collectors
            ),
            open_tree=open_tree,
            gate=gate,
            began_ns=began_ns,
            undo=Undo(),
        )
        self._stage: Stage = self._configured
        self.console: Console | None = None

    def start(self) -> None:
        """Starts the node; returns when it serves clients. On an error it closes what it has
        opened. Raises CannotStart, with the remedy, when settings or log directories cannot be
        used."""
        start = self._configured
        try:
            start.undo.callback(start.metrics.close)
            start.metrics.open()
            self._stage = opened = open_stores(start)
            self._stage = loaded = load_logs(opened)
            self._stage = bound = bind_listeners(loaded)
            self._stage = serving = serve(bound)
            self._stage = run_tasks(serving)
            self._open_console()
        except (
            UnusableDirectory,
            MetadataError,
            NoMetricsPage,
            NoThread,
            UnusablePlugins,
        ) as error:
            self._give_up()
            raise CannotStart(str(error)) from error
        except BaseException:
            self._give_up()
            raise
        start.metrics.ready()

    def stop(self) -> None:
        """Stops the node cleanly; the second call does nothing."""
        self._undo(is_clean=True)

    def _open_console(self) -> None:
        """Opens the console, if console.port asks for it. Raises CannotStart."""
        if self.config.integer("console.port") < 0:
            return
        from barnabas.console.opening import PERIOD_MS, Console, NoConsole, Served

        start, plugins = self._configured, self.plugins
        try:
            self.console = Console(
                Served(
                    config=self.config,
                    node_id=self.node_id,
                    bound=lambda: start.listeners.bound,
                    advertised=lambda: start.listeners.advertised,
                    values=self.dynamic.texts_in_force,
                    problem=self.metrics.problem,
                    warning=self.metrics.warning,
                    families=self.metrics.families,
                    plugins=lambda: plugins.registry.plugins() if plugins.are_used else (),
                    plugin_metrics=plugins.own_metrics,
                    monotonic_ns=start.clock.monotonic_ns,
                )
            )
        except NoConsole as error:
            raise CannotStart(str(error)) from error
        start.undo.callback(self.console.close)
        self.console.start()
        self.background.add("console-look", self.console.look, lambda: PERIOD_MS, first_ms=0)

    def _give_up(self) -> None:
        """Closes everything after a failed start. If the directories needed no recovery and their
        logs were opened, they are marked as cleanly stopped again: the next start needs no
        recovery."""
        has_logs = not isinstance(self._stage, Configured | Opened)
        self._undo(is_clean=has_logs and self.opened.needs_no_recovery)

    def _undo(self, is_clean: bool) -> None:
        self.metrics.state = SHUTTING_DOWN
        self._configured.undo.close(is_clean)

    # -- the stages that the node has reached ---------------------------------------------------

    def _reached(self, wanted: type[Reached]) -> Reached:
        stage = self._stage
        while not isinstance(stage, wanted):
            if isinstance(stage, Configured):
                raise NotStarted(f"the node is not {wanted.__name__.lower()}")
            stage = stage.before
        return stage

    @property
    def opened(self) -> Opened:
        """The log directories and the cluster's metadata. This and the following properties raise
        NotStarted before the node has reached their stage."""
        return self._reached(Opened)

    @property
    def loaded(self) -> Loaded:
        """The logs and partitions."""
        return self._reached(Loaded)

    @property
    def bound(self) -> Bound:
        """The network threads and the native handlers."""
        return self._reached(Bound)

    @property
    def serving(self) -> Serving:
        """The coordinators and request handlers."""
        return self._reached(Serving)

    @property
    def running(self) -> Running:
        """The repeating tasks."""
        return self._reached(Running)

    # -- shortcuts for commands and tests ---------------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        return self._configured.config

    @property
    def system(self) -> SystemCalls:
        return self._configured.system

    @property
    def clock(self) -> Clock:
        return self._configured.clock

    @property
    def background(self) -> Background:
        return self._configured.background

    @property
    def metrics(self) -> MetricsPage:
        return self._configured.metrics

    @property
    def listening(self) -> tuple[Listener, ...]:
        """The bound listeners; empty before the start."""
        return self._configured.listeners.bound

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The advertised listeners, which clients get; empty before the start."""
        return self._configured.listeners.advertised

    @property
    def node_id(self) -> int:
        return self.opened.node_id

    @property
    def cluster_id(self) -> str:
        return self.opened.cluster_id

    @property
    def dynamic(self) -> DynamicConfig:
        return self.opened.dynamic

    def cluster(self) -> ClusterState:
        """Returns the present state of the cluster, an immutable snapshot."""
        return self.opened.reader.state

    @property
    def plugins(self) -> Plugins:
        return self.loaded.plugins

    @property
    def reactor(self) -> Reactor:
        return self.bound.reactor

    @property
    def handlers(self) -> RequestHandlers:
        return self.serving.handlers

    def _collectors(self) -> list[Collector]:
        from barnabas.stages.collectors import collectors

        return collectors(self.running)
