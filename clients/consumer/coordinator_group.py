"""Membership at the group's coordinator, without ZooKeeper, by Kafka's classic group protocol.

The coordinator makes one member the leader, which computes the assignment by the algorithm of the
registry (subscription.py) under the name `range`. The user data of a member's subscription holds
its number of streams, in the registry's format; a member of another client has one stream. So
current consumers with the assignor `range` can join the same group, as leader or follower.

The same algorithm divides a member's partitions among its streams.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from barnabas.client.cluster import Cluster
from barnabas.client.failures import ClientError
from barnabas.clients.consumer.config import RANGE, ConsumerConfig
from barnabas.clients.consumer.coordinator import Coordinator
from barnabas.clients.consumer.group import ConsumerRebalanceFailed, Owner
from barnabas.clients.consumer.offset_stores import StoreFailed
from barnabas.clients.consumer.subscription import (
    NOTHING,
    Subscription,
    assigned,
    subscription_of,
)
from barnabas.errors import (
    FencedInstanceId,
    IllegalGeneration,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas.wire import MalformedMessage, Struct, by_name, request

log = logging.getLogger(__name__)

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
JOIN_HIGH, LEAVE_SEVERAL = 7, 3  # versions of JoinGroup and LeaveGroup
# Members of other clients may take this long to join again, and the coordinator waits for them.
JOIN_WAIT_S = 300.0
PROTOCOL_TYPE = "consumer"
SUBSCRIPTION, ASSIGNMENT = "ConsumerProtocolSubscription", "ConsumerProtocolAssignment"
NOBODY = ("", -1)
BACKOFF_S = 0.1
STOP_TIMEOUT_S = 30.0
FORGOTTEN = (UnknownMemberId, IllegalGeneration, FencedInstanceId)

Partitions = dict[str, list[int]]


class CoordinatorGroup:
    """A Group whose members join at the coordinator. `connect` returns Clusters: one for metadata,
    one for the coordinator."""

    def __init__(
        self, config: ConsumerConfig, connect: Callable[[], Cluster], owner: Owner
    ) -> None:
        self._config, self._connect, self._owner = config, connect, owner
        self._coordinator = Coordinator(config.group_id, connect)
        self._cluster: Cluster | None = None
        self._subscription, self._document = NOTHING, b""
        self._member = NOBODY
        self._topics: list[str] = []  # topics that this member reads
        self._watched: Partitions = {}  # the input of the last assignment
        self._first: Future[None] = Future()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"{config.client_id}-membership", daemon=True
        )

    def join(self, subscription: Subscription) -> None:
        """Joins the group; see Group."""
        self._subscription = subscription
        self._document = subscription.document(int(1000 * time.time()))
        self._thread.start()
        self._first.result()

    def member(self) -> tuple[str, int]:
        """Returns member id and generation."""
        return self._member

    def stop(self) -> None:
        """Ends the thread, within STOP_TIMEOUT_S."""
        self._stopped.set()
        if not self._thread.is_alive():
            return
        deadline = time.monotonic() + STOP_TIMEOUT_S
        self._thread.join(BACKOFF_S)
        is_interrupted = self._thread.is_alive()
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._coordinator.interrupt()  # the coordinator may wait for the other members to join
            self._thread.join(BACKOFF_S)
        if is_interrupted:
            self._coordinator.forget()

    def leave(self) -> None:
        """Leaves the group and closes the connections. Logs failures."""
        member_id, _ = self._member
        try:
            if member_id:
                self._say_goodbye(member_id)
        except (ClientError, KafkaError) as error:
            log.warning(
                "cannot leave the group; the session of %s will expire: %s", member_id, error
            )
        self._member = NOBODY
        self._coordinator.close()
        if self._cluster is not None:
            self._cluster.close()

    # -------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        attempts_left = self._config.rebalance_max_retries
        while not self._stopped.is_set():
            try:
                self._join()
                if not self._first.done():
                    self._first.set_result(None)
                self._beat()
            except RebalanceInProgress:
                continue
            except FORGOTTEN as error:
                log.info("group %s: %s", self._config.group_id, error)
                self._owner.release(is_lost=True)
                self._member = NOBODY
            except Exception as error:  # also an error of a listener: the thread must continue
                attempts_left -= 1
                if not self._first.done() and (attempts_left <= 0 or not _is_passing(error)):
                    self._first.set_exception(error)
                    return
                self._restart_membership(error, self._config.rebalance_backoff_ms / 1000)
        if not self._first.done():
            self._first.set_exception(ConsumerRebalanceFailed("the connector is shut down"))

    def _restart_membership(self, error: Exception, backoff_s: float) -> None:
        if not self._stopped.is_set():
            log.warning("group %s: %s", self._config.group_id, error)
        self._coordinator.forget()
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()
        self._stopped.wait(backoff_s)

    def _beat(self) -> None:
        """Sends heartbeats until the member has to join again; raises the reason."""
        interval_s = self._config.heartbeat_interval_ms / 1000
        refresh_s = self._config.topic_refresh_ms / 1000
        refresh_at = time.monotonic() + refresh_s
        while not self._stopped.wait(min(interval_s, refresh_s)):
            member_id, generation = self._member
            body = request(HEARTBEAT).cls(
                groupId=self._config.group_id, memberId=member_id, generationId=generation
            )
            try:
                self._coordinator.check_code(self._coordinator.call(HEARTBEAT, body).errorCode)
                if time.monotonic() >= refresh_at:
                    if self._partitions(self._watched) != self._watched or self._has_new_topics():
                        log.info(
                            "group %s: the topics of its members have changed",
                            self._config.group_id,
                        )
                        return
                    refresh_at = time.monotonic() + refresh_s
            except (ClientError, KafkaError) as error:
                if not _is_passing(error):
                    raise
                self._restart_membership(error, BACKOFF_S)  # this consumer is still a member

    def _has_new_topics(self) -> bool:
        return self._subscribed() != self._topics

    # --------------------------------------------------------------------------------- rebalance

    def _join(self) -> None:
        self._owner.release()
        self._topics = self._subscribed()
        answer = self._exchange_join()
        self._member = (answer.memberId, answer.generationId)
        self._watched = {}  # only for the leader
        shares = self._shares(answer) if answer.leader == answer.memberId else {}
        assignment = self._exchange_sync(shares)
        mine = {
            topic: partitions for topic, partitions in assignment.items() if topic in self._topics
        }
        threads = self._subscription.threads(self._member[0], mine)
        numbers = {
            thread: number for names in threads.values() for number, thread in enumerate(names)
        }
        self._owner.take(
            {name: numbers[thread] for name, thread in assigned(mine, threads).items()}
        )

    def _exchange_join(self) -> Struct:
        config = self._config
        message = request(JOIN_GROUP)
        row = message.struct("protocols")(name=RANGE, metadata=self._metadata())
        rebalance_ms = max(config.rebalance_max_retries * config.rebalance_backoff_ms, 1)
        while True:
            body = message.cls(
                groupId=config.group_id,
                sessionTimeoutMs=config.session_timeout_ms,
                rebalanceTimeoutMs=rebalance_ms,
                memberId=self._member[0],
                protocolType=PROTOCOL_TYPE,
                protocols=[row],
            )
            answer = self._coordinator.call(JOIN_GROUP, body, high=JOIN_HIGH, wait_s=JOIN_WAIT_S)
            if answer.errorCode != MemberIdRequired.code:
                self._coordinator.check_code(answer.errorCode)
                return answer
            self._member = (answer.memberId, -1)

    def _exchange_sync(self, shares: Mapping[str, Partitions]) -> Partitions:
        message = request(SYNC_GROUP)
        row = message.struct("assignments")
        member_id, generation = self._member
        body = message.cls(
            groupId=self._config.group_id,
            generationId=generation,
            memberId=member_id,
            protocolType=PROTOCOL_TYPE,
            protocolName=RANGE,
            assignments=[
                row(memberId=name, assignment=_assignment_bytes(share))
                for name, share in shares.items()
            ],
        )
        answer = self._coordinator.call(SYNC_GROUP, body, wait_s=JOIN_WAIT_S)
        self._coordinator.check_code(answer.errorCode)
        return _assignment_of(bytes(answer.assignment))

    def _shares(self, answer: Struct) -> dict[str, Partitions]:
        """Returns the assignment of all members, which the leader computes."""
        threads: dict[str, list[str]] = {}
        member_of: dict[str, str] = {}
        for row in answer.members:
            topics, document = _subscribed_of(bytes(row.metadata))
            said = subscription_of(document)
            known = said.threads(row.memberId, topics) if said.counts else {}
            for topic in topics:
                names = known.get(topic, [row.memberId])
                threads.setdefault(topic, []).extend(names)
                member_of |= dict.fromkeys(names, row.memberId)
        self._watched = self._partitions(threads)
        shares: dict[str, Partitions] = {row.memberId: {} for row in answer.members}
        for name, thread in assigned(self._watched, threads).items():
            shares[member_of[thread]].setdefault(name.topic, []).append(name.partition)
        return shares

    def _say_goodbye(self, member_id: str) -> None:
        message = request(LEAVE_GROUP)
        row = message.struct("members")(memberId=member_id)

        def body(version: int) -> Struct:
            if version < LEAVE_SEVERAL:
                return message.cls(groupId=self._config.group_id, memberId=member_id)
            return message.cls(groupId=self._config.group_id, members=[row])

        self._coordinator.call(LEAVE_GROUP, body)

    # ------------------------------------------------------------------------------------ topics

    def _subscribed(self) -> list[str]:
        existing = self._with_cluster().topics() if self._subscription.topic_filter else ()
        return self._subscription.topics(existing, self._config.exclude_internal_topics)

    def _partitions(self, topics: Mapping[str, object] | list[str]) -> Partitions:
        """Returns the partitions of each topic; none for a topic that does not exist yet."""
        cluster = self._with_cluster()
        cluster.refresh(topics)
        found = {topic: cluster.known(topic) for topic in topics}
        return {topic: sorted(row.partitions) if row else [] for topic, row in found.items()}

    def _with_cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = self._connect()
        return self._cluster

    def _metadata(self) -> bytes:
        message = by_name(SUBSCRIPTION)
        body = message.cls(topics=self._topics, userData=self._document)
        return bytes(2) + message.encode(body, 0)


def _is_passing(error: Exception) -> bool:
    if isinstance(error, KafkaError):
        return error.retriable
    return isinstance(error, ClientError | StoreFailed)


def _subscribed_of(metadata: bytes) -> tuple[list[str], bytes]:
    """Returns topics and user data of a member; empty for bytes that are not a subscription."""
    try:
        fields = _fields(SUBSCRIPTION, metadata)
        return sorted(set(fields.topics)), bytes(fields.userData or b"")
    except MalformedMessage:
        return [], b""


def _assignment_of(data: bytes) -> Partitions:
    """Returns the partitions of an assignment. Raises MalformedMessage."""
    if not data:
        return {}
    rows = _fields(ASSIGNMENT, data).assignedPartitions
    return {row.topic: sorted(row.partitions) for row in rows}


def _fields(name: str, data: bytes) -> Struct:
    """Returns the fields after the version. A version newer than the newest known one begins with
    the same fields. Raises MalformedMessage."""
    message = by_name(name)
    version = min(int.from_bytes(data[:2], "big"), message.version_max)
    program = message.program(version)
    fields: Struct
    fields, _ = program.decode(data, 2)
    return fields


def _assignment_bytes(share: Partitions) -> bytes:
    message = by_name(ASSIGNMENT)
    row = message.struct("assignedPartitions")
    rows = [row(topic=topic, partitions=sorted(share[topic])) for topic in sorted(share)]
    return bytes(2) + message.encode(message.cls(assignedPartitions=rows), 0)
