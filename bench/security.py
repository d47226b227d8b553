#!/usr/bin/env python3
"""Compares TLS, logins and access rules with Apache Kafka, and with an echo over the same TLS
library.

    python bench/security.py [--quick] [--rows bulk,handshake,...] [--repeats N] [--kafka VERSION]
                             [--out DIR] [--data DIR] [--list] [--draw security.json]

The turns, the table and the plot are those of bench/broker.py; README.md says how it compares. Both
brokers have a listener of each protocol, with the same key (RSA, 2,048 bits), TLS 1.3 only, and the
same cipher suite. In a handshake row both ends close each connection with close_notify as soon as
it is open. No broker can cost less than the echo.
"""

import hashlib
import os
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rows import BULK, GB, RECORD_BYTES, RECORDS, STARTS, Bar, Figures, Measure, Row, serving
from sides import (
    Ours,
    Side,
    SideError,
    Theirs,
    cpu_s,
    create_topic,
    drop_from_cache,
    free_ports,
    recycle_memory,
    wait_for_metadata,
)

from barnabas.client.connection import Connection
from barnabas.client.security import Sasl, Security, Tls
from barnabas.wire import request
from broker import Bench, compared

SUITE = "TLS_AES_256_GCM_SHA384"
USER, PASSWORD = "bench", "bench-secret"
SCRAM, MECHANISM, MECHANISM_CODE = "SCRAM-SHA-512", "scram-sha-512", 2
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
FETCH_BYTES = 1 << 20
ANSWER_BYTES = 60
SETTLE_S = 0.3  # the broker may still work on the last handshake when its client has ended it
# Kafka's network threads get connections in turns. Each has its own TLS context, so it resumes only
# sessions that it has begun itself.
NETWORK_THREADS = 3
PRINCIPALS, RULES_EACH, RULES_A_REQUEST = 1000, 10, 1000
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # Kafka's broker and this script are User:ANONYMOUS
}
TOPIC, LITERAL, PREFIXED, WRITE, ALLOW = 2, 3, 4, 4, 3  # codes of CreateAcls


@dataclass
class Size:
    """The size of a run. `quick` shows that everything works; its results are of a cold JVM."""

    seconds: float
    bulk_bytes: int
    warm_bytes: int
    warm_requests: int
    warm_handshakes: int
    handshakes: int
    logins: int
    turns: int  # with rules and without, in each round
    repeats: int


