"""Membership in ZooKeeper: every member reads the registry and computes its own share by Kafka
0.8's algorithm; there is no leader.

    1. register in /consumers/GROUP/ids, in this session
    2. read the members and the partitions of the topics; watch both
    3. no change of its own share: done. Otherwise end fetching, commit, release its partitions
    4. claim its share in /consumers/GROUP/owners; if another member still owns a partition,
       release all, wait, start again
    5. read the committed offsets of the former owners, and fetch

A watch, or a new session, starts a rebalance. The first rebalance fails after rebalance.max.retries
attempts, with rebalance.backoff.ms between them; later rebalances repeat without a limit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from barnabas.client.cluster import Cluster
from barnabas.client.failures import ClientError
from barnabas.clients.consumer.config import ConsumerConfig
from barnabas.clients.consumer.group import ConsumerRebalanceFailed, Owner
from barnabas.clients.consumer.offset_stores import StoreFailed
from barnabas.clients.consumer.requests import TopicAndPartition
from barnabas.clients.consumer.subscription import NOTHING, Subscription, assigned, subscription_of
from barnabas.clients.consumer.zookeeper_tree import ZooKeeperTree
from barnabas.errors import KafkaError

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 30.0


class ZooKeeperGroup:
    """A Group whose members register in ZooKeeper. `connect` returns a Cluster, for topics that
    ZooKeeper does not register."""

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        tree: ZooKeeperTree,
        connect: Callable[[], Cluster],
        owner: Owner,
    ) -> None:
        self._config, self._tree, self._connect, self._owner = config, tree, connect, owner
        self.consumer_id = consumer_id
        self._subscription, self._document = NOTHING, b""
        self._owned: dict[TopicAndPartition, str] | None = {}  # None: unknown
        self._first: Future[None] = Future()
        self._changed = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"{config.client_id}-rebalancer", daemon=True
        )

    def join(self, subscription: Subscription) -> None:
        """Joins the group; see Group."""
        self._subscription = subscription
        self._document = subscription.document(int(1000 * time.time()))
        self._tree.on_new_session(self._changed.set)
        self._changed.set()
        self._thread.start()
        self._first.result()

    def member(self) -> tuple[str, int]:
        """Returns no member, because the coordinator does not know the members of this group."""
        return "", -1

    def stop(self) -> None:
        """Ends the thread, within STOP_TIMEOUT_S."""
        self._stopped.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S)

    def leave(self) -> None:
        """Releases the partitions and deletes the registration. Logs failures."""
        try:
            self._disown()
            self._tree.unregister(self.consumer_id)
        except StoreFailed as error:
            log.warning("cannot remove the registration; it ends with the session: %s", error)

    # ------------------------------------------------------------------------------ rebalancing

    def _run(self) -> None:
        refresh_s = self._config.topic_refresh_ms / 1000
        while True:
            self._changed.wait(refresh_s)  # a consumer without a registration has no watches either
            self._changed.clear()
            if self._stopped.is_set():
                break
            try:
                self._rebalance_until_done()
            except Exception as error:  # also an error of a listener: the thread must continue
                if not self._first.done():
                    self._first.set_exception(error)
                    return
                log.exception("%s: the rebalance failed", self.consumer_id)
                self._stopped.wait(self._config.rebalance_backoff_ms / 1000)
                self._changed.set()
            else:
                if not self._first.done():
                    self._first.set_result(None)
        if not self._first.done():
            self._first.set_exception(ConsumerRebalanceFailed("the connector is shut down"))

    def _rebalance_until_done(self) -> None:
        why = "another member still owns them"
        for attempt in range(self._config.rebalance_max_retries):
            if attempt and self._stopped.wait(self._config.rebalance_backoff_ms / 1000):
                return
            try:
                if self._rebalance():
                    return
            except (StoreFailed, ClientError, KafkaError) as error:
                log.warning(
                    "%s: attempt %d to rebalance failed: %s", self.consumer_id, attempt + 1, error
                )
                why = str(error)
        raise ConsumerRebalanceFailed(
            f"{self.consumer_id} got no partitions in {self._config.rebalance_max_retries}"
            f" attempts: {why}"
        )

    def _rebalance(self) -> bool:
        if self._tree.register(self.consumer_id, self._document):
            self._owned = None  # a new session: partitions owned in the old one may be lost
        mine = self._share()
        if mine == self._owned:
            return True
        self._owner.release(is_lost=self._owned is None)
        self._disown()
        if not self._claim(mine):
            return False
        try:
            self._owner.take({name: _stream(thread) for name, thread in mine.items()})
        except BaseException:
            self._disown()
            raise
        return True

    def _share(self) -> dict[TopicAndPartition, str]:
        """Returns this member's partitions with their threads, and sets the watches."""
        members = {
            consumer_id: subscription_of(document)
            for consumer_id, document in self._tree.consumers(self._seen).items()
        }
        existing = self._existing() if self._anyone_filters(members) else ()
        internal = self._config.exclude_internal_topics
        partitions = {
            topic: self._partitions(topic)
            for topic in self._subscription.topics(existing, internal)
        }
        threads: dict[str, list[str]] = {topic: [] for topic in partitions}
        for consumer_id, subscription in members.items():
            topics = subscription.topics(existing, internal)
            for topic, names in subscription.threads(consumer_id, topics).items():
                if topic in threads:
                    threads[topic] += names
        ours = {
            name
            for names in self._subscription.threads(self.consumer_id, partitions).values()
            for name in names
        }
        shares = assigned(partitions, threads).items()
        return {name: thread for name, thread in shares if thread in ours}

    def _claim(self, mine: dict[TopicAndPartition, str]) -> bool:
        self._owned = {}
        for name, thread in mine.items():
            if not self._tree.claim(name, thread, self.consumer_id):
                log.info("%s waits for %s, which another consumer owns", thread, name)
                self._disown()
                return False
            self._owned[name] = thread
        return True

    def _disown(self) -> None:
        """Releases partitions; those that it cannot release stay in _owned."""
        for name in list(self._owned or ()):
            self._tree.give_up(name)
            del self._owned[name]  # type: ignore[union-attr]
        self._owned = {}

    def _seen(self, event: object) -> None:
        self._changed.set()

    # ----------------------------------------------------------------------------------- topics

    def _anyone_filters(self, members: dict[str, Subscription]) -> bool:
        return any(row.topic_filter for row in (*members.values(), self._subscription))

    def _existing(self) -> list[str]:
        found = self._tree.topics(self._seen)
        if found:
            return found
        with self._connect() as cluster:
            return list(cluster.topics())

    def _partitions(self, topic: str) -> list[int]:
        found = self._tree.partitions(topic, self._seen)
        if found is not None:
            return found
        with self._connect() as cluster:
            return partitions_of(cluster, topic)


def partitions_of(cluster: Cluster, topic: str) -> list[int]:
    """Returns the partitions of a topic; none for a topic that does not exist."""
    cluster.refresh([topic])
    known = cluster.known(topic)
    return sorted(known.partitions) if known is not None else []


def _stream(thread: str) -> int:
    """Returns the stream of a consumer thread: 3 for CONSUMER-3."""
    return int(thread.rpartition("-")[2])
