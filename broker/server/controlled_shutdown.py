"""A clean stop in a cluster: this node asks the controller to move its leadership first, so that
clients find the next leaders before it ends (controlled.shutdown.enable).

Its followers stop first: a node that the controller has taken out of the ISR must not come back.
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
        inter_broker: InterBroker,
        stop_followers: Callable[[], object],
        wait: Callable[[float], object],
    ) -> None:
        """`leave`: moves the leadership when this node is the controller; `wait`: waits for a
        number of seconds."""
        self._node_id = node_id
        self._config = config
        self._cluster = cluster
        self._leave = leave
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
            if remaining is None:
                remaining = self._ask_controller()
        except StoreUnavailable:
            raise
        except (ClientError, KafkaError, MetadataError) as error:
            log.warning("the controller has not moved the leadership of this node yet: %s", error)
            return False
        if remaining:
            log.info("this node still leads %d partitions: no other is in sync", len(remaining))
        return not remaining

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
