"""Apache Kafka of one release with little memory, for tests of its clients."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compat.support import rival

from barnabas.client import Cluster, NewTopic, create_topics
from barnabas.errors import KafkaError, TopicAlreadyExists

HEAP = ("-Xmx256M", rival.QUICK)
STARTS_MAX = 3
PATIENCE_S = 90.0
FIRST = "first"  # a topic that exists when the broker is ready


@contextmanager
def small_kafka(version: str, folder: Path) -> Iterator[rival.Rival]:
    """A broker that creates topics, with ZooKeeper for releases before 4.0. `missing` says
    beforehand whether the release is installed."""
    mode = "kraft" if version.startswith("4.") else "zookeeper"
    for attempt in range(STARTS_MAX):
        running = rival.Rival(version, folder / str(attempt), mode, heap=HEAP)
        try:
            running.start()
            break
        except rival.RivalError:  # another process took its free ports
            if attempt + 1 == STARTS_MAX:
                raise
    try:
        with Cluster(running.address) as cluster:
            deadline = time.monotonic() + PATIENCE_S
            while not _has_topic(cluster):
                assert time.monotonic() < deadline, f"Kafka {version} makes no topic"
                time.sleep(0.05)
        yield running
    finally:
        running.stop()


def _has_topic(cluster: Cluster) -> bool:
    """Kafka accepts connections a little before its controller knows it as a broker."""
    try:
        create_topics(cluster, [NewTopic(FIRST, partition_count=1)])
    except KafkaError as error:
        return isinstance(error, TopicAlreadyExists)
    return True
