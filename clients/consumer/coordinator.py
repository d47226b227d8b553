"""The connection to a group's coordinator, which is looked up at the first request and after the
coordinator has moved."""

from __future__ import annotations

import threading
from collections.abc import Callable

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.failures import raise_for
from barnabas.client.groups import COORDINATOR_HIGH, FIND_COORDINATOR
from barnabas.errors import CoordinatorNotAvailable, NotCoordinator
from barnabas.wire import Struct, request

MOVED = (NotCoordinator.code, CoordinatorNotAvailable.code)


class Coordinator:
    """Sends one request at a time. Raises ClientError, and KafkaError when there is no
    coordinator."""

    def __init__(self, group_id: str, connect: Callable[[], Cluster]) -> None:
        self._group_id = group_id
        self._connect = connect
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._connection: Connection | None = None

    def call(
        self,
        key: int,
        body: Struct | Callable[[int], Struct],
        low: int = 0,
        high: int | None = None,
        *,
        wait_s: float = 0.0,
    ) -> Struct:
        """Sends a request and returns the response, whatever its error code. The coordinator may
        take `wait_s` longer than for other requests. Raises ClientError, KafkaError."""
        with self._lock:
            connection = self._found()
            usual_s = connection.answer_timeout_s
            connection.answer_timeout_s = usual_s + wait_s
            try:
                return connection.call(key, body, low=low, high=high)
            finally:
                connection.answer_timeout_s = usual_s

    def check_code(self, code: int) -> None:
        """Raises the error of a code. After some errors the next request looks up the
        coordinator."""
        if code in MOVED:
            self.forget()
        raise_for(code, f"group {self._group_id}")

    def forget(self) -> None:
        """Makes the next request look up the coordinator."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """Ends the wait of another thread for a response; that thread gets ConnectionLost."""
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    def close(self) -> None:
        """Closes the connection. No thread may send a request after this."""
        self.forget()
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def _found(self) -> Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        if self._cluster is None:
            self._cluster = self._connect()
        body = request(FIND_COORDINATOR).cls(key=self._group_id)
        try:
            answer = self._cluster.any_connection().call(
                FIND_COORDINATOR, body, high=COORDINATOR_HIGH
            )
            raise_for(answer.errorCode, f"the coordinator of group {self._group_id}")
            self._cluster.refresh([])
            self._connection = self._cluster.connection_to(answer.nodeId)
        except BaseException:
            self._cluster.close()
            self._cluster = None  # the next request looks up the brokers again
            raise
        return self._connection
