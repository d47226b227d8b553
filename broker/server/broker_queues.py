"""A queue and a thread for each other broker that this node sends rows to.

The thread begins with the first row. It takes all rows that have come since its last request, or as
many as fit, and sends them together; so one request is under way to each broker. A broker that has
left the cluster does not answer: its request fails as soon as this node learns of it.

Limit: WAITING_MAX rows wait for one broker.
Kafka: InterBrokerSendThread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from barnabas.cext.memory.threads import NamedThread
from barnabas.client.connection import Connection
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.inter_broker import Reconnecting

WAITING_MAX = 100_000
STOP_S = 5.0

Row = TypeVar("Row")
Send = Callable[["BrokerQueue[Row]", Reconnecting, list[Row]], object]


class BrokerQueues(Generic[Row]):
    """The queues of one node for one kind of rows."""

    def __init__(
        self,
        name: str,
        connect: Callable[[int], Connection],
        log: logging.Logger,
        fitting: Callable[[list[Row]], int],
        send: Send[Row],
    ) -> None:
        """`name`: of the threads, with the broker's id behind it. `connect`: to a broker by its id;
        raises ClientError. `fitting`: how many of the first rows one request takes, at least one.
        `send`: sends rows and takes the answer; it runs on the queue's thread."""
        self._name = name
        self._connect = connect
        self._log = log
        self._fitting = fitting
        self._send = send
        self._lock = threading.Lock()
        self._queues: dict[int, BrokerQueue[Row]] = {}
        self._is_stopped = False

    def put(self, broker_id: int, row: Row) -> bool:
        """Returns False when too many rows wait for the broker, or after the stop."""
        with self._lock:
            if self._is_stopped:
                return False
            queue = self._queues.get(broker_id)
            if queue is None:
                connection = Reconnecting(broker_id, self._connect, self._log)
                queue = BrokerQueue(
                    f"{self._name}-{broker_id}", connection, self._log, self._fitting, self._send
                )
                self._queues[broker_id] = queue
            return queue.put(row)

    def apply(self, state: ClusterState) -> None:
        """Fails what is under way to brokers that are not alive any more."""
        with self._lock:
            gone = [
                queue for broker_id, queue in self._queues.items() if broker_id not in state.brokers
            ]
        for queue in gone:
            queue.connection.reset()

    def stop(self) -> None:
        """Ends all threads; what is under way may be answered or not."""
        with self._lock:
            self._is_stopped = True
            queues = list(self._queues.values())
        for queue in queues:
            queue.stop()
        for queue in queues:
            queue.join()


class BrokerQueue(Generic[Row]):
    """The rows for one broker."""

    def __init__(
        self,
        name: str,
        connection: Reconnecting,
        log: logging.Logger,
        fitting: Callable[[list[Row]], int],
        send: Send[Row],
    ) -> None:
        self.connection = connection
        self._name = name
        self._log = log
        self._fitting = fitting
        self._send = send
        self._waiting: list[Row] = []
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread = NamedThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, row: Row) -> bool:
        with self._changed:
            if len(self._waiting) >= WAITING_MAX:
                return False
            self._waiting.append(row)
            self._changed.notify()
        return True

    def pause(self, seconds: float) -> None:
        """Waits, or until the stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped, seconds)

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        self.connection.interrupt()

    def join(self) -> None:
        self._thread.join(STOP_S)

    def _run(self) -> None:
        while (rows := self._taken()) is not None:
            try:
                self._send(self, self.connection, rows)
            except Exception:
                self._log.exception("the thread %s failed to send requests", self._name)
            del rows  # before the wait: their owners may see that they are gone
        self.connection.close()

    def _taken(self) -> list[Row] | None:
        """Waits for rows, and takes those of one request; None after the stop."""
        with self._changed:
            while not self._waiting and not self._is_stopped:
                self._changed.wait()
            if self._is_stopped:
                self._waiting = []
                return None
            count = self._fitting(self._waiting)
            rows, self._waiting = self._waiting[:count], self._waiting[count:]
            return rows
