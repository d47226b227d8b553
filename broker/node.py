"""One node: starts in stages, and stops in the reverse order.

Start: directories are locked, the metadata store opens, directories are checked against it, logs
open (recovered where the last stop was unclean), listeners are bound, this node registers, becomes
leader of its partitions, and serves. Repeating tasks come after that: they must not delay the first
answer. A stop reverses the stages reached so far and leaves a mark that no recovery is needed.
Next: stages/__init__.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from barnabas.cext.memory.sys import SystemCalls
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

__all__ = ["CannotStart", "Node", "NotStarted", "open_embedded"]

Stage = Configured | Opened | Loaded | Bound | Serving | Running
Reached = TypeVar("Reached", Opened, Loaded, Bound, Serving, Running)


class NotStarted(RuntimeError):
    """The node has not reached the stage that the caller needs."""


def open_embedded(directory: Path, wall_ms: Callable[[], int]) -> MetadataTree:
    """Opens the metadata store of a single node: one file that is synced at every commit."""
    return EmbeddedTree(directory, clock_ms=wall_ms)


class Node:
    """One broker of this process. `start` once, `stop` once or more.

    Nothing here belongs to the whole process: several nodes may live in one, and what only one
    broker may have (signals, the switch interval) is left to `barnabas start`. `gate` sees every
    request that comes to Python.
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

    def start(self) -> None:
        """Returns when the node serves clients. Raises CannotStart after it has closed what it
        had opened."""
        start = self._configured
        try:
            start.undo.callback(start.metrics.close)
            start.metrics.open()
            self._stage = opened = open_stores(start)
            self._stage = loaded = load_logs(opened)
            self._stage = bound = bind_listeners(loaded)
            self._stage = serving = serve(bound)
            self._stage = run_tasks(serving)
        except (UnusableDirectory, MetadataError, NoMetricsPage, UnusablePlugins) as error:
            self._give_up()
            raise CannotStart(str(error)) from error
        except BaseException:
            self._give_up()
            raise
        start.metrics.ready()

    def stop(self) -> None:
        """Stops the node cleanly."""
        self._undo(is_clean=True)

    def _give_up(self) -> None:
        """After a failed start: closes what was opened. Directories that were clean are so again
        when their logs were opened and closed: the next start need not check them."""
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
        """Its directories and the cluster's metadata. These properties raise NotStarted."""
        return self._reached(Opened)

    @property
    def loaded(self) -> Loaded:
        """Its logs and partitions."""
        return self._reached(Loaded)

    @property
    def bound(self) -> Bound:
        """Its network threads and what answers on them."""
        return self._reached(Bound)

    @property
    def serving(self) -> Serving:
        """Its coordinators and request handlers."""
        return self._reached(Serving)

    @property
    def running(self) -> Running:
        """Its repeating tasks."""
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
        """As they are bound; empty before the start."""
        return self._configured.listeners.bound

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """As clients get them; empty before the start."""
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
        """The cluster's state as of now; an immutable snapshot."""
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
