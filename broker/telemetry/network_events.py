"""Logs why connections were closed: at most one line for each peer and second.

The network threads put events into a bounded ring and request handlers add to BadRequests; a
repeating task logs both.
"""

import logging
import threading

from barnabas.cext.network.reactor import NetworkEvent, Reactor

log = logging.getLogger("barnabas.network")
PERIOD_MS = 1000

HOSTS_MAX = 256  # in a second: BadRequests counts the requests of further hosts and logs their sum

# Explanations of reasons whose name is not enough. {detail} is the event's number.
EXPLANATIONS = {
    "slow-request": "the client sent less than 64 KiB a second of a request of which the broker"
    " holds {detail} bytes, while other requests waited for memory (queued.max.request.bytes)",
    "no-login": "request {detail} before the client had logged in; set security.protocol and"
    " sasl.mechanism in the client",
    "login-expired": "request {detail} after the login had ended (connections.max.reauth.ms, or the"
    " expiry of a token); use a client that logs in again (KIP-368)",
    "plaintext-client": "a client without TLS on a TLS listener; set security.protocol=SSL in the"
    " client",
    "handshake-timeout": "the TLS handshake was not over in time (request.receive.timeout.ms)",
    "connection-rate-per-ip": "its address opens more connections a second than its"
    " connection_creation_rate allows; closes after {detail} ms",
    "too-many-handshakes": "the oldest of too many TLS handshakes in progress (max.tls.handshakes)",
    "tls-client": "a TLS client on a PLAINTEXT listener; set security.protocol=PLAINTEXT in the"
    " client",
    "http-client": "an HTTP client on a PLAINTEXT listener, which serves only the Kafka protocol",
}


def write_events(reactor: Reactor) -> int:
    """Logs the events since the last call; returns the number of lines."""
    events = reactor.events()
    for event in events:
        more = f", and {event.suppressed} more like it" if event.suppressed else ""
        log.warning(
            "connection of %s:%d on %s closed: %s%s",
            event.host,
            event.port,
            event.listener,
            _why(event),
            more,
        )
    return len(events)


def _why(event: NetworkEvent) -> str:
    if event.reason == "tls":
        from barnabas.cext.network.tls import reason_text  # OpenSSL is loaded already

        return f"TLS failed: {reason_text(event.detail)}"
    if event.reason in EXPLANATIONS:
        return f"{event.reason}: {EXPLANATIONS[event.reason].format(detail=event.detail)}"
    return f"{event.reason} ({event.detail})"


class BadRequests:
    """Requests for which a request handler closed the connection; any thread adds them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[str, _Closed] = {}
        self._others = 0

    def add(self, host: str, port: int, why: str) -> None:
        """Adds a closed connection; for hosts beyond HOSTS_MAX it only counts it."""
        with self._lock:
            closed = self._hosts.get(host)
            if closed is not None:
                closed.more += 1
            elif len(self._hosts) < HOSTS_MAX:
                self._hosts[host] = _Closed(port, why)
            else:
                self._others += 1

    def write(self) -> int:
        """Logs one line for each host with a bad request since the last call; returns the number of
        lines."""
        with self._lock:
            hosts, self._hosts = self._hosts, {}
            others, self._others = self._others, 0
        for host, closed in hosts.items():
            more = f", and {closed.more} more of this host" if closed.more else ""
            log.info("connection of %s:%d closed: %s%s", host, closed.port, closed.why, more)
        if others:
            log.info("%d more connections of other hosts closed for bad requests", others)
        return len(hosts) + bool(others)


class _Closed:
    """The first bad request of a host in a second, and the number of those after it."""

    __slots__ = ("more", "port", "why")

    def __init__(self, port: int, why: str) -> None:
        self.port = port
        self.why = why
        self.more = 0
