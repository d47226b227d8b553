"""The classes of barnabas.testing.containers beside those of the package testcontainers."""

import inspect

import pytest
from confluent_kafka import Consumer, Producer
from testcontainers.community import kafka as theirs

from barnabas.testing import containers as ours
from barnabas.testing.broker import BrokerNotRunning

NAMES = ["KafkaContainer", "RedpandaContainer"]
INTERNAL = {"configure", "tc_start"}  # the package's own steps of a start


def public(kind):
    return {name: value for name, value in inspect.getmembers(kind) if name.islower()} | {
        name: getattr(kind, name) for name in ("__init__", "__enter__", "__exit__")
    }


@pytest.mark.parametrize("name", NAMES)
def test_each_method_and_argument_of_testcontainers_is_there(name):
    mine, model = public(getattr(ours, name)), public(getattr(theirs, name))
    wanted = {key for key in model if not key.startswith("_") or key == "__init__"} - INTERNAL
    assert len(wanted) > 20 and "get_bootstrap_server" in wanted
    assert wanted - mine.keys() == set()
    for key in sorted(wanted):
        if mine[key] is ours.BrokerContainer._needs_container or not callable(model[key]):
            continue
        asked = [row.name for row in inspect.signature(model[key]).parameters.values()]
        given = inspect.signature(mine[key]).parameters
        takes_any = any(row.kind is row.VAR_KEYWORD for row in given.values())
        assert [row for row in asked if row not in given and not takes_any] == [], key


@pytest.mark.parametrize("name", NAMES)
def test_a_client_produces_and_consumes(name):
    with getattr(ours, name)("any/image:1").with_env("KAFKA_NUM_PARTITIONS", 3) as kafka:
        servers = kafka.get_bootstrap_server()
        host, _, port = servers.partition(":")
        assert (host, int(port)) == (
            kafka.get_container_host_ip(),
            kafka.get_exposed_port(kafka.port),
        )
        producer = Producer({"bootstrap.servers": servers})
        producer.produce("news", key=b"k", value=b"v")
        assert producer.flush(20) == 0
        assert len(producer.list_topics("news").topics["news"].partitions) == 3
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["news"])
        got = consumer.poll(20)
        consumer.close()
        assert (got.key(), got.value()) == (b"k", b"v")
        kafka.broker.assert_records("news", [("k", "v")])
    assert kafka.status == "exited"
    with pytest.raises(BrokerNotRunning):
        kafka.get_bootstrap_server()


def test_variables_of_an_image_are_settings_and_its_own_listeners_are_not(tmp_path):
    file = tmp_path / "kafka.env"
    file.write_text("# of the image\nKAFKA_MESSAGE_MAX_BYTES='2000'\nCLUSTER_ID=x\n")
    kafka = (
        ours.KafkaContainer(env={"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092"})
        .with_kraft()
        .with_env_file(file)
        .with_envs(KAFKA_PROCESS_ROLES="broker,controller", KAFKA_CONFLUENT_SUPPORT_METRICS="no")
    )
    with pytest.warns(UserWarning, match="confluent.support.metrics"), kafka:
        assert kafka.broker.node.config.integer("message.max.bytes") == 2000
        assert kafka.get_bootstrap_server().startswith("127.0.0.1:")


def test_a_port_of_this_machine():
    first = ours.KafkaContainer(port=9092).start()
    port = first.get_exposed_port(9092)
    first.stop()
    with ours.KafkaContainer(port=9092).with_bind_ports("9092/tcp", port) as second:
        assert second.get_bootstrap_server() == f"127.0.0.1:{port}"
    with pytest.raises(ValueError, match="has the port 9093 only"):
        ours.KafkaContainer().with_bind_ports(9092)


def test_what_needs_a_container_says_so():
    for call in (
        lambda: ours.KafkaContainer().exec("ls"),
        lambda: ours.KafkaContainer().with_network(object()),
        lambda: ours.KafkaContainer(security_protocol="SASL_PLAINTEXT"),
        lambda: ours.RedpandaContainer().get_schema_registry_address(),
    ):
        with pytest.raises(ours.NotInThisProcess, match=r"docs/\w+\.md"):
            call()
