"""A clean stop in a cluster: this node asks the controller to move its leadership first, so that
clients find the next leaders before it ends (controlled.shutdown.enable).

Its followers stop first: a node that the controller has taken out of the ISR must not come back.

It waits then until it leads no longer what the controller has moved, at most TELL_S seconds: a
client whose write waits for followers is refused (NOT_LEADER_OR_FOLLOWER) and asks the next leader.
Once the broker has begun to stop, it ignores the controller's requests, and such a write waited
until its timeout. A node that is the controller itself also waits until the other brokers know the
new leaders: its connections to them would end with requests under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from barnabas.client.failures import ClientError
from barnabas.config import BrokerConfig
from barnabas.errors import KafkaError, NotController, error_of
from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.tree import MetadataError, StoreUnavailable
from barnabas.server.inter_broker import InterBroker
from barnabas.wire import request

log = logging.getLogger("barnabas.node")

CONTROLLED_SHUTDOWN = 7
CONTROLLED_SHUTDOWN_MIN = 1  # version 0 has a request header of its own
TELL_S, LOOK_S = 5.0, 0.01


class Leave(Protocol):
    """Moves the leadership of a broker if this node is the controller; None if it is not. Returns
    the replicated partitions that the broker still leads. Raises KafkaError and MetadataError."""

    def __call__(self, broker_id: int) -> list[tuple[str, int]] | None: ...


class ControlledShutdown:
    """Moves the leadership of this node's partitions to other brokers before it stops."""

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        cluster: Callable[[], ClusterState],
        leave: Leave,
        led: Callable[[], set[tuple[str, int]]],
        has_told: Callable[[], bool],
        inter_broker: InterBroker,
        stop_followers: Callable[[], object],
        wait: Callable[[float], object],
    ) -> None:
        """`leave`: moves the leadership when this node is the controller; `led`: the partitions
        with several replicas that this node leads; `has_told`: whether the other brokers have
        acknowledged what `leave` has changed; `wait`: waits for a number of seconds."""
        self._node_id = node_id
        self._config = config
        self._cluster = cluster
        self._leave = leave
        self._led = led
        self._has_told = has_told
        self._inter_broker = inter_broker
        self._stop_followers = stop_followers
        self._wait = wait

    def run(self) -> None:
        """Tries controlled.shutdown.max.retries times, with controlled.shutdown.retry.backoff.ms in
        between. The last node of a cluster has no other node to wait for. Without ZooKeeper no
        leader can be elected, and there is no second attempt."""
        if not self._config.boolean("controlled.shutdown.enable"):
            return
        self._stop_followers()
        attempts = self._config.integer("controlled.shutdown.max.retries")
        for attempt in range(attempts):
            try:
                if self._has_moved():
                    return
            except StoreUnavailable as error:
                log.warning("no leadership is moved at this stop: %s", error)
                return
            if not self._cluster().brokers.keys() - {self._node_id}:
                return
            if attempt + 1 < attempts:
                self._wait(self._config.integer("controlled.shutdown.retry.backoff.ms") / 1000)
        log.warning(
            "this node stops and still leads partitions: their clients wait until the controller"
            " elects other leaders"
        )

    def _has_moved(self) -> bool:
        try:
            remaining = self._leave(self._node_id)
            is_controller = remaining is not None
            if remaining is None:
                remaining = self._ask_controller()
            self._wait_until_known(set(remaining), is_controller)
        except StoreUnavailable:
            raise
        except (ClientError, KafkaError, MetadataError) as error:
            log.warning("the controller has not moved the leadership of this node yet: %s", error)
            return False
        if remaining:
            log.info("this node still leads %d partitions: no other is in sync", len(remaining))
        return not remaining

    def _wait_until_known(self, remaining: set[tuple[str, int]], is_controller: bool) -> None:
        """Waits until this node leads nothing but `remaining`, and, if it is the controller, until
        the others know that."""
        for _ in range(int(TELL_S / LOOK_S)):
            if self._led() <= remaining and (not is_controller or self._has_told()):
                return
            self._wait(LOOK_S)
        log.warning(
            "this node stops before %s: clients may wait until another controller is elected",
            "all brokers know the new leaders" if is_controller else "it knows the new leaders",
        )

    def _ask_controller(self) -> list[tuple[str, int]]:
        state = self._cluster()
        if state.controller_id is None:
            raise NotController()
        own = state.brokers.get(self._node_id)
        connection = self._inter_broker.connect(state.controller_id, f"broker-{self._node_id}")
        try:
            body = request(CONTROLLED_SHUTDOWN).cls(
                brokerId=self._node_id, brokerEpoch=-1 if own is None else own.epoch
            )
            answer = connection.call(CONTROLLED_SHUTDOWN, body, low=CONTROLLED_SHUTDOWN_MIN)
        finally:
            connection.close()
        if answer.errorCode:
            raise error_of(answer.errorCode)()
        return [(row.topicName, row.partitionIndex) for row in answer.remainingPartitions]
