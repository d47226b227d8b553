"""A session with ZooKeeper over kazoo, with waits that keep it alive when a server comes back.

kazoo by itself waits up to an hour between two attempts to connect, and for the response to a
handshake as long as the session lasts. Brokers and clients both begin their sessions here.

The caller's context defines TLS. kazoo's own TLS also trusts the authorities of the system, and
does not notice bytes that TLS has decrypted while the socket has none: a response could remain
unread until the next one.
"""

import socket
import ssl
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

CONNECT_AGAIN = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
# A starting server may accept a connection and never answer on it: a limit of a third of the
# session leaves time for another attempt before the session expires.
HANDSHAKES_A_SESSION = 3


class TlsHandler(SequentialThreadingHandler):
    """kazoo's network handler with TLS. `problem`: why the last handshake failed, or ""."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context
        self.problem = ""

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_of_kazoo: Any
    ) -> ssl.SSLSocket:
        """Connects and completes the TLS handshake, within `timeout` seconds."""
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made = self._context.wrap_socket(plain, server_hostname=hostname)
        except BaseException as error:
            plain.close()
            if isinstance(error, ssl.SSLError):
                self.problem = str(error)
            raise
        self.problem = ""
        return made

    def select(self, readers: list[Any], *others: Any, **more: Any) -> Any:
        """Like select.select, but a socket with decrypted bytes is ready to read."""
        found = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.pending()]
        if not found:
            return super().select(readers, *others, **more)
        writers, exceptional = others[:2]
        ready = super().select(readers, writers, exceptional, 0)
        return [*found, *(one for one in ready[0] if one not in found)], *ready[1:]


def zookeeper_client(
    hosts: str, session_timeout_ms: int, context: ssl.SSLContext | None = None, **more: Any
) -> Any:
    """Returns a KazooClient that is not started yet. `context`: TLS, or None for plain connections.
    `more`: its other arguments."""
    client = KazooClient(
        hosts=hosts,
        timeout=session_timeout_ms / 1000,
        connection_retry=CONNECT_AGAIN,
        handler=None if context is None else TlsHandler(context),
        **more,
    )
    connection = client._connection
    invoke = connection._invoke  # used only for handshakes

    def handshake(timeout_s: float, request: Any, xid: int | None = None) -> Any:
        return invoke(timeout_s / HANDSHAKES_A_SESSION, request, xid)

    connection._invoke = handshake
    return client
