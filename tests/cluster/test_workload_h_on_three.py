"""Runs workload H on three brokers (idempotent senders, transactions, copies and groups at the same
time) while brokers are killed, paused or restarted, and while their wall clocks are an hour wrong.

The checker reads the history, and the test compares the files of all replicas. A failing run prints
its seed; `BARNABAS_HISTORY_SEED` repeats it."""

import random
import time

import pytest
from cluster.acknowledged import equal_replicas, find_acknowledged, leaders_and_isrs
from cluster.faults import IDS, IMPATIENT
from cluster.moved_clocks import MovedClock
from cluster.moved_clocks import missing as no_clock
from cluster.roles import ROLES, Role
from cluster.three_brokers import Cluster
from history.model import Outcome, now
from history.test_workload_h import (
    GROUP_BACK_S_MAX,
    KINDS,
    done,
    verdict_of,
    wait_until_all_go_on,
)
from history.workload import (
    BROKER_SETTINGS,
    COPY,
    INPUT,
    PARTITIONS,
    SILENT_S,
    Workload,
    create_topics,
)
from waiting import soon

pytestmark = [
    pytest.mark.slow,
    pytest.mark.only_long,
    pytest.mark.takes(seconds=900),
    pytest.mark.timeout(900),
]

CALM_S = 4.0
JUMPS = 3
STRIKES = [(role, way) for role in ROLES for way in ("kill", "pause")]
# A copier that hangs is killed after SILENT_S (tests/history/README.md).
GOES_ON_S_MAX = SILENT_S + GROUP_BACK_S_MAX
RESTARTS = 2  # of each broker
HOUR_MS = 3_600_000
INTERNAL = {"__consumer_offsets": 2, "__transaction_state": 2}


def all_in_sync(cluster, broker_id):
    return all(
        isr == list(IDS)
        for topic in (INPUT, COPY)
        for _leader, isr in leaders_and_isrs(cluster.brokers[broker_id].address, topic).values()
    )


def wait_in_sync(cluster):
    for broker_id in IDS:
        soon(lambda of=broker_id: all_in_sync(cluster, of), "a replica is not in sync")


def settings_of(**more):
    return {name.replace(".", "_"): value for name, value in BROKER_SETTINGS.items()} | more


def run(cluster, tmp_path, seed, faults, **config):
    """Runs workload H, and returns its operations. Each of `faults` disturbs the cluster, and ends
    the disturbance when it returns. `config`: more of both topics."""
    print("seed", seed)
    chance = random.Random(f"{seed}:moments")
    # A clock that is an hour ahead deletes an hour early, as in Kafka: the retention is longer.
    config = {"min_insync_replicas": "2", "retention_ms": str(24 * HOUR_MS), **config}
    create_topics(cluster.bootstrap_servers, replicas=3, **config)
    workload = Workload(cluster.bootstrap_servers, seed, IMPATIENT)
    moments = []
    try:
        for fault in faults:
            time.sleep(chance.uniform(0.5, 1) * CALM_S)  # the workload runs
            moments.append(now())
            fault(workload)
            wait_until_all_go_on(workload, now(), GOES_ON_S_MAX)
            wait_in_sync(cluster)
        workload.stop()
        print(f"{workload.hangs()} copiers hung, and were killed and started again")
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
    for topic in (INPUT, COPY):
        acknowledged = acknowledged_of(operations, topic)
        assert len(acknowledged) > 100
        for broker in cluster.brokers.values():
            find_acknowledged(broker, topic, PARTITIONS, acknowledged)
    return operations


def acknowledged_of(operations, topic):
    """Returns the acknowledged records of a topic, with or without transactions, by partition and
    offset."""
    return {
        (int(send.partition.split("/")[1]), send.offset): b"%d" % send.value
        for one in operations
        for send in one.sends
        if (send.outcome or one.outcome) == Outcome.OK
        and send.offset is not None
        and send.partition.startswith(f"{topic}/")
    }