FULL = Size(4, GB, 3 * GB, 300_000, 4_000, 2_000, 1_000, 5, 5)
QUICK = Size(1, GB // 20, GB // 10, 20_000, 100, 100, 50, 2, 1)


def settings_of(ports: dict[str, int], pem: Path, controller: dict[str, str]) -> dict[str, str]:
    """Returns the settings, the same on both sides. `controller`: the listener that KRaft needs."""
    addresses = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    protocols = {name: name for name in ports} | {name: "PLAINTEXT" for name in controller}
    return {
        "listeners": ",".join([*addresses, *controller.values()]),
        "advertised.listeners": ",".join(addresses),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.cipher.suites": SUITE,
        "sasl.enabled.mechanisms": SCRAM,
        f"listener.name.sasl_ssl.{MECHANISM}.sasl.jaas.config": MODULE,
        f"listener.name.sasl_plaintext.{MECHANISM}.sasl.jaas.config": MODULE,
    }


class SecurityBench(Bench):
    """The turns of bench/broker.py with TLS listeners, a load over TLS, and another warm-up."""

    size: Size

    def build(self) -> None:
        compiler = os.environ.get("CC", "cc")
        here, libraries = Path(__file__).resolve().parent, ["-lssl", "-lcrypto"]
        self.echo = self.data / "tlsecho"
        self.pem, self.trusted = self.data / "broker.pem", self.data / "trusted.pem"
        for made, source, flags in (
            (self.generator, "loadgen.c", ["-DWITH_TLS"]),
            (self.echo, "tlsecho.c", []),
        ):
            words = [compiler, "-O2", *flags, "-o", str(made), str(here / source), *libraries]
            subprocess.run(words, check=True)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30",
             "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", str(self.pem), "-out", str(self.trusted)],
            check=True, capture_output=True,
        )  # fmt: skip
        with open(self.pem, "a") as file:
            file.write(self.trusted.read_text())

    def sides(self, name: str, durability: str) -> tuple[Ours, Theirs]:
        self.ports: dict[str, dict[str, int]] = {}
        ours = Ours(self.data / f"{name}-barnabas", durability)
        theirs = Theirs(self.version, self.data / f"{name}-kafka")
        for side in (ours, theirs):
            names = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
            ports = {"PLAINTEXT": side.port} | dict(zip(names, free_ports(3), strict=True))
            self.ports[side.name] = ports
            controller = (
                {"CONTROLLER": f"CONTROLLER://127.0.0.1:{side.side_port}"}
                if isinstance(side, Theirs)
                else {}
            )
            side.settings = settings_of(ports, self.pem, controller)
        return ours, theirs

    def prepare(self, side: Side, durability: str) -> None:
        wait_for_metadata(side.port, 0)
        for topic in ("small", "bulk", "read"):
            create_topic(side.port, topic, 1)
        upsert_user(side.port)
        port, size, tls = self.ports[side.name]["SSL"], self.size, {"tls": self.trusted}
        self.load(port, "small", "produce", {**tls, "requests": size.warm_requests})
        self.load(port, "read", "produce", {**tls, **BULK, "requests": size.bulk_bytes >> 16})
        count = max(size.warm_bytes >> 16, 1)
        self.load(port, "bulk", "produce", {**tls, **BULK, "requests": count})
        drop_from_cache(side.data_dir, "bulk")
        words = {**tls, "max-bytes": FETCH_BYTES, "requests": count >> 4}
        self.load(port, "read", "fetch", words)
        full(self, side, size.warm_handshakes)
        resumed(self, side, size.warm_handshakes)
        for log_in in (plain_logins, tls_logins):
            log_in(self, side, size.warm_handshakes // 4)

    # ---- handshakes ----
    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.trusted))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    def session(self, port: int, context: ssl.SSLContext) -> ssl.SSLSession:
        """Returns a session that can be resumed. Its ticket comes with the first answer: to
        ApiVersions 0."""
        with socket.create_connection(("127.0.0.1", port)) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
                client.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
                with client.makefile("rb") as answer:  # unwrap() fails on unread bytes
                    (size,) = struct.unpack(">i", answer.read(4))
                    assert len(answer.read(size)) == size
                session = client.session
                client.unwrap()
        assert session is not None and session.has_ticket
        return session

    def handshakes(
        self, port: int, count: int, context: ssl.SSLContext, sessions: Sequence[ssl.SSLSession]
    ) -> None:
        """Does `count` handshakes, one after another. With `sessions` each handshake resumes one of
        them in turn; without, each is a full one."""
        for turn in range(count):
            session = sessions[turn % len(sessions)] if sessions else None
            with socket.create_connection(("127.0.0.1", port)) as plain:
                with context.wrap_socket(
                    plain, server_hostname="127.0.0.1", session=session
                ) as client:
                    if client.session_reused != (session is not None):
                        kind = "full" if session is None else "resumed"
                        raise SideError(f"handshake {turn} of {count} is not a {kind} one")
                    client.unwrap()  # without this OpenSSL would not resume the session again


def upsert_user(port: int) -> None:
    """Creates the user with SCRAM-SHA-512 and 4,096 iterations, the minimum."""
    salt = os.urandom(16)
    ask = request(51)
    row = ask.struct("upsertions")(
        name=USER,
        mechanism=MECHANISM_CODE,
        iterations=4096,
        salt=salt,
        saltedPassword=hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, 4096),
    )
    connection = Connection("127.0.0.1", port)
    answer = connection.call(51, ask.cls(deletions=[], upsertions=[row]))
    connection.close()
    assert answer.results[0].errorCode == 0, answer


def plain_logins(bench: SecurityBench, side: Side, count: int) -> None:
    """Logs in `count` times, each time over a new connection without TLS."""
    _logins(bench.ports[side.name]["SASL_PLAINTEXT"], None, count)


def tls_logins(bench: SecurityBench, side: Side, count: int) -> None:
    """Logs in `count` times, each time after a full TLS handshake."""
    _logins(bench.ports[side.name]["SASL_SSL"], Tls(str(bench.trusted)), count)


def _logins(port: int, tls: Tls | None, count: int) -> None:
    security = Security(tls, Sasl(SCRAM, USER, PASSWORD))
    for _ in range(count):
        Connection("127.0.0.1", port, security=security).close()


def full(bench: SecurityBench, side: Side, count: int) -> None:
    bench.handshakes(bench.ports[side.name]["SSL"], count, bench.client(), ())


def resumed(bench: SecurityBench, side: Side, count: int) -> None:
    port, context = bench.ports[side.name]["SSL"], bench.client()
    sessions = [bench.session(port, context) for _ in range(NETWORK_THREADS)]
    bench.handshakes(port, count, context, sessions)


