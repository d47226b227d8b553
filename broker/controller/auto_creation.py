"""Creates the absent topics that Metadata requests name, after the answer.

Kafka's DefaultAutoTopicCreationManager does the same: the first answer is
UNKNOWN_TOPIC_OR_PARTITION, also when the creation succeeds; clients retry, as they do for each new
topic. A thread runs while there are topics to create. A topic that cannot be created (its name
collides, the replication factor is above the number of brokers) is logged and not tried again until
a client asks for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from barnabas.cext.memory.threads import NamedThread
from barnabas.config import DynamicConfig
from barnabas.controller.internal_topics import internal_topic
from barnabas.controller.topics import NewTopic, TopicController
from barnabas.errors import KafkaError, TopicAlreadyExists
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
        self._waiting: dict[str, None] = {}  # in order; a name stays until its attempt is over
        self._thread: threading.Thread | None = None
        self._stopped = False

    def ask(self, name: str) -> None:
        """Requests the creation of a topic; returns at once. `name` is a legal topic name."""
        with self._lock:
            if self._stopped or name in self._waiting or len(self._waiting) >= WAITING_MAX:
                return
            self._waiting[name] = None
            if self._thread is None:
                self._thread = NamedThread(
                    target=self._run, name="auto-topic-creation", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Ends the thread; pending topics are not created."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        if thread is not None:
            thread.join(STOP_S)

    def _run(self) -> None:
        while (name := self._next()) is not None:
            try:
                self._create(name)
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

    def _next(self) -> str | None:
        """Returns the next name; None ends the thread, and the next request starts another one."""
        with self._lock:
            if self._waiting and not self._stopped:
                return next(iter(self._waiting))
            self._thread = None
            return None

    def _create(self, name: str) -> None:
        brokers = len(self._cluster().brokers)
        try:
            self._topics.create(internal_topic(name, self._config, brokers) or NewTopic(name))
        except TopicAlreadyExists:
            pass  # another request, or another broker, was quicker
