"""The functions of the node that groups of the consumer protocol use.

Topics are those of the last cluster state; a group's own timeouts override the broker's. Long work
runs on one thread and joins on another; both threads end when no work is left.
Next: consumer_heartbeats.py, which uses it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from barnabas.cext.memory.threads import start_when_allowed
from barnabas.config import BrokerConfig, DynamicConfig
from barnabas.config.group_config import GroupConfig
from barnabas.coordinator.groups.consumer_access import ConsumerSettings, Timeouts
from barnabas.coordinator.groups.target_assignment import Assign
from barnabas.coordinator.groups.topic_views import LastViews
from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.znodes import sanitized

log = logging.getLogger("barnabas.groups")

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"

# This is far below the heartbeat interval; 500 members that start together join within 50 ms.
GATHER_S, GATHER_MAX_S = 0.001, 0.1


def consumer_settings(config: BrokerConfig) -> ConsumerSettings:
    """Reads the settings of consumer groups."""
    return ConsumerSettings(
        members_max=config.integer("group.consumer.max.size"),
        assignors=tuple(config.names("group.consumer.assignors")),
        migration=str(config["group.consumer.migration.policy"]).lower(),
    )


class NodeGroupDependencies:
    """The dependencies of one node's groups."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        dynamic: DynamicConfig,
        cluster: Callable[[], ClusterState],
        group_config: Callable[[str], GroupConfig],
        assign: Assign,
    ) -> None:
        self.settings = consumer_settings(config)
        self.assign = assign
        self._cluster = cluster
        self._group_config = group_config
        self.topics = LastViews(cluster)
        self._dynamic = dynamic
        self._long_work = SerialThread("group-topics")
        self._joins = SerialThread("group-joins")

    def timeouts(self, group_id: str) -> Timeouts:
        """Returns the timeouts of a group: its own settings override the broker's."""
        if not self._cluster().config("groups", sanitized(group_id)):
            broker = self._dynamic.integer
            return Timeouts(*(broker(f"group.{name}") for name in (SESSION, HEARTBEAT, ASSIGNMENT)))
        group = self._group_config(group_id).integer
        return Timeouts(group(SESSION), group(HEARTBEAT), group(ASSIGNMENT))

    def run(self, call: Callable[[], object]) -> None:
        """Runs a call on the thread for long work. A group has at most one call there."""
        self._long_work(call)

    def gather(self, call: Callable[[], object], count: Callable[[], int]) -> None:
        """Runs a call on the thread for joins. At most one call waits there."""

        def gathered() -> None:
            until_s, before, now = time.monotonic() + GATHER_MAX_S, 0, count()
            while now > before and time.monotonic() < until_s:
                time.sleep(GATHER_S)
                before, now = now, count()
            call()

        self._joins(gathered)


class SerialThread:
    """Runs calls one after the other on a thread that ends when none is left."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], object]] = deque()
        self._thread: threading.Thread | None = None

    def __call__(self, call: Callable[[], object]) -> None:
        with self._lock:
            self._waiting.append(call)
            if self._thread is None:
                self._thread = start_when_allowed(self._work, self._name)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                call = self._waiting.popleft()
            try:
                call()
            except Exception:  # an error in one group must not stop the others
                log.exception("%s: a call failed", self._name)
