"""One broker and one of each client for the whole session, because a JVM starts slowly."""

from collections.abc import Callable, Iterator

import pytest
from compat.client import Client
from compat.matrix import cannot_run_client, client_class
from compat.support import Broker, cannot_run, create_topic


@pytest.fixture(scope="session")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    kind = request.config.getoption("--broker")
    reason = cannot_run(kind)
    if reason:
        pytest.skip(reason)
    running = Broker(kind, tmp_path_factory.mktemp("broker"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def client(broker: Broker) -> Iterator[Callable[[str], Client]]:
    """The client of a name, made on first use. Skips when it cannot run here."""
    made: dict[str, Client] = {}

    def get(name: str) -> Client:
        if name not in made:
            reason = cannot_run_client(name)
            if reason:
                pytest.skip(reason)
            made[name] = client_class(name)(broker.address)
        return made[name]

    yield get
    for one in made.values():
        one.close()


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Creates a topic named after the test."""
    counted = iter(range(1000))

    def make(partitions: int = 1, **configs: str) -> str:
        plain = "".join(c if c.isalnum() else "-" for c in request.node.name)
        name = f"{plain}-{next(counted)}"[-200:]
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        create_topic(broker.address, name, partitions, settings)
        return name

    return make
