"""The controller's connections to the other brokers: a channel with its own thread for each.

A channel keeps only the newest state and has no queue: it sends what its broker has not
acknowledged yet (broker_requests.py). It retries until the broker has acknowledged the state, the
broker has stopped, or this node is no longer the controller. When the broker refuses a request (an
outdated epoch), the channel retries as well.

Source: Kafka's ControllerChannelManager.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from barnabas.cext.memory.threads import NamedThread
from barnabas.client.connection import Connection
from barnabas.client.failures import ClientError
from barnabas.controller.broker_requests import AcknowledgedState, next_requests
from barnabas.controller.state_difference import StateDifferences
from barnabas.errors import error_of
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.inter_broker import Reconnecting

log = logging.getLogger("barnabas.controller")

AGAIN_S = 0.2
STOP_S = 5.0

Connect = Callable[[int], Connection]  # to a broker by its id; raises ClientError


class ControllerChannelManager:
    """The channels to all other brokers. `update` gives them a new state."""

    def __init__(self, node_id: int, connect: Connect) -> None:
        self._node_id = node_id
        self._connect = connect
        self._channels: dict[int, _Channel] = {}
        self._differences = StateDifferences()
        # Called when a broker has answered that the logs of other replicas than before have failed.
        self.on_offline: Callable[[], object] = lambda: None

    def update(self, state: ClusterState) -> None:
        """Sends what is new in `state` to all other brokers, and returns at once. Only one thread
        may call it, and only while this node is the controller."""
        others = {id_: row.epoch for id_, row in state.brokers.items() if id_ != self._node_id}
        for broker_id, channel in list(self._channels.items()):
            if others.get(broker_id) != channel.acknowledged.broker_epoch:
                del self._channels[broker_id]
                channel.stop()
        for broker_id, epoch in others.items():
            if broker_id not in self._channels:
                acknowledged = AcknowledgedState(broker_id, epoch)
                self._channels[broker_id] = _Channel(
                    acknowledged,
                    self._node_id,
                    self._connect,
                    self._differences,
                    lambda: self.on_offline(),
                )
            self._channels[broker_id].update(state)

    def ask_again(self, broker_id: int) -> None:
        """Sends LeaderAndIsr for all replicas of a broker: the logs of some may have failed."""
        if broker_id in self._channels:
            self._channels[broker_id].ask_again()

    def offline_replicas(self) -> dict[int, frozenset[tuple[str, int]]]:
        """Returns the partitions whose log a broker cannot use, by broker, as it has answered."""
        return {id_: row.acknowledged.offline for id_, row in self._channels.items()}

    def is_acknowledged(self, state: ClusterState) -> bool:
        """Returns whether all other brokers have acknowledged the partitions of `state`. Any thread
        may call it."""
        channels = dict(self._channels)
        return state.brokers.keys() - {self._node_id} <= channels.keys() and all(
            channel.acknowledged.has(state) for channel in channels.values()
        )

    def stop(self) -> None:
        """Ends all channels, because this node stops or is no longer the controller."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.stop()
        for channel in channels.values():
            channel.join()
        self._differences.clear()


class _Channel:
    def __init__(
        self,
        acknowledged: AcknowledgedState,
        controller_id: int,
        connect: Connect,
        differences: StateDifferences,
        on_offline: Callable[[], object],
    ) -> None:
        self.acknowledged = acknowledged
        self._differences = differences
        self._controller_id = controller_id
        self._connection = Reconnecting(acknowledged.broker_id, connect, log)
        self._on_offline = on_offline
        self._state: ClusterState | None = None
        self._asks_again = False
        self._wake = threading.Event()
        self._is_stopped = False
        name = f"controller-to-{acknowledged.broker_id}"
        self._thread = NamedThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def update(self, state: ClusterState) -> None:
        self._state = state
        self._wake.set()

    def ask_again(self) -> None:
        self._asks_again = True
        self._wake.set()

    def stop(self) -> None:
        """Ends the channel soon; does not wait."""
        self._is_stopped = True
        self._wake.set()
        self._connection.interrupt()

    def join(self) -> None:
        self._thread.join(STOP_S)

    @property
    def is_awake(self) -> bool:
        """Whether there is a new state, or the stop: the thread waits while there is neither."""
        return self._wake.is_set()

    def _run(self) -> None:
        again = False
        while True:
            self._wake.wait(AGAIN_S if again else None)
            if self._is_stopped:
                break
            again = not self.step()
        self._connection.close()

    def step(self) -> bool:
        """Sends what the broker has not acknowledged; returns False when it must be sent again
        after AGAIN_S. Only one thread may call it."""
        self._wake.clear()
        state = self._state
        if state is None:
            return True
        if self._asks_again:
            self._asks_again = False
            self.acknowledged.asks_again = True
        offline = self.acknowledged.offline
        try:
            self.acknowledged.settle()
            difference = self._differences.between(self.acknowledged.base, state)
            for row in next_requests(self.acknowledged, state, self._controller_id, difference):
                answer = self._connection.call(row.key, row.body, high=row.version_max)
                if answer.errorCode:
                    refused = error_of(answer.errorCode)()
                    log.info(
                        "broker %d refused a request of the controller: %s",
                        self.acknowledged.broker_id,
                        refused.message,
                    )
                    return False
                row.acknowledge(answer)
                if self.acknowledged.offline != offline:
                    offline = self.acknowledged.offline
                    self._on_offline()
                if self._state is not state or self._is_stopped:
                    return False  # the newer state has all of this one
        except ClientError:
            return False  # the connection has logged it
        except Exception:
            log.exception("a request to broker %d failed", self.acknowledged.broker_id)
            return False
        return True
