"""Programs with Kafka's Java client copy a topic in transactions, while the coordinator of their
group and of one of their transactional ids is paused past its session: both go on, and each record
is copied once. The long form shows the same with three brokers of Kafka 3.9.2.

test_workload_h_on_three.py has copiers with librdkafka, which may hang in this case."""

import pytest
from cluster.acknowledged import Sender, read_all
from cluster.java_copier import KAFKA as CLIENT
from cluster.java_copier import JavaCopier
from cluster.roles import GROUP, TRANSACTION, coordinator
from cluster.test_paused_coordinator import (
    cluster,  # noqa: F401  (a fixture)
    wait_in_sync,
)
from compat.java.driver import missing
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

pytestmark = [
    pytest.mark.slow,
    pytest.mark.only_long,
    pytest.mark.takes(seconds=120),
    pytest.mark.timeout(600),
]

COPIERS = "copiers"
INPUT, COPY = "input", "copy"
PARTITIONS = 3


def names_of_ids(cluster):  # noqa: F811
    """Returns the coordinator of the group, and two transactional ids: it coordinates the first."""
    coordinates = coordinator(cluster, COPIERS, GROUP)
    names = [f"java-{number}" for number in range(20)]
    held = {name: coordinator(cluster, name, TRANSACTION) for name in names}
    own = next(name for name in names if held[name] == coordinates)
    other = next(name for name in names if held[name] != coordinates)
    return coordinates, (own, other)


def test_both_go_on_while_their_coordinator_is_paused(cluster, tmp_path):  # noqa: F811
    if reason := missing(CLIENT):
        pytest.skip(reason)
    servers = cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    soon(lambda: len(admin.list_topics(timeout=10).brokers) == 3, "not all brokers are registered")
    config = {"min.insync.replicas": "2"}
    new = [NewTopic(topic, PARTITIONS, 3, config=config) for topic in (INPUT, COPY)]
    for made in admin.create_topics(new).values():
        made.result(30)
    wait_in_sync(cluster, INPUT, COPY)
    paused_id, names = names_of_ids(cluster)
    wait_in_sync(cluster, "__consumer_offsets", "__transaction_state")
    sender = Sender(servers, INPUT, PARTITIONS)
    copiers = [JavaCopier(tmp_path, servers, COPIERS, name, (INPUT, COPY)) for name in names]

    def both_go_on():
        before = [copier.committed for copier in copiers]

        def more():
            assert all(copier.is_running for copier in copiers), [row.lines for row in copiers]
            return all(row.committed > old for row, old in zip(copiers, before, strict=True))

        soon(more, "a copier does not go on")

    try:
        both_go_on()
        cluster.brokers[paused_id].pause()
        ask = next(broker_id for broker_id in cluster.brokers if broker_id != paused_id)
        for name, kind in ((COPIERS, GROUP), (names[0], TRANSACTION)):
            coordinated = (cluster, name, kind, ask)
            soon(lambda of=coordinated: coordinator(*of) != paused_id, "it does not move")
        both_go_on()
        sender.wait_for_more()
        cluster.brokers[paused_id].resume()
        both_go_on()
        sender.stop()
        count = len(sender.acknowledged) + len(sender.unplaced)
        committed = {"isolation.level": "read_committed"}
        copied = list(read_all(servers, COPY, count, more=committed).values())
    finally:
        for copier in copiers:
            copier.kill()
    assert len(copied) == len(set(copied)) == count
    assert set(copied) >= set(sender.acknowledged.values())
    told = [line for copier in copiers for line in copier.lines if not line.startswith("committed")]
    print(f"{count} records copied; the copiers said: {told}")
