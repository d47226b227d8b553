"""Creates the absent topics that Metadata requests name, after the answer.

Kafka's DefaultAutoTopicCreationManager does the same: the first answer is
UNKNOWN_TOPIC_OR_PARTITION, also when the creation succeeds; clients retry, as they do for each new
topic. A thread runs while there are topics to create. A topic that cannot be created (its name
collides, the replication factor is above the number of brokers) is logged; the broker tries again
only when a client asks for it. Its partitions count against the client's controller_mutation_rate
quota, as in Kafka: while the quota is exceeded the topic is not created, and the response does not
show it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

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


class AutoTopicCreation:
    """The topics that one node creates automatically. Any thread may call `ask`."""

    def __init__(
        self, topics: TopicController, config: DynamicConfig, cluster: Callable[[], ClusterState]
    ) -> None:
        self._topics = topics
        self._config = config
        self._cluster = cluster
        self._lock = threading.Lock()
        # By name, in order; a name stays until its attempt is over.
        self._waiting: dict[str, Charge] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False

    def ask(self, name: str, charge: Charge) -> None:
        """Requests the creation of a topic; returns at once. `name` is a legal topic name. `charge`
        counts the partitions against the client's quota, on another thread; it raises
        ThrottlingQuotaExceeded."""
        with self._lock:
            if self._stopped or name in self._waiting or len(self._waiting) >= WAITING_MAX:
                return
            self._waiting[name] = charge
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
            name, charge = asked
            try:
                self._create(name, charge)
            except ThrottlingQuotaExceeded as error:
                log.debug("topic %s is not created for a client: %s", name, error)
            except (KafkaError, MetadataError, OSError) as error:
                log.warning(
                    "auto.create.topics.enable: cannot create topic %s for a client: %s",
                    name,
                    error,
                )
            except Exception:
                log.exception(
                    "auto.create.topics.enable: cannot create topic %s for a client", name
                )
            with self._lock:
                del self._waiting[name]

    def _next(self) -> tuple[str, Charge] | None:
        """Returns the next topic; None ends the thread, and the next request starts another one."""
        with self._lock:
            if self._waiting and not self._stopped:
                return next(iter(self._waiting.items()))
            self._thread = None
            return None

    def _create(self, name: str, charge: Charge) -> None:
        own = internal_topic(name, self._config, self._cluster().is_shared)
        try:
            self._topics.create(own or NewTopic(name), charge=charge)
        except TopicAlreadyExists:
            pass  # another request, or another broker, was quicker
