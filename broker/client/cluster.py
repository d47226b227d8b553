"""The brokers of a cluster, the leaders of partitions, and retries.

The client fetches metadata again when a broker answers that it has changed, or a connection breaks.
`retrying` repeats a step after retriable errors, with a growing pause and one total time. The first
contact is not repeated, so an absent broker is an error at once; a `patient` cluster repeats it.
"""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from barnabas.client.connection import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, Connection
from barnabas.client.failures import (
    AuthenticationFailed,
    BadAddress,
    CannotConnect,
    ClientError,
    ConnectionLost,
    NoTls,
    raise_for,
)
from barnabas.errors import (
    KafkaError,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
)
from barnabas.wire import Struct, request

if TYPE_CHECKING:
    from barnabas.client.security import Security

METADATA = 3
PORT = 9092
TIMEOUT_S = 30.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 1.0
# All brokers know a new topic shortly after its creation; a topic that does not exist never
# appears.
UNKNOWN_TOPIC_S = 2.0
CREATED_TOPIC_S = 6.0  # a topic that the broker creates on this request
CONNECTIONS_MAX = 1000  # the client ignores a cluster that names more brokers

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as a Metadata answer described it. `topic_id`: 16 bytes, zeros from brokers before
    Kafka 2.8; `partitions`: by index, in ascending order."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, Partition]

    def partition(self, index: int) -> Partition:
        """Returns the partition with this index. Raises UnknownTopicOrPartition, which names the
        partitions that the topic has."""
        if index in self.partitions:
            return self.partitions[index]
        last = max(self.partitions, default=-1)
        known = "only partition 0" if last == 0 else f"partitions 0 to {last}"
        raise UnknownTopicOrPartition(f"topic {self.name} has no partition {index}, it has {known}")


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Returns (host, port) of each HOST:PORT in a text with commas, as in bootstrap.servers.
    Without a port it is 9092; an IPv6 address has brackets; PLAINTEXT:// may be in front. Raises
    BadAddress."""
    found = []
    for part in (piece.strip() for piece in text.split(",")):
        bare = part.removeprefix("PLAINTEXT://")
        host, colon, port = bare.rpartition(":")
        if not colon or bare.endswith("]"):
            host, port = bare, str(PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
            raise BadAddress(f"{part!r} is not an address of a broker: write HOST:PORT")
        found.append((host, int(port)))
    return found


class Cluster:
    """The client's connections to the brokers of a cluster, and their metadata."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "barnabas",
        timeout_s: float = TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        patient: bool = False,
        security: "Security | None" = None,
    ) -> None:
        """`bootstrap_servers`: HOST:PORT of any brokers, separated by commas. `patient`: the first
        contact is retried too. `security`: TLS and SASL; None means plain text. Times are in
        seconds."""
        self.security = security
        self.bootstrap = parse_addresses(bootstrap_servers)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.connect_timeout_s = connect_timeout_s
        self.answer_timeout_s = answer_timeout_s
        self.brokers: dict[int, Broker] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self._topics: dict[str, Topic] = {}
        self._by_node: dict[int, Connection] = {}
        self._first: Connection | None = None
        self._was_reached = patient

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in (self._first, *self._by_node.values()):
            if connection is not None:
                connection.close()
        self._first = None
        self._by_node.clear()

    # ---------------------------------------------------------------------------- connections

    def any_connection(self) -> Connection:
        """Returns an open connection to some broker: one that is open already, or the first broker
        that can be reached, of the bootstrap servers and the known brokers. Raises CannotConnect
        with the reason of each broker; NoTls or AuthenticationFailed when all failed for that
        reason."""
        for connection in (self._first, *self._by_node.values()):
            if connection is not None and connection.is_open:
                return connection
        places = list(self.bootstrap)
        places += [(b.host, b.port) for b in self.brokers.values()]
        failures: list[ClientError] = []
        for host, port in dict.fromkeys(places):
            try:
                self._first = self._connect(host, port)
            except ClientError as error:
                failures.append(error)
                continue
            self._was_reached = True
            return self._first
        kinds = {type(error) for error in failures}
        kind = kinds.pop() if kinds in ({NoTls}, {AuthenticationFailed}) else CannotConnect
        raise kind("; ".join(map(str, failures)))

    def connection_to(self, node_id: int) -> Connection:
        """Returns a connection to a broker. Raises CannotConnect, LeaderNotAvailable (there is no
        such broker now)."""
        found = self._by_node.get(node_id)
        if found is not None and found.is_open:
            return found
        if not self.brokers:
            self.refresh([])
        broker = self.brokers.get(node_id)
        if broker is None:
            raise LeaderNotAvailable(f"broker {node_id} is not among the live brokers")
        if len(self._by_node) >= CONNECTIONS_MAX:
            self._by_node.pop(next(iter(self._by_node))).close()
        self._by_node[node_id] = self._connect(broker.host, broker.port)
        return self._by_node[node_id]

    def controller(self) -> Connection:
        """Returns a connection to the broker that takes changes of topics; Kafka with KRaft names
        any broker. Asks for the metadata first. Raises CannotConnect, LeaderNotAvailable."""
        self.refresh([])
        if self.controller_id < 0:
            return self.any_connection()
        return self.connection_to(self.controller_id)

    def _connect(self, host: str, port: int) -> Connection:
        return Connection(
            host,
            port,
            client_id=self.client_id,
            connect_timeout_s=self.connect_timeout_s,
            answer_timeout_s=self.answer_timeout_s,
            security=self.security,
        )

    # ------------------------------------------------------------------------------- metadata

    def refresh(self, topics: Iterable[str] | None, *, create: bool = False) -> list[Struct]:
        """Fetches metadata of the brokers and of topics (None: of all topics). Returns the answer's
        rows of topics, with their error codes.

        `create`: a broker with auto.create.topics.enable creates unknown topics."""
        message = request(METADATA)
        row = message.struct("topics")
        names = None if topics is None else list(topics)

        def body(version: int) -> Struct:
            # Before version 4 every request that names a topic may create it.
            fields = {} if version < 4 else {"allowAutoTopicCreation": create}
            asked = None if names is None else [row(name=name) for name in names]
            return message.cls(topics=asked, **fields)

        answer = self.any_connection().call(METADATA, body, low=1)
        if answer.brokers:
            self.brokers = {
                b.nodeId: Broker(node_id=b.nodeId, host=b.host, port=b.port, rack=b.rack)
                for b in answer.brokers
            }
        self.cluster_id, self.controller_id = answer.clusterId, answer.controllerId
        for topic in answer.topics:
            self._topics.pop(topic.name, None)
            if not topic.errorCode:
                self._topics[topic.name] = _topic_of(topic)
        return list(answer.topics)

    def topics(self) -> dict[str, Topic]:
        """Returns all topics that the user may describe, by name. Raises KafkaError,
        ClientError."""
        rows = self.retrying(lambda: self.refresh(None))
        return {row.name: _topic_of(row) for row in rows if not row.errorCode}

    def topic(self, name: str, *, create: bool = False) -> Topic:
        """Returns a topic with its partitions, from the cache or a broker. Raises
        UnknownTopicOrPartition, and other KafkaErrors of the broker's answer."""
        if name in self._topics:
            return self._topics[name]
        wait_s = min(self.timeout_s, CREATED_TOPIC_S if create else UNKNOWN_TOPIC_S)

        def ask() -> Topic:
            for row in self.refresh([name], create=create):
                if row.errorCode == UnknownTopicOrPartition.code:
                    raise UnknownTopicOrPartition(f"there is no topic {name}")
                raise_for(row.errorCode, f"topic {name}")
            if name not in self._topics:
                raise UnknownTopicOrPartition(f"there is no topic {name}")
            return self._topics[name]

        return self.retrying(ask, timeout_s=wait_s)

    def known(self, name: str) -> Topic | None:
        """Returns the topic as the last Metadata answer described it; None when it is not in the
        cache. Sends no request."""
        return self._topics.get(name)

    def leader(self, topic: str, partition: int) -> Connection:
        """Returns a connection to the leader of a partition. Raises UnknownTopicOrPartition,
        LeaderNotAvailable, CannotConnect: errors after which `retrying` tries again."""
        row = self.topic(topic).partition(partition)
        if row.leader < 0:
            self.forget(topic)
            raise LeaderNotAvailable(f"partition {partition} of topic {topic} has no leader now")
        return self.connection_to(row.leader)

    def forget(self, topic: str) -> None:
        """Drops a topic from the cache, so that the next use fetches its metadata again."""
        self._topics.pop(topic, None)

    # ---------------------------------------------------------------------------- trying again

    def retrying(
        self, step: Callable[[], T], *, topic: str | None = None, timeout_s: float | None = None
    ) -> T:
        """Returns the result of `step`. Repeats the step after retriable errors, within the
        timeout, and raises the last error. With `topic`, each attempt looks up its leaders
        again."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                return step()
            except (KafkaError, CannotConnect, ConnectionLost) as error:
                if isinstance(error, KafkaError):
                    passing = error.retriable
                else:
                    passing = self._was_reached and not isinstance(error, NoTls)
                wait_s = pause_s * random.uniform(0.8, 1.2)
                if not passing or time.monotonic() + wait_s > deadline:
                    raise
            time.sleep(wait_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
            if topic is not None:
                self.forget(topic)


def _topic_of(row: Struct) -> Topic:
    partitions = {
        p.partitionIndex: Partition(
            index=p.partitionIndex,
            leader=p.leaderId,
            leader_epoch=p.leaderEpoch,
            replicas=tuple(p.replicaNodes),
            in_sync=tuple(p.isrNodes),
            offline=tuple(p.offlineReplicas),
            error_code=p.errorCode,
        )
        for p in row.partitions
    }
    return Topic(
        name=row.name,
        topic_id=bytes(row.topicId),
        is_internal=row.isInternal,
        partitions=dict(sorted(partitions.items())),
    )
