"""Creates the absent topics that Metadata requests name, and the internal topics of streams groups,
after the answer.

Kafka's DefaultAutoTopicCreationManager does the same: the first answer is
UNKNOWN_TOPIC_OR_PARTITION, also when the creation succeeds; clients retry, as they do for each new
topic. A thread runs while there are topics to create. A topic that cannot be created (its name
collides, the replication factor is above the number of brokers) is logged; the broker tries again
only when a client asks for it. A streams group's heartbeat shows why its topic is missing: the
reason is kept for a time, and the creation is not repeated before. Its partitions count against
the client's controller_mutation_rate quota, as in Kafka: while the quota is exceeded the topic is
not created, and a Metadata response does not show it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from barnabas.cext.memory.threads import start_when_allowed
from barnabas.config import DynamicConfig
from barnabas.controller.internal_topics import internal_topic
from barnabas.controller.topics import Charge, NewTopic, TopicController
from barnabas.errors import KafkaError, ThrottlingQuotaExceeded, TopicAlreadyExists
from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.tree import MetadataError

log = logging.getLogger("barnabas.controller")

WAITING_MAX = 1000  # pending names; further ones are dropped, and their clients retry
STOP_S = 5.0


class _Asked(NamedTuple):
    """One requested topic."""

    topic: NewTopic
    charge: Charge
    cause: str  # for the log
    kept_ms: int = 0  # how long the reason of a failure is kept


class AutoTopicCreation:
    """The topics that one node creates automatically. Any thread may call `ask`."""

    def __init__(
        self,
        topics: TopicController,
        config: DynamicConfig,
        cluster: Callable[[], ClusterState],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._now_ns = now_ns
        self._topics = topics
        self._config = config
        self._cluster = cluster
        self._lock = threading.Lock()
        # By name, in order; a name stays until its attempt is over.
        self._waiting: dict[str, _Asked] = {}
        self._failures: dict[str, tuple[int, str]] = {}  # until when (ns), and the reason
        self._thread: threading.Thread | None = None
        self._stopped = False

    def ask(self, name: str, charge: Charge) -> None:
        """Requests the creation of a topic; returns at once. `name` is a legal topic name. `charge`
        counts the partitions against the client's quota, on another thread; it raises
        ThrottlingQuotaExceeded."""
        own = internal_topic(name, self._config, self._cluster().is_shared)
        self._ask(_Asked(own or NewTopic(name), charge, "auto.create.topics.enable"))

    def ask_for(self, topics: Iterable[NewTopic], charge: Charge, kept_ms: int) -> dict[str, str]:
        """Requests the creation of topics; returns at once, with why those that failed in the last
        `kept_ms` did. `charge`: as for `ask`."""
        now_ns = self._now_ns()
        failed: dict[str, str] = {}
        for topic in topics:
            until_ns, reason = self._failures.get(topic.name, (0, ""))
            if now_ns < until_ns:
                failed[topic.name] = reason
            else:
                self._ask(_Asked(topic, charge, "streams group", kept_ms))
        return failed

    def _ask(self, asked: _Asked) -> None:
        name = asked.topic.name
        with self._lock:
            if self._stopped or name in self._waiting or len(self._waiting) >= WAITING_MAX:
                return
            self._waiting[name] = asked
            if self._thread is None:
                self._thread = start_when_allowed(self._run, "auto-topic-creation")

    def stop(self) -> None:
        """Ends the thread; pending topics are not created."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        if thread is not None:
            thread.join(STOP_S)

    def _run(self) -> None:
        while (asked := self._next()) is not None:
            name = asked.topic.name
            reason = self._reason_of_failure(asked)
            with self._lock:
                del self._waiting[name]
                self._failures.pop(name, None)
                if reason and asked.kept_ms:
                    self._keep(name, reason, asked.kept_ms)

    def _reason_of_failure(self, asked: _Asked) -> str:
        """Creates a topic and returns ""; otherwise why it could not."""
        name = asked.topic.name
        try:
            self._topics.create(asked.topic, charge=asked.charge)
        except TopicAlreadyExists:
            pass  # another request, or another broker, was quicker
        except ThrottlingQuotaExceeded as error:
            log.debug("topic %s is not created for a client: %s", name, error)
            return str(error)
        except (KafkaError, MetadataError, OSError) as error:
            log.warning("%s: cannot create topic %s for a client: %s", asked.cause, name, error)
            return str(error)
        except Exception as error:
            log.exception("%s: cannot create topic %s for a client", asked.cause, name)
            return str(error)
        return ""

    def _keep(self, name: str, reason: str, kept_ms: int) -> None:
        now_ns = self._now_ns()
        self._failures = {n: row for n, row in self._failures.items() if now_ns < row[0]}
        if len(self._failures) < WAITING_MAX:
            self._failures[name] = now_ns + kept_ms * 1_000_000, reason

    def _next(self) -> _Asked | None:
        """Returns the next topic; None ends the thread, and the next request starts another one."""
        with self._lock:
            if self._waiting and not self._stopped:
                return next(iter(self._waiting.values()))
            self._thread = None
            return None
