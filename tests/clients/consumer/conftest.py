"""A broker for the old consumers, topics with numbered records, and connectors."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from barnabas import Broker
from barnabas.client import Cluster, Producer
from barnabas.clients import ConsumerConnector

# Short enough for a test that waits for the next retry, long enough for two slow cores.
QUICK = {
    "auto.offset.reset": "smallest",
    "auto.commit.interval.ms": "100000",
    "consumer.timeout.ms": "20000",
    "rebalance.backoff.ms": "500",
    "rebalance.max.retries": "20",
    "refresh.leader.backoff.ms": "50",
    "heartbeat.interval.ms": "100",
    "offsets.channel.backoff.ms": "100",
}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def old_broker() -> Iterator[Broker]:
    settings = {
        "auto.create.topics.enable": "false",
        "group.min.session.timeout.ms": "500",
    }
    with Broker(settings) as running:
        yield running


@pytest.fixture
def topic(old_broker: Broker) -> str:
    """Four partitions, and nothing in them."""
    return old_broker.create_topic(f"old-{next(_numbers)}", partitions=4)


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


@pytest.fixture
def write(old_broker: Broker) -> Callable[..., None]:
    """write(topic, partition, values): the records of one partition, in order."""

    def made(topic: str, partition: int, values: list[bytes], **options: object) -> None:
        with Cluster(old_broker.bootstrap_servers) as cluster:
            with Producer(cluster, topic, **options) as producer:  # type: ignore[arg-type]
                for value in values:
                    producer.send(value, b"k" + value, partition=partition)

    return made


Connect = Callable[..., ConsumerConnector]


@pytest.fixture
def connect(old_broker: Broker, group: str) -> Iterator[Connect]:
    """A connector of the test's group, with a group coordinator; settings have the names of 0.8."""
    made: list[ConsumerConnector] = []

    def connector(settings: dict[str, object] | None = None, **more: object) -> ConsumerConnector:
        given = {"group.id": group, "bootstrap.servers": old_broker.bootstrap_servers}
        found = ConsumerConnector({**QUICK, **given, **(settings or {}), **more})
        made.append(found)
        return found

    yield connector
    for one in made:
        one.shutdown()