# ---- access rules ----
def create_rules(port: int) -> None:
    """Creates ten rules for each principal: nine for its own topics, half of them prefixed, and one
    for the topic `ruled`. This script may also write to `ruled`, but not to `shut`."""
    ask = request(30)

    def rule(user: str, topic: str, pattern: int = LITERAL) -> object:
        return ask.struct("creations")(
            resourceType=TOPIC, resourceName=topic, resourcePatternType=pattern,
            principal=f"User:{user}", host="*", operation=WRITE, permissionType=ALLOW,
        )  # fmt: skip

    rules = [rule("ANONYMOUS", "ruled"), rule("user-0", "shut")]
    for user in (f"user-{index}" for index in range(PRINCIPALS)):
        rules.append(rule(user, "ruled"))
        for index in range(RULES_EACH - 1):
            rules.append(rule(user, f"{user}-{index}", PREFIXED if index % 2 else LITERAL))
    connection = Connection("127.0.0.1", port)
    for start in range(0, len(rules), RULES_A_REQUEST):
        answer = connection.call(30, ask.cls(creations=rules[start : start + RULES_A_REQUEST]))
        assert not any(row.errorCode for row in answer.results), answer
    connection.close()


def wait_for_rules(bench: SecurityBench, side: Side) -> None:
    """Waits until a write without a right is refused: Kafka's broker applies rules only after its
    answer."""
    for _ in range(300):
        try:
            bench.load(side.port, "shut", "produce", {"requests": 1})
        except SideError:
            return
        time.sleep(0.1)
    raise SideError("the access rules are not in force after 30 s")


def ruled(bench: SecurityBench, side: Side) -> Figures:
    """Produces one record a request with 10,000 rules, in turns with a broker without an
    authorizer."""
    kind = isinstance(side, Theirs)
    free = bench.sides(f"rules-open-{bench.forgotten}", "os")[kind]
    side.settings |= AUTHORIZER
    brokers = {"cpu_us_per_request": side, "open_cpu_us": free}
    found: dict[str, list[float]] = {name: [] for name in brokers}
    try:
        for broker in brokers.values():
            broker.start()
            wait_for_metadata(broker.port, 0)
            for topic in ("ruled", "shut"):
                create_topic(broker.port, topic, 1)
        create_rules(side.port)
        wait_for_rules(bench, side)
        for broker in brokers.values():
            bench.load(broker.port, "ruled", "produce", {"requests": bench.size.warm_requests})
        for turn in range(bench.size.turns):
            for name, broker in list(brokers.items())[:: 1 if turn % 2 else -1]:
                answer = bench.counted(broker, "ruled", "produce", one_words(bench.size))
                found[name].append(answer["cpu_us_per_request"])
    finally:
        for broker in brokers.values():
            broker.stop()
            bench.forget(broker)
    middle = {name: statistics.median(values) for name, values in found.items()}
    return middle | {"cpu_to_open": middle["cpu_us_per_request"] / middle["open_cpu_us"]}


# ---- rows ----
def loaded(topic: str, mode: str, words: Callable[[Size], dict[str, object]]) -> Measure:
    def measure(bench: SecurityBench, side: Side) -> Figures:
        plain, side.port = side.port, bench.ports[side.name]["SSL"]
        try:
            answer = bench.counted(side, topic, mode, {"tls": bench.trusted, **words(bench.size)})
        finally:
            side.port = plain
        if topic == "bulk":
            drop_from_cache(side.data_dir, topic)
        return answer

    return measure  # type: ignore[return-value]


def each(work: Callable[[SecurityBench, Side, int], None], what: Callable[[Size], int]) -> Measure:
    """Measures the broker's CPU time for each of `what` pieces of work."""

    def measure(bench: SecurityBench, side: Side) -> Figures:
        count = what(bench.size)
        recycle_memory(64 << 20)
        cpu, began = cpu_s(side.pid), time.monotonic()
        work(bench, side, count)
        seconds = time.monotonic() - began
        time.sleep(SETTLE_S)
        used = cpu_s(side.pid) - cpu
        return {"cpu_us_per_request": used * 1e6 / count, "requests_per_s": count / seconds}

    return measure  # type: ignore[return-value]


