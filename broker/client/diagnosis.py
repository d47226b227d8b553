"""Looks for the reason why clients cannot use a broker: `barnabas doctor`.

`diagnose` takes the steps of a client one by one, from the name of the host to the addresses that
the broker gives to clients (`advertised.listeners`), and takes them at each of these addresses too:

1. the host has an address, and the port accepts a connection;
2. what the port speaks: an ApiVersions request in plain text, which every Kafka answers before a
   login; a server that closes or sends an alert is asked again over TLS, without a check of its
   certificate;
3. whether it expects a login: SaslHandshake with a mechanism that nobody has. A listener with
   logins answers with its mechanisms, another one with ILLEGAL_SASL_STATE;
4. a connection with the client's own settings, which checks the certificate and logs in;
5. Metadata: the addresses of the brokers.

A broker counts step 3 as a failed login. Limits: `timeout_s` for each wait, ANSWER_BYTES_MAX for an
answer of steps 2 and 3, BROKERS_MAX addresses of step 5.
"""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.client.cluster import Broker, Cluster
from barnabas.client.connection import SASL_HANDSHAKE, Connection
from barnabas.client.failures import AuthenticationFailed, ClientError, NoTls
from barnabas.client.security import Security
from barnabas.errors import KafkaError, SaslAuthenticationFailed, UnsupportedSaslMechanism
from barnabas.wire import Struct, request, response
from barnabas.wire.api_keys import API_VERSIONS
from barnabas.wire.headers import decode_response_header, encode_request

NAMED = {0: "Produce", 1: "Fetch"}  # requests whose versions are shown
ANSWER_BYTES_MAX = 1 << 20
SHOWN_BYTES = 40  # of an answer that is not Kafka's
BROKERS_MAX = 100
ADDRESSES_MAX = 8
NO_MECHANISM = "BARNABAS-DOCTOR"
ALERT = b"\x15\x03"  # the first bytes of a TLS alert
CONFIG = "a file for --command-config"
# Numbers of OpenSSL's X509_verify_cert.
NOT_YET_VALID, EXPIRED, WRONG_HOST, WRONG_ADDRESS = 9, 10, 62, 64


class Finding(NamedTuple):
    """A problem, and what to do about it; each is a sentence without its full stop."""

    problem: str
    remedy: str


class Diagnosis:
    """What was found: `facts` that are right, and `findings` that are wrong."""

    def __init__(self) -> None:
        self.facts: list[str] = []
        self.findings: list[Finding] = []

    def found(self, problem: str, remedy: str) -> None:
        self.findings.append(Finding(problem, remedy))


class Port(NamedTuple):
    """What speaks behind a port. `other`: text about a server that is not Kafka's, "" for Kafka;
    `asks_certificate`: TLS ended because the client has no certificate; `mechanisms`: of logins,
    None when it expects no login or that is not known."""

    other: str = ""
    is_tls: bool = False
    asks_certificate: bool = False
    versions: dict[int, tuple[int, int]] = {}
    mechanisms: list[str] | None = None


def diagnose(host: str, port: int, security: Security | None, timeout_s: float) -> Diagnosis:
    """Returns the diagnosis of the broker at an address. `security`: the client's settings, None
    for plain text. Raises nothing for what a server or a network can do."""
    diagnosis = Diagnosis()
    if not _examine(diagnosis, host, port, security, timeout_s):
        return diagnosis
    address = shown(host, port)
    try:
        with Cluster(
            address,
            timeout_s=timeout_s,
            connect_timeout_s=timeout_s,
            answer_timeout_s=timeout_s,
            security=security,
        ) as cluster:
            cluster.refresh([])
            brokers, cluster_id = list(cluster.brokers.values()), cluster.cluster_id
    except (ClientError, KafkaError) as error:
        diagnosis.found(
            f"{address} does not answer Metadata: {str(error).rstrip('.')}", "Read the broker's log"
        )
        return diagnosis
    diagnosis.facts.append(f"cluster {cluster_id}, live brokers: {len(brokers)}")
    if not brokers:
        diagnosis.found(
            f"{address} names no broker to clients",
            "Wait until a broker has registered, or read the broker's log",
        )
    for broker in sorted(brokers, key=lambda row: row.node_id)[:BROKERS_MAX]:
        _examine_advertised(diagnosis, broker, (host, port), security, timeout_s)
    return diagnosis


def shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# -- the addresses for clients


def _examine_advertised(
    diagnosis: Diagnosis,
    broker: Broker,
    given: tuple[str, int],
    security: Security | None,
    timeout_s: float,
) -> None:
    """Adds what a client finds at the address that the cluster gives for a broker."""
    address, first = shown(broker.host, broker.port), shown(*given)
    says = f"{first} answers, and tells clients to connect to broker {broker.node_id} at {address}"
    remedy = (
        f"Set advertised.listeners of broker {broker.node_id} to an address that its clients reach"
    )
    if (broker.host, broker.port) == given:
        diagnosis.facts.append(f"broker {broker.node_id} is advertised as {address}")
        return
    if _is_loopback(broker.host) and not _is_loopback(given[0]):
        diagnosis.found(f"{says}, which is every client's own host", remedy)
        return
    there = Diagnosis()
    if _examine(there, broker.host, broker.port, security, timeout_s):
        diagnosis.facts.append(f"broker {broker.node_id} is advertised as {address}, and answers")
    for finding in there.findings:
        diagnosis.found(f"{says}; there: {finding.problem}", f"{remedy}. Or: {finding.remedy}")


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


# -- one address


def _examine(
    diagnosis: Diagnosis, host: str, port: int, security: Security | None, timeout_s: float
) -> bool:
    """Takes the steps 1 to 4 at an address. Returns whether a client with these settings can use
    it."""
    address = shown(host, port)
    if not _is_reached(diagnosis, host, port, timeout_s):
        return False
    try:
        found = _ask_port(host, port, security, timeout_s)
    except (OSError, ClientError) as error:
        diagnosis.found(f"{address}: {_reason(error)}", "Try again; read the broker's log")
        return False
    if found.other:
        diagnosis.found(
            f"{address} {found.other}", "Give the port of a listener of the broker (`listeners`)"
        )
        return False
    if found.versions:
        known = {name: found.versions[key] for key, name in NAMED.items() if key in found.versions}
        versions = ", ".join(f"{name} {low} to {high}" for name, (low, high) in known.items())
        diagnosis.facts.append(f"{address} speaks Kafka's protocol ({versions})")
    before = len(diagnosis.findings)
    _compare(diagnosis, address, found, security)
    if len(diagnosis.findings) > before:
        return False
    return _connects(diagnosis, host, port, security, timeout_s)


def _is_reached(diagnosis: Diagnosis, host: str, port: int, timeout_s: float) -> bool:
    """Step 1."""
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        diagnosis.found(
            f"{host} has no address: {_reason(error)}",
            "Correct the name, or add it to DNS or to /etc/hosts of this host",
        )
        return False
    failures: dict[str, str] = {}
    for family, kind, protocol, _, place in rows[:ADDRESSES_MAX]:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.settimeout(timeout_s)
                probe.connect(place)
        except OSError as error:
            failures[str(place[0])] = _why_not_reached(error, timeout_s)
        else:
            diagnosis.facts.append(f"{host} is {place[0]}, and port {port} is open")
            return True
    whys = list(dict.fromkeys(failures.values()))
    where = shown(host, port)
    tried = ", ".join(one for one in failures if one != host)
    diagnosis.found(
        f"{where} is not reached{f' ({tried})' if tried else ''}: {'; '.join(whys)}",
        "Start the broker, correct the port, or check that `listeners` of the broker has an address"
        " that this host reaches and no firewall is between",
    )
    return False


def _why_not_reached(error: OSError, timeout_s: float) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    return _reason(error)


