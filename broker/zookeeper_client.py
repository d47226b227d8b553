"""A session with ZooKeeper over kazoo, with waits that keep it alive when a server comes back.

kazoo by itself waits up to an hour between two attempts to connect, and for an answer to a
handshake as long as the session lasts. Brokers and clients both begin their sessions here.
"""

from typing import Any

from kazoo.client import KazooClient

CONNECT_AGAIN = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
# A starting server may accept a connection and never answer on it: a limit of a third of the
# session leaves time for another attempt before the session expires.
HANDSHAKES_A_SESSION = 3


def zookeeper_client(hosts: str, session_timeout_ms: int, **more: Any) -> Any:
    """A KazooClient that is not started yet; `more` are its other arguments."""
    client = KazooClient(
        hosts=hosts,
        timeout=session_timeout_ms / 1000,
        connection_retry=CONNECT_AGAIN,
        **more,
    )
    connection = client._connection
    invoke = connection._invoke  # used for handshakes alone

    def handshake(timeout_s: float, request: Any, xid: int | None = None) -> Any:
        return invoke(timeout_s / HANDSHAKES_A_SESSION, request, xid)

    connection._invoke = handshake
    return client
