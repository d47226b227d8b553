"""Clients log in with the right password, and are refused with a wrong one."""

import asyncio

import pytest
from compat.java.driver import missing
from compat.java.tool_runner import ToolRunner
from compat.support import KAFKA, Wire, create_topic
from security.login_broker import PASSWORD, PLAIN_MODULE, SCRAM_MODULE, login_broker
from security.test_altered_logins import FAILED, JAAS, OWN, codes
from security.users import described

USERS = {"PLAIN": "alice", "SCRAM-SHA-256": "bob", "SCRAM-SHA-512": "bob"}
SASL = "SASL_PLAINTEXT"
ALL = pytest.mark.parametrize("mechanism", USERS)


@pytest.fixture(scope="module")
def topic(login):
    create_topic(login.plain, "t")
    return "t"


def confluent(login, mechanism, password):
    return {
        "bootstrap.servers": login.safe,
        "security.protocol": SASL,
        "sasl.mechanisms": mechanism,
        "sasl.username": USERS[mechanism],
        "sasl.password": password,
    }


@ALL
def test_confluent_kafka(login, topic, mechanism):
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

    good = confluent(login, mechanism, PASSWORD)
    producer, errors = Producer(good), []
    value = f"confluent {mechanism}".encode()
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0 and errors == [None]
    consumer = Consumer(good | {"group.id": f"c-{mechanism}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen = b""
    while seen != value:
        message = consumer.poll(10)
        assert message is not None, "the record did not come"
        seen = message.value()
    consumer.close()
    wrong = []
    stranger = Producer(
        confluent(login, mechanism, "bad") | {"error_cb": lambda error: wrong.append(error.code())}
    )
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=2)
    stranger.poll(1)
    assert KafkaError._AUTHENTICATION in wrong


@ALL
def test_kafka_python(login, topic, mechanism):
    from kafka import KafkaProducer
    from kafka.errors import KafkaTimeoutError

    def producer(password):
        return KafkaProducer(
            bootstrap_servers=login.safe,
            security_protocol=SASL,
            sasl_mechanism=mechanism,
            sasl_plain_username=USERS[mechanism],
            sasl_plain_password=password,
            max_block_ms=1500,
            bootstrap_timeout_ms=1500,
        )

    good = producer(PASSWORD)
    assert good.send(topic, b"kafka-python").get(20).topic == topic
    good.close()
    with pytest.raises(KafkaTimeoutError, match="Unable to bootstrap"):  # as with Kafka itself
        producer("bad").send(topic, b"x").get(5)


@ALL
def test_aiokafka(login, topic, mechanism):
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    async def send(password):
        producer = AIOKafkaProducer(
            bootstrap_servers=login.safe,
            security_protocol=SASL,
            sasl_mechanism=mechanism,
            sasl_plain_username=USERS[mechanism],
            sasl_plain_password=password,
        )
        try:
            await producer.start()
            return await producer.send_and_wait(topic, b"aiokafka")
        finally:
            await producer.stop()

    assert asyncio.run(send(PASSWORD)).topic == topic
    with pytest.raises(KafkaError):
        asyncio.run(send("bad"))


@ALL
def test_our_own_client(login, mechanism):
    from barnabas.client.failures import AuthenticationFailed
    from barnabas.client.security import Sasl
    from barnabas.wire import request, response
    from barnabas.wire.headers import encode_request

    def log_in(password):
        with login.connect() as c:
            assert c.handshake(mechanism) == 0

            def exchange(token):
                ask = encode_request(36, 2, 7, "c", request(36).cls(authBytes=token), framed=False)
                answer = response(36).decode(c.ask(ask), 2, 5)
                if answer.errorCode:
                    raise AuthenticationFailed(answer.errorMessage)
                return bytes(answer.authBytes)

            Sasl(mechanism, USERS[mechanism], password).authenticate(exchange, "127.0.0.1")
            return c.is_served()

    assert log_in(PASSWORD)
    with pytest.raises(AuthenticationFailed):
        log_in("bad")


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    if reason := missing(KAFKA):
        pytest.skip(reason)
    runner = ToolRunner(KAFKA, tmp_path_factory.mktemp("tools"))
    yield runner
    runner.close()


def java(tools, tmp_path, verb, address, mechanism, password, *arguments):
    """The exit status of one of Kafka's tools, and what it printed."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    user = USERS[mechanism]
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol={SASL}\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="{user}" password="{password}";\n'
        "request.timeout.ms=5000\ndefault.api.timeout.ms=8000\n"
    )
    where = ("--bootstrap-server", address, "--command-config", str(properties))
    status, printed, complaints = tools.run(verb, *where, *arguments)
    return status, printed + complaints


@pytest.mark.java
@ALL
def test_java_tools(login, topic, tools, tmp_path, mechanism):
    status, said = java(tools, tmp_path, "topics", login.safe, mechanism, PASSWORD, "--list")
    assert status == 0 and topic in said.split()
    status, said = java(tools, tmp_path, "topics", login.safe, mechanism, "bad", "--list")
    assert status != 0 and "Authentication failed" in said


@pytest.mark.java
def test_kafka_configs_adds_and_removes_a_user(login, tools, tmp_path):
    user = ("--entity-type", "users", "--entity-name", "gina")
    scram = "SCRAM-SHA-256=[iterations=8192,password=secret]"
    with Wire(login.plain) as wire:
        for change, found, told in (
            (("--add-config", scram), (0, {1: 8192}), "SCRAM-SHA-256=iterations=8192"),
            (("--delete-config", "SCRAM-SHA-256"), (91, {}), ""),
        ):
            for verb in (("--alter", *change), ("--describe",)):
                arguments = (*verb, *user)
                status, said = java(
                    tools, tmp_path, "configs", login.safe, "PLAIN", PASSWORD, *arguments
                )
                assert status == 0, said
            assert told in said
            assert described(wire, ["gina"]) == {"gina": found}


@pytest.mark.java
def test_kafka_configs_alters_a_jaas_line_and_sees_no_password(tools, tmp_path):
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    line = f'{PLAIN_MODULE} required user_alice="{PASSWORD}" user_ines="of the tool";'
    with login_broker(tmp_path, **OWN) as login:
        assert codes(login, ines="of the tool") == [FAILED]
        for verb in (("--alter", "--add-config", f"{JAAS}=[{line}]"), ("--describe",)):
            status, said = java(
                tools, tmp_path, "configs", login.safe, "PLAIN", PASSWORD, *verb, *broker
            )
            assert status == 0, said
        assert f"{JAAS}=null sensitive=true" in said and "of the tool" not in said
        assert codes(login, ines="of the tool", alice=PASSWORD) == [0, 0]