def _compare(diagnosis: Diagnosis, address: str, found: Port, security: Security | None) -> None:
    """Adds where the protection of a port and the client's settings differ."""
    security = security or Security()
    has_tls, login = security.tls is not None, security.sasl
    protocol = ("SASL_" if found.mechanisms is not None else "") + (
        "SSL" if found.is_tls else "PLAINTEXT"
    )
    change = f"Give {CONFIG} with security.protocol={protocol}, or the port of another listener"
    if found.is_tls and not has_tls:
        both = "TLS and a login (SASL)" if found.mechanisms is not None and not login else "TLS"
        diagnosis.found(f"{address} expects {both}, and this client speaks plain text", change)
    elif has_tls and not found.is_tls:
        diagnosis.found(f"{address} speaks plain text, and the settings ask for TLS", change)
    if found.asks_certificate:  # whether it expects a login is not known
        own = "another" if security.tls is not None and security.tls.own_chain else "a"
        diagnosis.found(
            f"{address} asks for {own} client's certificate",
            f"Give {CONFIG} with ssl.keystore.location",
        )
        return
    if found.mechanisms is not None:
        known = ", ".join(found.mechanisms) or "none"
        if login is None and (has_tls or not found.is_tls):
            diagnosis.found(
                f"{address} expects a login (SASL) by {known}",
                f"Give {CONFIG} with security.protocol={protocol}, sasl.mechanism and"
                " sasl.jaas.config",
            )
        elif login is not None and login.mechanism not in found.mechanisms:
            diagnosis.found(
                f"{address} takes logins by {known}, and the settings have {login.mechanism}",
                "Change sasl.mechanism, or sasl.enabled.mechanisms of the broker",
            )
    elif login is not None and found.versions:
        diagnosis.found(
            f"{address} expects no login, and the settings have one by {login.mechanism}", change
        )


def _connects(
    diagnosis: Diagnosis, host: str, port: int, security: Security | None, timeout_s: float
) -> bool:
    """Step 4."""
    address = shown(host, port)
    try:
        Connection(
            host,
            port,
            connect_timeout_s=timeout_s,
            answer_timeout_s=timeout_s,
            security=security,
        ).close()
    except NoTls as error:
        diagnosis.found(f"{address}: {_reason(error)}", _certificate_remedy(error, host))
    except (AuthenticationFailed, SaslAuthenticationFailed) as error:
        diagnosis.found(
            f"{address} refuses the login: {_reason(error)}",
            "Correct the user and the password; `barnabas users list` shows SCRAM users, and the"
            " broker's log says more",
        )
    except (ClientError, KafkaError) as error:
        diagnosis.found(f"{address}: {_reason(error)}", "Read the broker's log")
    else:
        if security is not None:
            login = f" and the login of {security.sasl.who}" if security.sasl else ""
            diagnosis.facts.append(f"{address} takes the settings{login}")
        return True
    return False


def _certificate_remedy(error: NoTls, host: str) -> str:
    cause = error.__cause__
    code = getattr(cause, "verify_code", None)
    if code in (WRONG_HOST, WRONG_ADDRESS):
        return (
            f"Connect by a name that the certificate has, or make one that has {host}"
            " (`barnabas security init --host NAME`)"
        )
    if code == EXPIRED:
        return "Renew the broker's certificate (`barnabas security renew`)"
    if code == NOT_YET_VALID:
        return "Correct the clock of this host or of the broker"
    return "Set ssl.truststore.location to the certificate of the authority that the broker has"


# -- what a port speaks


