"""The registry of the old consumers in ZooKeeper, as Kafka 0.8 documents it.

    /brokers/ids/N                                 {"host":...,"port":...,...}, read
    /brokers/topics/TOPIC                          {"version":1,"partitions":{"0":[1],...}}, read
    /consumers/GROUP/ids/CONSUMER                  subscription.py's document; ephemeral
    /consumers/GROUP/owners/TOPIC/PARTITION        the consumer thread; ephemeral
    /consumers/GROUP/offsets/TOPIC/PARTITION       the offset of the next message, in digits

Every request has the timeout `zookeeper.connection.timeout.ms`, because kazoo alone would wait
until ZooKeeper is back. Watches fire once, on kazoo's thread, and say only that a node changed."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from barnabas.client.security import Security
from barnabas.clients.broker_nodes import address_of
from barnabas.clients.consumer.offset_stores import StoreFailed
from barnabas.clients.consumer.requests import TopicAndPartition
from barnabas.zookeeper_client import zookeeper_client

log = logging.getLogger(__name__)

Watch = Callable[[Any], None]
NO_OFFSET = b"-1"
BROKERS, TOPICS = "/brokers/ids", "/brokers/topics"


class ZooKeeperTree:
    """One session with ZooKeeper. Methods raise StoreFailed."""

    def __init__(
        self,
        hosts: str,
        group_id: str,
        session_ms: int,
        timeout_ms: int,
        security: Security | None = None,
    ) -> None:
        """`session_ms`, `timeout_ms`: the timeouts of the session and of a request. `security`:
        selects the listener of the brokers whose addresses `brokers` returns."""
        self._security = security
        self._group = f"/consumers/{group_id}"
        self._hosts = hosts
        self._timeout_s = timeout_ms / 1000
        servers, slash, chroot = hosts.partition("/")
        self._client = zookeeper_client(servers, session_ms)
        try:
            self._client.start(timeout=self._timeout_s)
        except (KazooTimeoutError, KazooException, ValueError) as error:
            self.close()
            raise StoreFailed(f"no ZooKeeper responds at {hosts}: {error}") from error
        try:
            if chroot.strip("/"):
                self._call("ensure_path", slash + chroot)
                self._client.chroot = slash + chroot.rstrip("/")
        except StoreFailed:
            self.close()
            raise

    def close(self) -> None:
        """Ends the session, which deletes its ephemeral nodes."""
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # kazoo's thread may be connecting
            log.warning("cannot end the session with %s; it will expire: %s", self._hosts, error)

    def on_new_session(self, changed: Callable[[], None]) -> None:
        """Registers a callback for each reconnection, in the same session or a new one."""

        def listen(state: str) -> None:
            if state == KazooState.CONNECTED:
                # Runs on another thread, because kazoo's own must not send requests to ZooKeeper.
                changed()

        self._client.add_listener(listen)

    @property
    def session_id(self) -> int:
        """Returns the id of the present session. Raises StoreFailed without one."""
        known = self._client.client_id
        if known is None:
            raise StoreFailed(f"ZooKeeper at {self._hosts}: no session at present")
        return int(known[0])

    # -------------------------------------------------------------------------------- brokers

    def brokers(self, watch: Watch | None = None) -> list[str]:
        """Returns HOST:PORT of the registered brokers."""
        found = []
        for node_id in self._children(BROKERS, watch):
            address = address_of(self._get(f"{BROKERS}/{node_id}") or b"", self._security)
            if address is not None:
                found.append(address)
        return found

    def topics(self, watch: Watch | None = None) -> list[str]:
        """Returns the registered topics."""
        return self._children(TOPICS, watch)

    def partitions(self, topic: str, watch: Watch | None = None) -> list[int] | None:
        """Returns the partitions of a topic; None for a topic without a registration."""
        data = self._get(f"{TOPICS}/{topic}", watch)
        try:
            return sorted(int(index) for index in json.loads(data or b"")["partitions"])
        except (ValueError, KeyError, TypeError):
            return None

    # ------------------------------------------------------------------------------- registry

    def register(self, consumer_id: str, document: bytes) -> bool:
        """Registers the consumer. Returns whether this session had no registration before."""
        return self._own(f"{self._group}/ids/{consumer_id}", document, consumer_id)

    def unregister(self, consumer_id: str) -> None:
        """Deletes the registration of the consumer."""
        self._delete(f"{self._group}/ids/{consumer_id}")

    def consumers(self, watch: Watch | None = None) -> dict[str, bytes]:
        """Returns the registrations of the group's members."""
        found = {}
        for consumer_id in self._children(f"{self._group}/ids", watch):
            data = self._get(f"{self._group}/ids/{consumer_id}")
            if data is not None:
                found[consumer_id] = data
        return found

    def claim(self, name: TopicAndPartition, thread: str, consumer_id: str) -> bool:
        """Claims the partition for the thread. Returns False while another thread owns it."""
        path = f"{self._group}/owners/{name.topic}/{name.partition}"
        try:
            self._own(path, thread.encode(), consumer_id)
        except NodeExistsError:
            return False
        return True

    def give_up(self, name: TopicAndPartition) -> None:
        """Releases a partition that this session owns."""
        path = f"{self._group}/owners/{name.topic}/{name.partition}"
        if self._owner_of(path) == self.session_id:
            self._delete(path)

    # -------------------------------------------------------------------------------- offsets

    def fetch(self, names: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """Returns the committed offsets; see OffsetStore."""
        found = {}
        for name in names:
            path = self._offset_path(name)
            data = self._get(path)
            if data is None or data.strip() == NO_OFFSET:
                continue
            if not data.strip().isdigit():
                # Another start would repeat or skip an unknown number of messages.
                raise StoreFailed(f"{path} holds {data[:40]!r}, which is not an offset")
            found[name] = int(data)
        return found

    def commit(self, offsets: Mapping[TopicAndPartition, int], retries: int) -> None:
        """Commits offsets; see OffsetStore. kazoo itself repeats failed requests."""
        for name, offset in offsets.items():
            path, data = self._offset_path(name), b"%d" % offset
            for _ in range(retries + 2):
                try:
                    self._call("set", path, data)
                    break
                except NoNodeError:
                    try:
                        self._call("create", path, data, makepath=True)
                        break
                    except NodeExistsError:
                        continue  # another consumer has created it
            else:
                raise StoreFailed(f"{path}: gave up, because others create and delete the node")

    def _offset_path(self, name: TopicAndPartition) -> str:
        return f"{self._group}/offsets/{name.topic}/{name.partition}"

    # ---------------------------------------------------------------------------------- nodes

    def _own(self, path: str, data: bytes, consumer_id: str) -> bool:
        """Creates an ephemeral node of this session, also in place of a node that a former session
        of this consumer left. Returns False when it exists. Raises NodeExistsError for a node of
        another consumer."""
        try:
            self._call("create", path, data, ephemeral=True, makepath=True)
            return True
        except NodeExistsError:
            there = self._get(path)
            if self._owner_of(path) == self.session_id and there == data:
                return False
            is_ours = there is not None and _is_of(consumer_id, path, there)
            if not is_ours:
                raise
            log.info("%s is from an earlier session of %s", path, consumer_id)
        self._delete(path)
        self._call("create", path, data, ephemeral=True, makepath=True)
        return True

    def _owner_of(self, path: str) -> int | None:
        stat = self._call("exists", path)
        return None if stat is None else int(stat.owner_session_id or 0)

    def _children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Returns the children of a node; none for an absent node, and watches its creation."""
        try:
            return sorted(self._call("get_children", path, watch=watch))
        except NoNodeError:
            if watch is not None and self._call("exists", path, watch=watch) is not None:
                return self._children(path, watch)
            return []

    def _get(self, path: str, watch: Watch | None = None) -> bytes | None:
        try:
            data: bytes = self._call("get", path, watch=watch)[0]
            return data
        except NoNodeError:
            if watch is not None and self._call("exists", path, watch=watch) is not None:
                return self._get(path, watch)
            return None

    def _delete(self, path: str) -> None:
        try:
            self._call("delete", path)
        except NoNodeError:
            pass

    def _call(self, what: str, *args: Any, **options: Any) -> Any:
        """Sends a request. Raises NoNodeError, NodeExistsError, and StoreFailed for other
        errors."""
        waited = getattr(self._client, f"{what}_async")(*args, **options)
        try:
            return waited.get(timeout=self._timeout_s)
        except (NoNodeError, NodeExistsError):
            raise
        except (KazooException, KazooTimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise StoreFailed(f"ZooKeeper at {self._hosts}: {reason}") from error


def _is_of(consumer_id: str, path: str, data: bytes) -> bool:
    """Returns whether this consumer, or one of its threads, made a node."""
    return path.endswith(f"/ids/{consumer_id}") or data.startswith(f"{consumer_id}-".encode())
