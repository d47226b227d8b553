"""Logins that end, and clients that log in again on their connection (KIP-368). Apache Kafka 4.3.1
was asked on 2026-11-25; docs/decisions/logins.md has the differences."""

import math
import struct
import subprocess
import time

import pytest
from compat.support import KAFKA, QUICK_HEAP, Wire, create_topic, rival
from security.login_broker import (
    PASSWORD,
    PLAIN_MODULE,
    SAFE,
    Conversation,
    header,
    login_broker,
    scram_login,
)
from security.users import alter, upsertion

ILLEGAL, FAILED = 34, 58
GOOD = f"\0alice\0{PASSWORD}".encode()
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


@pytest.fixture(scope="module")
def hourly(tmp_path_factory):
    """Logins end after an hour; SCRAM-SHA-256's after two, and SCRAM-SHA-512's never."""
    users = f'{PLAIN_MODULE} required user_alice="{PASSWORD}" user_carol="{PASSWORD}";'
    settings = {
        "connections.max.reauth.ms": "1",
        SAFE + "connections.max.reauth.ms": str(HOUR_MS),
        SAFE + "scram-sha-256.connections.max.reauth.ms": str(2 * HOUR_MS),
        SAFE + "scram-sha-512.connections.max.reauth.ms": "0",
        SAFE + "plain.sasl.jaas.config": users,
        "connections.max.idle.ms": "-1",
    }
    with login_broker(tmp_path_factory.mktemp("hourly"), **settings) as made:
        with Wire(made.plain) as wire:
            for number in (1, 2):
                alter(wire, upsertions=[upsertion("bob", PASSWORD, number)])
        yield made


def lifetime_ms(answer: bytes) -> int:
    """Of an answer to SaslAuthenticate 1."""
    return struct.unpack(">q", answer[-8:])[0]


def token(conversation: Conversation, data: bytes, version: int = 1) -> bytes | None:
    return conversation.ask(header(36, version, struct.pack(">i", len(data)) + data))


def log_in(conversation: Conversation, data: bytes = GOOD) -> int:
    assert conversation.handshake("PLAIN") == 0
    answer = token(conversation, data)
    assert answer is not None and answer[4:6] == b"\0\0"
    return lifetime_ms(answer)


def move(login, ms: int) -> None:
    login.broker.node.clock.move(ms)


def closed(login) -> int:
    return login.broker.node.reactor.counters()["closed"]["login-expired"]


def test_connections_max_reauth_ms(tmp_path):
    """Without a listener and a mechanism in front."""
    with login_broker(tmp_path, **{"connections.max.reauth.ms": "60000"}) as login:
        with login.connect() as c:
            assert log_in(c) == 60_000


def test_the_answer_says_how_long_the_login_lasts(hourly):
    with hourly.connect() as c:
        assert log_in(c) == HOUR_MS


def test_a_request_after_the_end_closes_the_connection(hourly):
    before = closed(hourly)
    with hourly.connect() as c, hourly.connect() as other, Wire(hourly.plain) as plain:
        log_in(c)
        move(hourly, HOUR_MS - MINUTE_MS)
        assert c.is_served()
        log_in(other)
        move(hourly, MINUTE_MS + 1)
        assert not c.is_served()
        assert closed(hourly) == before + 1
        assert other.is_served()
        assert plain.call_raw(struct.pack(">i", 15) + header(3, 1, b"\0\0\0\0"))


@pytest.mark.parametrize("key", [0, 1, 3, 18, 36])
def test_after_the_end_no_key_but_the_handshake_is_answered(hourly, key):
    with hourly.connect() as c:
        log_in(c)
        move(hourly, HOUR_MS + 1)
        assert c.ask(header(key, 1, bytes(40))) is None


def test_a_client_that_logs_in_again_goes_on(hourly):
    with hourly.connect() as c:
        log_in(c)
        for late_ms in (-MINUTE_MS, 1, HOUR_MS):
            move(hourly, HOUR_MS + late_ms)
            assert log_in(c) == HOUR_MS
            assert c.is_served()
        move(hourly, HOUR_MS + 1)
        assert not c.is_served()


def test_while_it_logs_in_again_only_tokens_are_answered(hourly):
    for ask in (header(3, 1, b"\0\0\0\0"), header(18, 0), header(17, 1, b"\0\5PLAIN")):
        with hourly.connect() as c:
            log_in(c)
            assert c.handshake("PLAIN") == 0
            assert c.ask(ask) is None


