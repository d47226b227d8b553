"""Runs workload H on three brokers (idempotent senders, transactions, copies and groups at the same
time) while wall clocks of brokers are an hour ahead, and jump.

The checker reads the history, and the test compares the files of all replicas. A failing run prints
its seed; `BARNABAS_HISTORY_SEED` repeats it."""

import os
import random
import time

import pytest
from cluster.acknowledged import equal_replicas, leaders_and_isrs
from cluster.faults import IDS
from cluster.moved_clocks import MovedClock
from cluster.moved_clocks import missing as no_clock
from cluster.three_brokers import Cluster, soon
from history.model import now
from history.test_workload_h import KINDS, done, verdict_of, wait_until_all_go_on
from history.workload import BROKER_SETTINGS, COPY, INPUT, PARTITIONS, Workload, create_topics

pytestmark = [
    pytest.mark.slow,
    pytest.mark.only_long,
    pytest.mark.takes(seconds=200),
    pytest.mark.timeout(600),
]

ROUNDS = 3
CALM_S = 4.0
HOUR_MS = 3_600_000
INTERNAL = {"__consumer_offsets": 2, "__transaction_state": 2}


@pytest.fixture
def seed():
    return int(os.environ.get("BARNABAS_HISTORY_SEED", 0)) or random.SystemRandom().getrandbits(32)


def all_in_sync(cluster, broker_id):
    return all(
        isr == list(IDS)
        for topic in (INPUT, COPY)
        for _leader, isr in leaders_and_isrs(cluster.brokers[broker_id].address, topic).values()
    )


def wait_in_sync(cluster):
    for broker_id in IDS:
        soon(lambda of=broker_id: all_in_sync(cluster, of), "a replica is not in sync")


def run(cluster, tmp_path, seed, fault):
    """Runs the workload. `fault` disturbs one broker, and has ended the disturbance when it
    returns."""
    print("seed", seed)
    chance = random.Random(f"{seed}:faults")
    # A clock that is an hour ahead deletes an hour early, as in Kafka: the retention is longer.
    config = {"min_insync_replicas": "2", "retention_ms": str(24 * HOUR_MS)}
    create_topics(cluster.bootstrap_servers, replicas=3, **config)
    workload = Workload(cluster.bootstrap_servers, seed)
    moments = []
    try:
        for _ in range(ROUNDS):
            time.sleep(chance.uniform(0.5, 1) * CALM_S)  # the workload runs
            began = now()
            moments.append(began)
            fault(cluster.brokers[chance.choice(IDS)])
            wait_until_all_go_on(workload, now())
            wait_in_sync(cluster)
        workload.stop()
        verdict = verdict_of(workload, tmp_path)
    finally:
        workload.stopping.set()
    assert verdict.valid is True, f"seed {seed}\n{verdict}"
    operations = workload.history.operations()
    for kind in KINDS:
        assert done(operations, kind, moments[-1], now()) > 0, f"seed {seed}: no {kind} went on"
    for broker in cluster.brokers.values():
        broker.stop()
    for topic, count in {INPUT: PARTITIONS, COPY: PARTITIONS, **INTERNAL}.items():
        equal_replicas(list(cluster.brokers.values()), topic, count)


def test_workload_h_while_clocks_jump(own_zookeeper, tmp_path, seed):
    """Broker 1 starts an hour ahead; then clocks jump forward and back while the brokers run."""
    if reason := no_clock():
        pytest.skip(reason)
    settings = {name.replace(".", "_"): value for name, value in BROKER_SETTINGS.items()}
    clocks = {broker_id: MovedClock(tmp_path, str(broker_id)) for broker_id in IDS}
    clocks[1].move_to(HOUR_MS)
    environments = {broker_id: clock.environment for broker_id, clock in clocks.items()}
    connect = own_zookeeper.connect("/h")
    settings["log_retention_check_interval_ms"] = "500"
    with Cluster(tmp_path, connect, environments=environments, **settings) as cluster:
        far = [
            abs(registered_ms(own_zookeeper, broker_id) / 1000 - time.time() - HOUR_MS / 1000) < 60
            for broker_id in IDS
        ]
        assert far == [True, False, False], "the clock of broker 1 alone is wrong"

        def jump(broker):
            clock = clocks[broker.node_id]
            clock.move_to(HOUR_MS)
            time.sleep(CALM_S)
            clock.move_to(0)
            clocks[1].move_to(0)

        run(cluster, tmp_path, seed, jump)


def registered_ms(zookeeper, broker_id):
    """Returns the time of a broker's registration, by the broker's own clock."""
    from kazoo.client import KazooClient

    from barnabas.metadata.znodes import BrokerRegistration

    tree = KazooClient(zookeeper.connect("/h"))
    tree.start(30)
    try:
        data, _stat = tree.get(f"/brokers/ids/{broker_id}")
        return BrokerRegistration.decode(data).timestamp_ms
    finally:
        tree.stop()
        tree.close()
