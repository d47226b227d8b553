"""Brokers and topics from ZooKeeper, watched while the producer runs.

    /brokers/ids            a broker joins or leaves: new addresses; old metadata is dropped
    /brokers/ids/N          JSON of Kafka 0.8 and later (host and port, or endpoints), or the
                            `creator:host:port` of 0.7
    /brokers/topics         a topic is created or deleted
    /brokers/topics/T       partitions of a topic that is written to: their number or brokers change

kazoo's threads only record the changes; the sending thread applies them (`poll`). The leaders come
from the brokers' metadata, which has them first. While ZooKeeper does not respond the producer
continues with its state, and sets the watches again when ZooKeeper responds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.client.brokers import Brokers
from barnabas.client.cluster import Cluster, Topic, parse_addresses
from barnabas.client.failures import CannotConnect
from barnabas.client.security import Security, protocol_of
from barnabas.clients.broker_nodes import address_of

if TYPE_CHECKING:
    from kazoo.client import KazooClient

log = logging.getLogger("barnabas.clients")

IDS, TOPICS = "/brokers/ids", "/brokers/topics"
WATCHED_TOPICS_MAX = 10_000


def registered(
    zookeeper: str,
    session_timeout_ms: int,
    connect_timeout_ms: int,
    security: Security | None = None,
) -> str:
    """Returns the addresses of all registered brokers, separated by commas. Raises
    CannotConnect."""
    from kazoo.exceptions import NoNodeError

    client = _connected(zookeeper, session_timeout_ms, connect_timeout_ms)
    try:
        rows = [client.get(f"{IDS}/{name}")[0] for name in client.get_children(IDS)]
    except NoNodeError:
        rows = []
    finally:
        client.stop()
        client.close()
    found = [address for row in rows if (address := address_of(row, security)) is not None]
    if not found:
        raise CannotConnect(f"no broker is registered under {IDS} of ZooKeeper")
    return ",".join(found)


class ZookeeperBrokers(Brokers):
    """Watches brokers and topics. Raises CannotConnect when ZooKeeper does not respond in time."""

    def __init__(
        self,
        zookeeper: str,
        make_cluster: Callable[[str], Cluster],
        refresh_ms: int,
        *,
        session_timeout_ms: int,
        connect_timeout_ms: int,
        security: Security | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._wake = changed
        self._security = security
        self._lock = threading.Lock()
        self._is_new = False  # the brokers have changed
        self._addresses: tuple[str, ...] = ()
        self._stale: set[str] = set()  # topics whose partitions have changed
        self._topics: set[str] = set()
        self._watched: set[str] = set()
        self._closed = False
        self._client = _connected(zookeeper, session_timeout_ms, connect_timeout_ms)
        try:
            self._client.ensure_path(IDS)
            self._client.ensure_path(TOPICS)
            self._client.ChildrenWatch(IDS, self._brokers_changed)
            self._client.ChildrenWatch(TOPICS, self._topics_changed)
        except BaseException:
            self._stop()
            raise
        with self._lock:
            self._is_new = False
            # A placeholder, because an address is required; `poll` replaces it with the real ones.
            first = ",".join(self._addresses) or "127.0.0.1:1"
        super().__init__(make_cluster(first), refresh_ms)

    # -- on kazoo's threads -----------------------------------------------------------------------

    def _brokers_changed(self, ids: list[str]) -> bool:
        from kazoo.exceptions import KazooException

        found = []
        for name in sorted(ids):
            try:
                data, _ = self._client.get(f"{IDS}/{name}")
            except KazooException as error:  # the node was deleted; the watch reports that too
                log.debug("broker %s: %s", name, error)
                continue
            address = address_of(data, self._security)
            if address is None:
                protocol = protocol_of(self._security)
                log.warning(
                    "%s/%s of ZooKeeper names no %s listener: %r", IDS, name, protocol, data[:200]
                )
            else:
                found.append(address)
        with self._lock:
            self._addresses, self._is_new = tuple(found), True
        self._wake()
        return not self._closed

    def _topics_changed(self, names: list[str]) -> bool:
        with self._lock:
            self._stale |= self._topics ^ set(names)
            self._topics = set(names)
        self._wake()
        return not self._closed

    def _partitions_changed(self, name: str) -> bool:
        with self._lock:
            goes_on = not self._closed and name in self._topics
            self._stale.add(name)
            if not goes_on:
                self._watched.discard(name)
        self._wake()
        return goes_on

    # -- on the thread that sends -----------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """Returns the metadata of a topic, and watches its partitions. Raises as Brokers.topic
        does."""
        if not self._addresses and name not in self._known:
            raise CannotConnect(f"no broker is registered under {IDS} of ZooKeeper")
        found = super().topic(name)
        with self._lock:
            is_new = name not in self._watched and len(self._watched) < WATCHED_TOPICS_MAX
            if is_new:
                self._watched.add(name)
        if is_new:
            self._watch(name)
        return found

    def _watch(self, name: str) -> None:
        from kazoo.exceptions import KazooException

        first = True

        def seen(data: Any, stat: Any) -> bool:
            nonlocal first
            if first:
                first = False
                return True
            return self._partitions_changed(name)

        try:
            self._client.DataWatch(f"{TOPICS}/{name}", seen)
        except (
            KazooException
        ) as error:  # ZooKeeper does not respond: the next metadata request tries again
            log.warning("cannot watch topic %s: %s", name, error)
            with self._lock:
                self._watched.discard(name)

    def poll(self) -> None:
        """Applies the changes that kazoo's threads recorded."""
        if not self._is_new and not self._stale:
            return
        with self._lock:
            is_new, self._is_new = self._is_new, False
            stale, self._stale = self._stale, set()
            addresses = self._addresses
        if is_new:
            if addresses:
                self.cluster.bootstrap = parse_addresses(",".join(addresses))
            stale |= self._known.keys()
        for name in stale:
            self.forget(name)

    def close(self) -> None:
        self._closed = True
        self._stop()
        super().close()

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()


def _connected(zookeeper: str, session_timeout_ms: int, connect_timeout_ms: int) -> KazooClient:
    from kazoo.handlers.threading import KazooTimeoutError

    from barnabas.zookeeper_client import zookeeper_client

    client = zookeeper_client(zookeeper, session_timeout_ms)
    try:
        client.start(timeout=connect_timeout_ms / 1000)
    except KazooTimeoutError as error:
        client.stop()
        client.close()
        raise CannotConnect(f"zk.connect: no ZooKeeper responds at {zookeeper}") from error
    return client
