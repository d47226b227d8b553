"""A broker with a listener for clients of Kafka 0.7."""

from collections.abc import Iterator
from contextlib import contextmanager

from oracle.kafka07 import LISTENERS, Client07

from barnabas import Broker


def port_of(broker: Broker) -> int:
    return next(row.port for row in broker.node.listening if row.name == "LEGACY07")


def connect(broker: Broker) -> Client07:
    return Client07(port_of(broker))


@contextmanager
def broker07(tmp_path, settings=()) -> Iterator[Broker]:
    base = {"log.dirs": str(tmp_path / "data"), "listeners": LISTENERS}
    with Broker(base | dict(settings)) as broker:
        yield broker
