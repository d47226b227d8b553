"""Clients of every family over TLS: produce and consume, with and without client certificates."""

import asyncio
import subprocess

import pytest
from compat.support import KAFKA, create_topic, rival
from tls.tls_broker import (
    AUTHORITY,
    CLIENTS,
    client_context,
    pem_settings,
    tls_broker,
    trust_settings,
)

QUICK = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
VALUES = [bytes([i]) * 300_000 for i in range(12)]  # more than a socket's buffer, both ways


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tls")
    (made / "ca.pem").write_text(AUTHORITY.pem)
    alice = CLIENTS.issue("CN=alice,O=Example", ())
    alice.write(made / "alice.pem")
    (made / "alice.crt").write_text(alice.certificate_pem)
    (made / "alice.key").write_text(alice.key_pem())
    return made


@pytest.fixture(scope="module", params=["none", "required"])
def served(request, folder):
    settings = pem_settings(folder) | trust_settings(folder)
    settings["ssl.client.auth"] = request.param
    with tls_broker(folder, settings) as made:
        made.needs_certificate = request.param == "required"
        create_topic(made.plain, "t")
        yield made


def test_confluent_kafka(served, folder):
    from confluent_kafka import Consumer, KafkaException, Producer

    settings = {
        "bootstrap.servers": served.safe,
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
    }
    with_certificate = settings | {
        "ssl.certificate.location": str(folder / "alice.crt"),
        "ssl.key.location": str(folder / "alice.key"),
    }
    good = with_certificate if served.needs_certificate else settings
    producer, errors = Producer(good), []
    for value in VALUES:
        producer.produce("t", value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0 and errors == [None] * len(VALUES)
    consumer = Consumer(good | {"group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    seen = []
    while len(seen) < len(VALUES):
        message = consumer.poll(10)
        assert message is not None
        seen.append(message.value())
    consumer.close()
    assert seen[: len(VALUES)] == VALUES
    if served.needs_certificate:
        with pytest.raises(KafkaException):
            Producer(settings).list_topics(timeout=2)


def test_kafka_python(served, folder):
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    settings = {
        "bootstrap_servers": served.safe,
        "security_protocol": "SSL",
        "ssl_cafile": str(folder / "ca.pem"),
    }
    if served.needs_certificate:
        settings |= {"ssl_certfile": str(folder / "alice.pem"), "ssl_keyfile": None}
    create_topic(served.plain, "kafka-python")
    producer = KafkaProducer(**settings)
    sent = [producer.send("kafka-python", value) for value in VALUES]
    assert [one.get(20).offset for one in sent] == list(range(len(VALUES)))
    producer.close()
    consumer = KafkaConsumer(**settings, auto_offset_reset="earliest", consumer_timeout_ms=5000)
    consumer.assign([TopicPartition("kafka-python", 0)])
    seen = [message.value for message, _ in zip(consumer, VALUES, strict=False)]
    consumer.close()
    assert seen == VALUES


def test_aiokafka(served, folder):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    context = client_context()
    if served.needs_certificate:
        context.load_cert_chain(folder / "alice.pem")
    settings = {
        "bootstrap_servers": served.safe,
        "security_protocol": "SSL",
        "ssl_context": context,
    }
    create_topic(served.plain, "aiokafka")

    async def both():
        producer = AIOKafkaProducer(**settings)
        await producer.start()
        for value in VALUES:
            await producer.send_and_wait("aiokafka", value)
        await producer.stop()
        consumer = AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **settings)
        await consumer.start()
        seen = [(await consumer.getone()).value for _ in VALUES]
        await consumer.stop()
        return seen

    assert asyncio.run(asyncio.wait_for(both(), 60)) == VALUES


def test_our_own_commands(served, folder, run_barnabas):
    properties = folder / "own.properties"
    lines = [
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={folder / 'ca.pem'}",
    ]
    if served.needs_certificate:
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={folder / 'alice.pem'}"]
    properties.write_text("\n".join(lines))
    properties.chmod(0o600)
    at = ("--bootstrap-server", served.safe, "--command-config", str(properties))
    assert run_barnabas("topics", "create", "own", *at).returncode == 0
    made = run_barnabas("produce", "own", *at, text="one\ntwo\n")
    assert made.returncode == 0, made.stderr
    seen = run_barnabas("consume", "own", "--from-beginning", "--count", "2", *at)
    assert seen.stdout.split() == ["one", "two"], seen.stderr


@pytest.fixture
def run_barnabas():
    import sys

    def run(*words, text=None):
        command = [sys.executable, "-m", "barnabas", *words]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)

    return run


@pytest.mark.java
def test_java_tools(served, folder, tmp_path):
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    from confluent_kafka import Producer

    properties = tmp_path / "client.properties"
    text = (
        "security.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={folder / 'ca.pem'}\n"
        "request.timeout.ms=5000\ndefault.api.timeout.ms=8000\n"
    )
    if served.needs_certificate:
        text += f"ssl.keystore.type=PEM\nssl.keystore.location={folder / 'alice.pem'}\n"
    properties.write_text(text)
    create_topic(served.plain, "tools")
    producer = Producer({"bootstrap.servers": served.plain})
    producer.produce("tools", b"one")
    assert producer.flush(20) == 0

    def tool(verb, *arguments):
        command = rival.tool(KAFKA, verb, tmp_path / "tool.log", heap=QUICK)
        command += ["--bootstrap-server", served.safe, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    status, printed = tool("topics", "--command-config", str(properties), "--list")
    assert status == 0 and "tools" in printed.split(), printed
    status, printed = tool(
        "console-consumer",
        *("--consumer.config", str(properties), "--topic", "tools", "--partition", "0"),
        *("--offset", "earliest", "--max-messages", "1", "--timeout-ms", "20000"),
    )
    assert "Processed a total of 1 messages" in printed, printed[-2000:]