def echoed(
    request_bytes: int, answer_bytes: int, words: Callable[[Size], dict[str, object]]
) -> Measure:
    """Moves the same bytes both ways over TLS, with a program that does no work with them."""

    def measure(bench: SecurityBench, _side: Side) -> Figures:
        path = bench.data / f"echo-{request_bytes}.request"
        path.write_bytes(struct.pack(">hhih", 0, 7, 0, 5) + b"bench" + bytes(request_bytes - 15))
        command = [str(bench.echo), str(bench.pem), SUITE, str(answer_bytes)]
        with serving(command) as (port, pid):
            cpu = cpu_s(pid)
            given = {"tls": bench.trusted, "request": path, **words(bench.size)}
            found = bench.load(port, "-", "ask", given)
            used = cpu_s(pid) - cpu
        moved = found["requests"] * max(request_bytes, answer_bytes)
        return found | {
            "cpu_us_per_request": used * 1e6 / found["requests"],
            "cpu_s_per_gb": used * GB / moved,
        }

    return measure  # type: ignore[return-value]


def echoed_handshakes(resume: bool) -> Measure:
    def measure(bench: SecurityBench, _side: Side) -> Figures:
        command = [str(bench.echo), str(bench.pem), SUITE, str(ANSWER_BYTES)]
        count = bench.size.handshakes
        with serving(command) as (port, pid):
            context = bench.client()
            sessions = [bench.session(port, context)] if resume else []
            cpu = cpu_s(pid)
            bench.handshakes(port, count, context, sessions)
            time.sleep(SETTLE_S)
            used = cpu_s(pid) - cpu
        return {"cpu_us_per_request": used * 1e6 / count}

    return measure  # type: ignore[return-value]


def bulk_words(size: Size) -> dict[str, object]:
    return {**BULK, "requests": max(size.bulk_bytes >> 16, 1)}


def fetch_words(size: Size) -> dict[str, object]:
    return {"max-bytes": FETCH_BYTES, "requests": max(size.bulk_bytes // FETCH_BYTES * 2, 1)}


def one_words(size: Size) -> dict[str, object]:
    return {"seconds": size.seconds}


def all_rows() -> list[Row]:
    gb, cpu = ("cpu_s_per_gb", "mb_per_s"), ("cpu_us_per_request", "requests_per_s")
    half_a_gb = (Bar("cpu_s_per_gb", most=1 / 2),)
    half = (Bar("cpu_us_per_request", most=1 / 2),)
    batch_bytes = RECORDS * (RECORD_BYTES + 9)
    asked = {"in-flight": 5}
    return [
        Row("bulk", "64 KiB batches over TLS 1.3", "os", loaded("bulk", "produce", bulk_words), gb,
            half_a_gb),
        Row("bulk-echo", "no broker: as many bytes echoed", "os",
            echoed(batch_bytes, ANSWER_BYTES,
                   lambda size: asked | {"requests": max(size.bulk_bytes >> 16, 1)}),
            ("cpu_s_per_gb",), ours_only=True),
        Row("fetch", "fetches of 1 MiB over TLS 1.3", "os", loaded("read", "fetch", fetch_words),
            gb, half_a_gb),
        Row("fetch-echo", "no broker: answers of as many bytes", "os",
            echoed(100, FETCH_BYTES - 64,
                   lambda size: {"requests": max(size.bulk_bytes // FETCH_BYTES * 2, 1)}),
            ("cpu_s_per_gb",), ours_only=True),
        Row("one", "one record a request over TLS 1.3", "os", loaded("small", "produce", one_words),
            cpu, half),
        Row("one-echo", "no broker: such requests echoed", "os",
            echoed(RECORD_BYTES + 115, ANSWER_BYTES, one_words), ("cpu_us_per_request",),
            ours_only=True),
        Row("handshake", "full handshakes", "os", each(full, lambda size: size.handshakes), cpu,
            half),
        Row("handshake-echo", "no broker: full handshakes", "os", echoed_handshakes(False),
            ("cpu_us_per_request",), ours_only=True),
        Row("resumed", "resumed handshakes", "os", each(resumed, lambda size: size.handshakes), cpu,
            half),
        Row("resumed-echo", "no broker: resumed handshakes", "os", echoed_handshakes(True),
            ("cpu_us_per_request",), ours_only=True),
        Row("scram", "logins by SCRAM-SHA-512", "os",
            each(plain_logins, lambda size: size.logins), cpu, half),
        Row("scram-tls", "the same after a full handshake", "os",
            each(tls_logins, lambda size: size.logins), cpu, half),
        Row("rules", "one record a request, 10,000 access rules of 1,000 principals", "own",
            ruled,  # type: ignore[arg-type]
            ("cpu_us_per_request", "open_cpu_us", "cpu_to_open"),
            (Bar("cpu_to_open", most=1.05, own=True),), rounds=STARTS),
    ]  # fmt: skip


def main(words: list[str]) -> int:
    description = __doc__.partition("\n")[0]
    return compared(words, description, "security", all_rows(), (FULL, QUICK), SecurityBench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