def test_an_end_while_it_logs_in_again_does_no_harm(hourly):
    with hourly.connect() as c:
        log_in(c)
        assert c.handshake("PLAIN") == 0
        move(hourly, 2 * HOUR_MS)
        assert lifetime_ms(token(c, GOOD)) == HOUR_MS
        assert c.is_served()


def test_a_second_time_within_a_second_is_out_of_order(hourly):
    """Kafka: KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS, from the second time on."""
    with hourly.connect() as c:
        log_in(c)
        log_in(c)
        assert c.handshake("PLAIN") == ILLEGAL
        assert c.is_served()
        move(hourly, 1000)
        log_in(c)


def test_the_mechanism_stays(hourly):
    with hourly.connect() as c:
        log_in(c)
        assert c.handshake("SCRAM-SHA-256") == 0
        code, text, _ = c.token(b"n,,n=bob,r=abc")
        assert code == FAILED and text == (
            "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for"
            " re-authentication of mechanism 'PLAIN'"
        )
        assert c.is_closed()


def test_the_principal_stays(hourly):
    with hourly.connect() as c:
        log_in(c)
        assert c.handshake("PLAIN") == 0
        text = "Cannot change principals during re-authentication from User.alice: User.carol"
        assert c.token(f"\0carol\0{PASSWORD}".encode()) == (FAILED, text, b"")
        assert c.is_closed()


def test_a_wrong_password_closes_the_connection(hourly):
    with hourly.connect() as c:
        log_in(c)
        assert c.handshake("PLAIN") == 0
        assert c.token(b"\0alice\0bad")[0] == FAILED
        assert c.is_closed()
    with hourly.connect() as c:
        assert scram_login(c, "SCRAM-SHA-256", "bob", PASSWORD)[1][0] == 0
        _, last, _ = scram_login(c, "SCRAM-SHA-256", "bob", "bad")
        assert last[1] == (
            "Authentication failed during re-authentication due to invalid credentials with SASL"
            " mechanism SCRAM-SHA-256"
        )


def test_a_mechanism_may_have_its_own_time_or_none(hourly):
    with hourly.connect() as c:
        assert scram_login(c, "SCRAM-SHA-256", "bob", PASSWORD)[1][0] == 0
        move(hourly, 2 * HOUR_MS - MINUTE_MS)
        assert c.is_served()
        move(hourly, MINUTE_MS + 1)
        assert not c.is_served()
    with hourly.connect() as c:
        assert scram_login(c, "SCRAM-SHA-512", "bob", PASSWORD)[1][0] == 0
        move(hourly, 100 * HOUR_MS)
        assert c.is_served()
        assert c.handshake("SCRAM-SHA-512") == ILLEGAL
        assert c.is_served()


def test_old_clients_are_disconnected_at_the_end(hourly):
    """Tokens without a header, and SaslAuthenticate 0, whose answer has no lifetime."""
    with hourly.connect() as c:
        assert c.handshake("PLAIN", version=0) == 0
        assert c.ask(GOOD) == b""
        assert c.is_served()
        move(hourly, HOUR_MS + 1)
        assert not c.is_served()
    with hourly.connect() as c:
        assert c.handshake("PLAIN") == 0
        assert token(c, GOOD, version=0) == struct.pack(">ihhi", 7, 0, 0, 0)
        move(hourly, HOUR_MS + 1)
        assert not c.is_served()


def test_a_request_larger_than_a_login_is_read_after_it(tmp_path):
    """sasl.server.max.receive.size limits logins alone, also the second one."""
    settings = {"sasl.server.max.receive.size": "1000", "connections.max.reauth.ms": "60000"}
    large = header(3, 1, (0).to_bytes(4, "big") + bytes(2000))
    with login_broker(tmp_path, **settings) as login, login.connect() as c:
        log_in(c)
        assert c.ask(large) is not None
        assert c.handshake("PLAIN") == 0
        assert c.ask(large) is None


def test_a_second_login_cut_at_each_byte_leaves_the_broker_whole(hourly):
    ask = b"".join(
        struct.pack(">i", len(data)) + data
        for data in (
            header(17, 1, b"\0\5PLAIN"),
            header(36, 1, struct.pack(">i", len(GOOD)) + GOOD),
        )
    )
    for at in range(len(ask)):
        with hourly.connect() as c:
            log_in(c)
            c.socket.sendall(ask[:at])
    with hourly.connect() as c:
        log_in(c)
        assert log_in(c) == HOUR_MS and c.is_served()
    assert hourly.broker.node.reactor.counters()["held_bytes"] < 1 << 20