class _NotKafka(Exception):
    """The bytes that came in place of an answer; none when the server closed."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data


def _ask_port(host: str, port: int, security: Security | None, timeout_s: float) -> Port:
    """Steps 2 and 3. Raises OSError, ClientError."""
    with socket.create_connection((host, port), timeout=timeout_s) as plain:
        try:
            return _ask(plain, timeout_s)
        except TimeoutError:
            return Port(other=f"accepts connections and does not answer within {timeout_s:g} s")
        except _NotKafka as error:
            data = error.data
        except (ConnectionError, MalformedMessage):
            data = b""
    if data and not data.startswith(ALERT):
        return Port(other=_not_kafka(data))
    with socket.create_connection((host, port), timeout=timeout_s) as plain:
        try:
            with _unchecked(security).wrap_socket(plain, server_hostname=host) as protected:
                return _ask(protected, timeout_s)._replace(is_tls=True)
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            if "CERTIFICATE" in reason:
                return Port(is_tls=True, asks_certificate=True)
            if data or "ALERT" in reason:
                return Port(other=f"speaks TLS, and the handshake fails: {reason}")
        except TimeoutError:
            return Port(other=f"speaks TLS and does not answer within {timeout_s:g} s")
        except _NotKafka as error:
            return Port(other=f"speaks TLS and {_not_kafka(error.data)}")
        except (OSError, MalformedMessage):
            pass
    return Port(other="closes connections without an answer of Kafka's protocol or TLS")


def _not_kafka(data: bytes) -> str:
    if data.startswith(b"HTTP/"):
        return "speaks HTTP, not Kafka's protocol"
    if not data:
        return "closes the connection without an answer of Kafka's protocol"
    return f"does not speak Kafka's protocol: it sends {data[:SHOWN_BYTES]!r}"


def _unchecked(security: Security | None) -> ssl.SSLContext:
    """Returns a context that shows the client's certificate and checks none. It carries no secret:
    the login follows on a checked connection. Raises NoTls."""
    if security is not None and security.tls is not None:
        context = security.tls.context()
    else:
        context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _ask(connection: socket.socket, timeout_s: float) -> Port:
    """Asks for the versions and the mechanisms of logins. Raises _NotKafka, OSError,
    MalformedMessage."""
    answer = _exchange(connection, API_VERSIONS, 0, request(API_VERSIONS).cls(), timeout_s)
    versions = {row.apiKey: (row.minVersion, row.maxVersion) for row in answer.apiKeys}
    mechanisms = None
    if SASL_HANDSHAKE in versions:
        asked = request(SASL_HANDSHAKE).cls(mechanism=NO_MECHANISM)
        with suppress(_NotKafka, ConnectionError):  # a broker that closes at once
            answer = _exchange(connection, SASL_HANDSHAKE, 0, asked, timeout_s)
            if answer.errorCode == UnsupportedSaslMechanism.code:  # else ILLEGAL_SASL_STATE
                mechanisms = list(answer.mechanisms)
    return Port(versions=versions, mechanisms=mechanisms)


def _exchange(
    connection: socket.socket, key: int, version: int, body: Struct, timeout_s: float
) -> Struct:
    """Sends a request, and returns its answer. Raises _NotKafka, OSError, MalformedMessage."""
    deadline_s = time.monotonic() + timeout_s
    connection.sendall(encode_request(key, version, key, "barnabas-doctor", body))
    pieces = _pieces(connection, deadline_s)
    data = b""
    while len(data) < 4:
        data += _next(pieces, data)
    size_bytes = int.from_bytes(data[:4], "big", signed=True)
    if not 4 <= size_bytes <= ANSWER_BYTES_MAX:
        raise _NotKafka(data)
    while len(data) < 4 + size_bytes:
        data += _next(pieces, data)
    frame = data[4 : 4 + size_bytes]
    if int.from_bytes(frame[:4], "big") != key:
        raise _NotKafka(data)
    _, offset = decode_response_header(frame, key, version)
    return response(key).decode(frame, version, offset)


def _pieces(connection: socket.socket, deadline_s: float) -> Iterator[bytes]:
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        piece = connection.recv(1 << 16)
        if not piece:
            return
        yield piece


def _next(pieces: Iterator[bytes], before: bytes) -> bytes:
    for piece in pieces:
        return piece
    raise _NotKafka(before)


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).rstrip(".")
