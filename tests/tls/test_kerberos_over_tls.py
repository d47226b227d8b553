"""Clients that log in by Kerberos over TLS (GSSAPI on a SASL_SSL listener) write and read."""

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest
from compat.support import KAFKA, QUICK_HEAP, create_topic, rival
from security.key_distribution_center import REALM, missing
from security.login_broker import login_broker
from security.test_kerberos import MODULE, kerberos_settings
from security.test_kerberos import realm as realm
from security.test_old_clients import written_and_read
from security.test_protected_commands import ran
from tls.tls_broker import AUTHORITY, pem_settings

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

VALUES = [b"one", b"two"]
PYTHON = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "GSSAPI",
    "sasl_kerberos_service_name": "kafka",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("kerberos")
    (made / "ca.pem").write_text(AUTHORITY.pem)
    return made


@pytest.fixture(scope="module")
def address(realm, folder):
    settings = {
        "listener.security.protocol.map": "SAFE:SASL_SSL,PLAINTEXT:PLAINTEXT",
        "advertised.listeners": "SAFE://localhost:0,PLAINTEXT://127.0.0.1:0",
    }
    keytab = realm.folder / "kafka_localhost.keytab"
    given = kerberos_settings(keytab, **settings) | pem_settings(folder)
    with login_broker(folder, **given) as login:
        for topic in ("kafka_python", "aiokafka", "kcat", "t", "news", "java"):
            create_topic(login.plain, topic)
        yield login.safe.replace("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def settings(realm, folder):
    """Of Kafka's Java client, for alice."""
    keytab = realm.folder / "alice.keytab"
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}"'
        f' principal="alice@{REALM}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }


@pytest.fixture(scope="module")
def file(settings, folder):
    made = folder / "client.properties"
    made.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(made)


def test_kafka_python(address, realm, folder):
    from kafka import KafkaConsumer, KafkaProducer

    realm.log_in("alice")
    named = PYTHON | {"bootstrap_servers": address, "ssl_cafile": str(folder / "ca.pem")}
    producer = KafkaProducer(**named)
    for value in VALUES:
        producer.send("kafka_python", value).get(20)
    producer.close()
    consumer = KafkaConsumer("kafka_python", auto_offset_reset="earliest", **named)
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.close()


def test_aiokafka(address, realm, folder):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    realm.log_in("alice")
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    named = PYTHON | {"bootstrap_servers": address, "ssl_context": context}

    async def seen():
        async with AIOKafkaProducer(**named) as producer:
            for value in VALUES:
                await producer.send_and_wait("aiokafka", value)
        async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **named) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(asyncio.wait_for(seen(), 60)) == VALUES


def test_kcat(address, realm, folder):
    if not any(Path("/usr/lib").glob("*/sasl2/libgssapiv2.so")):
        pytest.skip("no GSSAPI for libsasl2: apt-get install libsasl2-modules-gssapi-mit")
    realm.log_in("alice")
    options = [
        "security.protocol=SASL_SSL",
        f"ssl.ca.location={folder / 'ca.pem'}",
        "sasl.mechanism=GSSAPI",
        "sasl.kerberos.service.name=kafka",
        "sasl.kerberos.kinit.cmd=true",
    ]
    command = ["kcat", "-b", address, "-t", "kcat"]
    for option in options:
        command += ["-X", option]
    common = {"capture_output": True, "timeout": 60, "check": True}
    subprocess.run([*command, "-P"], input=b"one\ntwo\n", **common)
    read = subprocess.run([*command, "-C", "-e", "-o", "beginning"], **common)
    assert read.stdout.split() == VALUES


def test_old_clients(address, settings):
    written_and_read(address, settings)


def test_the_mirror_and_commands(address, file, tmp_path):
    """From a topic that `produce` has filled to another broker, which has no logins."""
    from barnabas import Broker

    at = ("-b", address, "--command-config", file)
    assert ran("produce", "news", *at)[0] == 0
    with Broker({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}) as other:
        plain = other.bootstrap_servers
        target = tmp_path / "target.properties"
        target.write_text("security.protocol=PLAINTEXT\n")
        to = ("--target", plain, "--target-config", str(target), "--whitelist", "news", "--end")
        done = ran("mirror", "--source", f"safe={address}", *to, "--command-config", file)
        assert done[0] == 0, done[1]
        assert "sesame" in ran("consume", "news", "--from-beginning", "--end", "-b", plain)[1]


@pytest.mark.java
@pytest.mark.only_long
def test_the_java_client(address, file, realm, tmp_path):
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)

    def tool(verb, option, *words, **more):
        command = rival.tool(KAFKA, verb, tmp_path / "tool.log", heap=QUICK_HEAP)
        command[1:1] = [f"-Djava.security.krb5.conf={realm.environ['KRB5_CONFIG']}"]
        command += ["--bootstrap-server", address, "--topic", "java", option, file, *words]
        return subprocess.run(command, capture_output=True, timeout=90, check=True, **more).stdout

    tool("console-producer", "--command-config", input=b"one\ntwo\n")
    read = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "20000")
    assert tool("console-consumer", "--command-config", *read).split() == VALUES