def test_the_page_counts_logins_under_kafkas_names(hourly):
    from barnabas.telemetry.login_metrics import LoginCollector
    from barnabas.telemetry.registry import Page

    def counts():
        collect = LoginCollector(hourly.broker.node.bound.logins, lambda: 0)
        found = {metric.name: samples[0][1] for metric, samples in collect(Page("jmx", 0))}
        return {name: value for name, value in found.items() if name.endswith("_total")}

    before = counts()
    with hourly.connect() as c:
        log_in(c)
        log_in(c)
        move(hourly, 1000)
        c.handshake("PLAIN")
        c.token(b"\0alice\0bad")
    with hourly.connect() as c:
        c.handshake("PLAIN", version=0)
        c.ask(GOOD)
    with hourly.connect() as c:
        c.handshake("FOO")
    prefix = "kafka_server_socket_server_metrics_"
    now = counts()
    assert {name.removeprefix(prefix): now[name] - before[name] for name in now} == {
        "successful_authentication_total": 2,
        "failed_authentication_total": 1,
        "successful_reauthentication_total": 1,
        "failed_reauthentication_total": 1,
        "successful_authentication_no_reauth_total": 1,
    }


def test_reauthentication_latency_avg_and_max(hourly):
    """From SaslHandshake to the end of the login, over Kafka's two windows of 30 s."""
    from barnabas.telemetry.login_metrics import AVERAGE, LONGEST, LoginCollector
    from barnabas.telemetry.registry import Page

    clock = hourly.broker.node.clock

    def times():
        collect = LoginCollector(hourly.broker.node.bound.logins, clock.monotonic_ns)
        found = {metric: samples[0][1] for metric, samples in collect(Page("jmx", 0))}
        return found[AVERAGE], found[LONGEST]

    def again(took_ms):
        move(hourly, 1000)  # the least time between two
        assert c.handshake("PLAIN") == 0
        move(hourly, took_ms)
        assert token(c, GOOD)[4:6] == b"\0\0"

    move(hourly, 2 * MINUTE_MS)
    assert all(math.isnan(value) for value in times())
    with hourly.connect() as c:
        log_in(c)
        assert all(math.isnan(value) for value in times())  # the first login does not count
        again(1000)
        again(3000)
        average, longest = times()
        assert 2000 <= average < 2500 and 3000 <= longest < 3500
        move(hourly, MINUTE_MS // 2)
        again(7000)
        assert 7000 <= times()[1] < 7500
        move(hourly, MINUTE_MS // 2)
        average, longest = times()
        assert 7000 <= average < 7500
        move(hourly, MINUTE_MS)
        assert all(math.isnan(value) for value in times())


LIFETIME_MS = 1500


@pytest.fixture(scope="module")
def brief(tmp_path_factory):
    """Clients choose a time shortly before the end by their own clocks."""
    settings = {"connections.max.reauth.ms": str(LIFETIME_MS)}
    with login_broker(tmp_path_factory.mktemp("brief"), **settings) as made:
        create_topic(made.plain, "t")
        yield made


def again_count(login) -> int:
    return login.broker.node.bound.logins().counts.of("SAFE", "successful-reauthentication")


def produce_over_two_ends(login, produce) -> None:
    """Calls `produce`, which returns when its record is written, until two logins have followed the
    first one."""
    wanted, deadline = again_count(login) + 2, time.monotonic() + 30
    before = closed(login)
    while again_count(login) < wanted:
        assert time.monotonic() < deadline
        produce()
        time.sleep(0.02)
    assert closed(login) == before


def test_confluent_kafka_goes_on(brief):
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": brief.safe,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }
    )
    failures = []

    def produce():
        producer.produce("t", b"x", on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(10) == 0

    produce_over_two_ends(brief, produce)
    assert set(failures) == {None}


@pytest.mark.java
def test_the_java_producer_goes_on(brief, tmp_path):
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nlinger.ms=0\nacks=all\n"
        f'sasl.jaas.config={PLAIN_MODULE} required username="alice" password="{PASSWORD}";\n'
    )
    create_topic(brief.plain, "java")
    command = rival.tool(KAFKA, "console-producer", tmp_path / "tool.log", heap=QUICK_HEAP)
    command += ["--bootstrap-server", brief.safe, "--topic", "java"]
    command += ["--command-config", str(properties)]
    sent = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as producer:

        def produce():
            nonlocal sent
            producer.stdin.write(b"x\n")
            producer.stdin.flush()
            sent += 1

        produce_over_two_ends(brief, produce)
        _, said = producer.communicate(timeout=30)
    assert producer.returncode == 0 and b"ERROR" not in said, said
    assert len(brief.broker.records("java")) == sent