def test_workload_h_while_brokers_are_killed_and_paused(own_zookeeper, tmp_path, seed):
    """The leader, a follower, the controller and the coordinator, in random order. All clients go
    on while a broker is away."""
    chance = random.Random(f"{seed}:strikes")
    planned = chance.sample(STRIKES, len(STRIKES))

    def strike(workload, role, way):
        held = Role(role, cluster, INPUT, "copiers", chance)
        broker, began = held.holder(), now()
        print(f"{way} broker {broker.node_id}, the {role}")
        if way == "kill":
            broker.kill()
            assert not broker.is_running
        else:
            broker.pause()
        soon(lambda: held.is_lost_by(broker), f"broker {broker.node_id} is still the {role}")
        moved = now()
        wait_until_all_go_on(workload, moved, GOES_ON_S_MAX)
        moved_s, all_s = (moved - began) / 1e9, (now() - moved) / 1e9
        print(f"another one after {moved_s:.1f} s; all clients went on {all_s:.1f} s later")
        if way == "kill":
            broker.start()
        else:
            broker.resume()

    with Cluster(tmp_path, own_zookeeper.connect("/h"), **settings_of()) as cluster:
        faults = [lambda workload, row=row: strike(workload, *row) for row in planned]
        run(cluster, tmp_path, seed, faults)


def test_workload_h_during_rolling_restarts(own_zookeeper, tmp_path, seed):
    """Each broker is stopped and started, twice. No record is refused, and none is in doubt."""
    order = [broker_id for broker_id in IDS for _ in range(RESTARTS)]
    random.Random(f"{seed}:restarts").shuffle(order)

    def restart(_workload, broker):
        lines = len(broker.lines)
        assert broker.stop() == 0
        broker.start()
        assert any(line.startswith("ready: ") for line in broker.lines[lines:])

    with Cluster(tmp_path, own_zookeeper.connect("/h"), **settings_of()) as cluster:
        faults = [lambda workload, of=of: restart(workload, cluster.brokers[of]) for of in order]
        operations = run(cluster, tmp_path, seed, faults)
    failed = [
        one for one in operations if one.process.startswith("sender") and one.outcome != Outcome.OK
    ]
    assert not failed, f"seed {seed}: {len(failed)} bursts failed: {failed[0]}"


@pytest.mark.parametrize("moved_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "behind"])
def test_workload_h_while_clocks_jump(own_zookeeper, tmp_path, seed, moved_ms):
    """Broker 1 starts an hour ahead or behind; then clocks jump while brokers run, there and
    back."""
    if reason := no_clock():
        pytest.skip(reason)
    chance = random.Random(f"{seed}:jumps")
    clocks = {broker_id: MovedClock(tmp_path, str(broker_id)) for broker_id in IDS}
    clocks[1].move_to(moved_ms)
    environments = {broker_id: clock.environment for broker_id, clock in clocks.items()}
    connect = own_zookeeper.connect("/h")
    settings = settings_of(log_retention_check_interval_ms="500")
    with Cluster(tmp_path, connect, environments=environments, **settings) as cluster:
        wrong_s = [
            registered_ms(own_zookeeper, broker_id) / 1000 - time.time() for broker_id in IDS
        ]
        far = [abs(by_s - moved_ms / 1000) < 60 for by_s in wrong_s]
        assert far == [True, False, False], "the clock of broker 1 alone is wrong"

        def jump(_workload):
            clock = clocks[chance.choice(IDS)]
            clock.move_to(moved_ms)
            time.sleep(CALM_S)
            clock.move_to(0)
            clocks[1].move_to(0)

        # A clock that is behind takes the clients' for the future, and refuses more than an hour.
        run(
            cluster, tmp_path, seed, [jump] * JUMPS, message_timestamp_after_max_ms=str(2 * HOUR_MS)
        )


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
