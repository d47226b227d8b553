"""Connections from this node to other brokers of its cluster.

They use the listener of inter.broker.listener.name (or security.inter.broker.protocol), its TLS
settings, and the mechanism of sasl.mechanism.inter.broker.protocol with the user of that listener's
JAAS line or section of the JAAS file (LISTENER.KafkaServer or KafkaServer), or with the token that
the settings sasl.oauthbearer. of that listener get, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from barnabas.client.connection import Connection
from barnabas.client.failures import BadSetting, CannotConnect, ClientError
from barnabas.client.security import Security
from barnabas.client.security_settings import FAMILIES, JAAS, parse_security
from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.znodes import Endpoint
from barnabas.wire import Struct

CONNECT_TIMEOUT_S = 5.0


class InterBroker:
    """How this node connects to others. Raises BadSetting when the settings of the listener between
    brokers cannot be used for connections."""

    def __init__(
        self,
        listener: str,
        protocol: str,
        values: Callable[[], Mapping[str, str]],
        cluster: Callable[[], ClusterState],
        answer_timeout_s: float,
    ) -> None:
        """`values` returns the texts of all settings in force; `answer_timeout_s`:
        request.timeout.ms, in seconds."""
        self._listener = listener
        self._cluster = cluster
        self._answer_timeout_s = answer_timeout_s
        self._made = partial(security_between_brokers, listener, protocol)
        self._values = values
        self.security = self._made(values())

    def problems(self, values: Mapping[str, str], names: Iterable[str]) -> list[str]:
        """Why this node could not connect to others by the altered settings `names`."""
        try:
            if self._is_touched(names):
                self._made(values)
        except BadSetting as error:
            return [f"connections to other brokers by the listener {self._listener}: {error}"]
        return []

    def changed(self, names: Iterable[str]) -> None:
        """Connects by altered settings from now on. Raises BadSetting; nothing has changed then."""
        if self._is_touched(names):
            self.security = self._made(self._values())

    def _is_touched(self, names: Iterable[str]) -> bool:
        own = f"listener.name.{self._listener.lower()}."
        return any(name.startswith((own, *FAMILIES)) for name in names)

    def connect(
        self, broker_id: int, client_id: str, answer_timeout_s: float | None = None
    ) -> Connection:
        """Returns a new connection, logged in. `answer_timeout_s`: None: request.timeout.ms.
        Raises CannotConnect, also for a broker that is not registered, and the other errors of
        Connection."""
        endpoint = self.endpoint(broker_id)
        return Connection(
            endpoint.host,
            endpoint.port,
            client_id=client_id,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            answer_timeout_s=answer_timeout_s or self._answer_timeout_s,
            security=self.security,
        )

    def address(self, broker_id: int) -> tuple[str, int] | None:
        """Returns where a broker listens for others; None for one that is not alive or does not."""
        try:
            endpoint = self.endpoint(broker_id)
        except CannotConnect:
            return None
        return endpoint.host, endpoint.port

    def endpoint(self, broker_id: int) -> Endpoint:
        """Returns where a broker listens for others. Raises CannotConnect."""
        broker = self._cluster().brokers.get(broker_id)
        if broker is None:
            raise CannotConnect(f"broker {broker_id} is not registered")
        for endpoint in broker.registration.endpoints:
            if endpoint.listener_name == self._listener:
                return endpoint
        raise CannotConnect(
            f"broker {broker_id} has no listener {self._listener} (inter.broker.listener.name)"
        )


class Reconnecting:
    """A connection to one broker that opens with the first request, and again after a failure. One
    thread uses it; any thread may interrupt it."""

    def __init__(
        self, broker_id: int, connect: Callable[[int], Connection], log: logging.Logger
    ) -> None:
        """`log`: gets each reason why the broker cannot be reached once, until it is reached."""
        self._broker_id = broker_id
        self._connect = connect
        self._log = log
        self._connection: Connection | None = None
        self._said = ""
        self._is_interrupted = False

    def call(
        self,
        key: int,
        body: Struct | Callable[[int], Struct | bytes],
        low: int = 0,
        high: int | None = None,
    ) -> Struct:
        """As Connection.call. Raises ClientError; the next call then connects again."""
        try:
            if self._connection is None:
                self._connection = self._connect(self._broker_id)
            answer = self._connection.call(key, body, low, high)
        except ClientError as error:
            self.close()
            if not self._is_interrupted and str(error) != self._said:
                self._log.warning("cannot reach broker %d: %s", self._broker_id, error)
            self._said = str(error)
            raise
        self._said = ""
        return answer

    def interrupt(self) -> None:
        """Ends the present call, because the thread that uses the connection is to stop."""
        self._is_interrupted = True
        self.reset()

    def reset(self) -> None:
        """Fails the present call, because its broker is gone."""
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def security_between_brokers(
    listener: str, protocol: str, values: Mapping[str, str]
) -> Security | None:
    """Returns the protection of connections between brokers, None for plain ones. Raises
    BadSetting."""
    from barnabas.config.jaas import server_sections

    prefix = f"listener.name.{listener.lower()}."
    given = {name: text for name, text in values.items() if name.startswith(FAMILIES)}
    mechanism = values.get("sasl.mechanism.inter.broker.protocol", "GSSAPI")
    for start in (prefix, f"{prefix}{mechanism.lower()}."):  # the later one is stronger
        given.pop(JAAS, None)  # counts with listener and mechanism in front only, as in Kafka
        given |= {
            name.removeprefix(start): text
            for name, text in values.items()
            if name.startswith(start)
        }
    given |= {"security.protocol": protocol, "sasl.mechanism": mechanism}
    return parse_security(given, sections=server_sections(listener))
