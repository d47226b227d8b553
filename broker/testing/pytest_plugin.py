"""Fixtures for pytest: a Kafka broker inside the test process.

    broker           a broker for this test only
    session_broker   one broker for all tests of the process (of each worker under pytest-xdist);
                     faults that a test sets on it end with that test
    plugin_batch     plugin_batch([b"value", Record(...)]) makes a batch as an interceptor gets it
    produce          produce(topic, [b"value", Record(...)]) sends one batch to the broker of the
                     test and raises the KafkaError that it answers with
    topic            a new topic with a unique name on the broker of the test: on `broker` when the
                     test uses that fixture too, otherwise on `session_broker`; deleted after the
                     test

`@pytest.mark.broker({"num.partitions": 3}, durable=True)` sets up `broker`,
`@pytest.mark.topic(partitions=3, configs={"cleanup.policy": "compact"})` the topic, and the ini
option `broker_settings` (lines of name=value) every broker. The plugin imports the broker only when
a test uses one of the fixtures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas import Broker
    from barnabas.hooks import RecordBatch

NAME_CHARACTERS_MAX = 200  # Kafka allows 249
_session_brokers = pytest.StashKey[list["Broker"]]()
_topic_count = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the ini option `broker_settings`."""
    parser.addini(
        "broker_settings",
        "settings of the brokers that tests start, one name=value a line",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marks `broker` and `topic`."""
    config.stash[_session_brokers] = []
    config.stash[_topic_count] = 0
    config.addinivalue_line(
        "markers", "broker(settings, durable=False): settings of this test's broker"
    )
    config.addinivalue_line(
        "markers", "topic(partitions=1, configs=None): what the topic fixture makes"
    )


def _ini_settings(config: pytest.Config) -> dict[str, object]:
    settings: dict[str, object] = {}
    for line in config.getini("broker_settings"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"broker_settings: {line!r} does not have the form name=value")
        settings[name.strip()] = value.strip()
    return settings


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for this test only, on a free port, with its data in memory. The mark
    `broker(settings, durable=True)` gives settings, and puts its data on a disk."""
    from barnabas import Broker

    marker = request.node.get_closest_marker("broker")
    given: Mapping[str, object] = marker.args[0] if marker is not None and marker.args else {}
    options = marker.kwargs if marker is not None else {}
    with Broker(_ini_settings(request.config) | dict(given), **options) as running:
        yield running


@pytest.fixture(scope="session")
def session_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """One broker for all tests of this process; with pytest-xdist, one for each worker. Use topics
    of your own: other tests have theirs."""
    from barnabas import Broker

    with Broker(_ini_settings(request.config)) as running:
        request.config.stash[_session_brokers].append(running)
        yield running
        request.config.stash[_session_brokers].remove(running)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic of the test's broker, which is deleted after the test. The mark
    `topic(partitions=3, configs={...})` describes it."""
    from barnabas.errors import UnknownTopicOrPartition

    own = "broker" in request.fixturenames
    running: Broker = request.getfixturevalue("broker" if own else "session_broker")
    marker = request.node.get_closest_marker("topic")
    options = marker.kwargs if marker is not None else {}
    count = request.config.stash[_topic_count] = request.config.stash[_topic_count] + 1
    words = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-.")
    made = running.create_topic(f"{words[:NAME_CHARACTERS_MAX]}-{count}", **options)
    yield made
    try:
        running.delete_topic(made)
    except UnknownTopicOrPartition:
        pass  # the test has deleted the topic


@pytest.fixture
def plugin_batch() -> Callable[..., RecordBatch]:
    """A function that makes a batch as hooks get it, from values and Records."""
    from barnabas.testing.plugins import batch_of

    return batch_of


@pytest.fixture
def produce(request: pytest.FixtureRequest) -> Iterator[Callable[..., int]]:
    """A function that sends one batch to the broker of the test and returns the offset of its first
    record."""
    from barnabas.testing.plugins import Sender

    own = "broker" in request.fixturenames
    running: Broker = request.getfixturevalue("broker" if own else "session_broker")
    with Sender(running.bootstrap_servers) as sender:
        yield sender.send


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Removes the faults of a test from the session's broker after the test."""
    for running in item.config.stash[_session_brokers]:
        running.clear_faults()
