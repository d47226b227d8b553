"""Tests `barnabas cluster` with three brokers, each in its own process."""

import json

import pytest
from cli.conftest import run_command
from cluster.three_brokers import Cluster
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

pytestmark = pytest.mark.takes(seconds=25)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, zookeeper_server):
    folder = tmp_path_factory.mktemp("commands")
    connect = zookeeper_server.connect(zookeeper_server.new_chroot())
    # The controller's own elections would be before those of the test on a slow machine. A paused
    # broker is registered while the commands of a test run.
    settings = {"auto_leader_rebalance_enable": "false", "zookeeper_session_timeout_ms": "30000"}
    with Cluster(folder, connect, **settings) as started:
        started.folder, started.connect = folder, connect
        yield started


def create(cluster, name, *assignments):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    new = NewTopic(name, len(assignments), replica_assignment=[list(row) for row in assignments])
    admin.create_topics([new])[name].result(30)


def ran(cluster, *words, stdin=b""):
    return run_command("cluster", *words, "-b", cluster.bootstrap_servers, stdin=stdin)


def document(cluster, *words):
    return json.loads(ran(cluster, *words, "--json").text)


def replicas(cluster, topic):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return {index: row.replicas for index, row in found.items()}


def test_describe_counts_what_each_broker_leads(cluster):
    create(cluster, "counted", [1, 2], [2, 1], [2, 3])
    soon(lambda: document(cluster, "health")["isHealthy"], "it does not get healthy")
    found = document(cluster, "describe")
    assert [row["broker"] for row in found["brokers"]] == [1, 2, 3]
    assert [row["leads"] for row in found["brokers"]] == [1, 2, 0]
    assert [row["replicas"] for row in found["brokers"]] == [2, 3, 1]
    assert sum(row["isController"] for row in found["brokers"]) == 1
    assert "leads" in ran(cluster, "describe").text.splitlines()[0]
    run_command("topics", "delete", "counted", "-b", cluster.bootstrap_servers)


def test_a_stopped_broker_shows_and_its_leadership_comes_back_by_elect(cluster):
    create(cluster, "watched", [3, 1], [1, 2])
    soon(lambda: ran(cluster, "health").status == 0, "it does not get healthy")
    assert document(cluster, "under-replicated") == []
    cluster.brokers[3].stop()
    alive = cluster.brokers[1].address
    under_replicated = ("cluster", "under-replicated", "--json", "-b", alive)
    rows = soon(
        lambda: json.loads(run_command(*under_replicated).text), "broker 1 does not hear of it"
    )
    assert [(row["topic"], row["partition"], row["leader"]) for row in rows] == [("watched", 0, 1)]
    assert rows[0]["inSync"] == [1] and rows[0]["leaderEpoch"] >= 1
    sick = run_command("cluster", "health", "-b", alive)
    assert sick.status == 1 and "not in sync: 3" in sick.text
    cluster.brokers[3].start()
    soon(lambda: ran(cluster, "health").status == 0, "broker 3 does not come back into the ISR")
    elected = ran(cluster, "elect", "watched", "--json")
    assert elected.status == 0, elected.err
    assert [json.loads(line) for line in elected.text.splitlines()] == [
        {"topic": "watched", "partition": 0, "elected": True}
    ]
    assert "no partition needs an election" in ran(cluster, "elect", "watched").err
    assert ran(cluster, "elect", "--unclean").status == 1
    run_command("topics", "delete", "watched", "-b", cluster.bootstrap_servers)


def test_a_plan_is_carried_out(cluster, tmp_path):
    create(cluster, "moving", [1, 2], [1, 2])
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(100):
        producer.produce("moving", b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    plan = ran(cluster, "reassign", "moving", "--to", "2,3").out
    assert json.loads(plan) == {
        "version": 1,
        "partitions": [
            {"topic": "moving", "partition": 0, "replicas": [2, 3]},
            {"topic": "moving", "partition": 1, "replicas": [3, 2]},
        ],
    }
    done = ran(cluster, "reassign", "--execute", "-", "--wait", stdin=plan)
    assert done.status == 0 and "began 2 moves" in done.err, done.err
    soon(
        lambda: {tuple(sorted(row)) for row in replicas(cluster, "moving").values()} == {(2, 3)},
        "the partitions have not moved",
    )
    assert document(cluster, "reassign") == []
    kept = run_command(
        "consume", "moving", "--from-beginning", "--end", "-b", cluster.bootstrap_servers
    )
    assert len(kept.text.splitlines()) == 100
    run_command("topics", "delete", "moving", "-b", cluster.bootstrap_servers)


def test_a_move_to_a_broker_that_died_is_cancelled(cluster, tmp_path):
    create(cluster, "stuck", [1])
    cluster.brokers[2].pause()  # it is registered for some time, and fetches nothing
    file = tmp_path / "plan.json"
    file.write_text('{"version":1,"partitions":[{"topic":"stuck","partition":0,"replicas":[2]}]}')
    alive = cluster.brokers[1].address
    begun = run_command("cluster", "reassign", "--execute", str(file), "-b", alive)
    assert begun.status == 0, begun.err
    [row] = json.loads(run_command("cluster", "reassign", "--json", "-b", alive).text)
    assert (row["adding"], row["removing"], row["inSync"]) == ([2], [1], [1])
    cancelled = run_command("cluster", "reassign", "stuck", "--cancel", "-b", alive)
    assert cancelled.status == 0 and "cancelled 1 move" in cancelled.err
    assert json.loads(run_command("cluster", "reassign", "--json", "-b", alive).text) == []
    cluster.brokers[2].resume()
    soon(lambda: ran(cluster, "health").status == 0, "broker 2 does not come back")
    run_command("topics", "delete", "stuck", "-b", cluster.bootstrap_servers)


def test_a_broker_is_drained_in_parts(cluster):
    create(cluster, "drained", [3, 1], [1, 3], [2, 1], [3, 2])
    soon(lambda: ran(cluster, "health").status == 0, "it does not get healthy")
    done = ran(cluster, "drain", "3", "--at-once", "2", "--json")
    assert done.status == 0, done.err
    lines = [json.loads(line) for line in done.text.splitlines()]
    assert [row["left"] for row in lines if "left" in row] == [1, 0, 0]
    assert lines[-1]["drained"] is True
    wanted = {0: [2, 1], 1: [1, 2], 2: [2, 1], 3: [1, 2]}
    soon(lambda: replicas(cluster, "drained") == wanted, "other brokers do not learn it")
    again = ran(cluster, "drain", "3")
    assert again.status == 0 and "broker 3 has no replicas" in again.err
    full = ran(cluster, "drain", "1")
    assert full.status == 0, full.err  # 3 is empty, and takes the replicas of 1
    run_command("topics", "delete", "drained", "-b", cluster.bootstrap_servers)


def test_levels_of_features_are_shown_and_finalized(cluster):
    def levels():
        return {row["name"]: row["level"] for row in document(cluster, "features")}

    assert levels()["transaction.version"] == 2
    refused = ran(cluster, "features", "transaction.version=0")
    assert refused.status == 1 and "downgrade" in refused.err
    unknown = ran(cluster, "features", "news=1")
    assert unknown.status == 1 and "does not support this feature" in unknown.err
    wrong = ran(cluster, "features", "transaction.version")
    assert wrong.status == 2 and "'transaction.version' is not FEATURE=LEVEL" in wrong.err
    done = ran(cluster, "features", "transaction.version=0", "--downgrade")
    assert done.err == "finalized transaction.version=0\n"
    soon(lambda: levels()["transaction.version"] == 0, "the level is not 0")
    ran(cluster, "features", "transaction.version=2")
    soon(lambda: levels()["transaction.version"] == 2, "the level is not 2")
    assert "feature" in ran(cluster, "features").text.splitlines()[0]


def test_a_full_cluster_cannot_be_drained(cluster):
    create(cluster, "everywhere", [1, 2, 3])
    refused = ran(cluster, "drain", "3")
    assert refused.status == 1
    assert "no live broker beside these could take the one of broker 3" in refused.err
    run_command("topics", "delete", "everywhere", "-b", cluster.bootstrap_servers)


def test_unknown_names_have_the_usual_words(cluster, tmp_path):
    assert (
        "there is no topic absent (UNKNOWN_TOPIC_OR_PARTITION)"
        in ran(cluster, "elect", "absent").err
    )
    for words in (("drain", "9"), ("reassign", "absent", "--to", "1,9")):
        refused = ran(cluster, *words)
        assert refused.status == 1
        assert "broker 9 is not among the live brokers" in refused.err
    plan = b'{"version":1,"partitions":[{"topic":"absent","partition":0,"replicas":[1]}]}'
    refused = ran(cluster, "reassign", "--execute", "-", stdin=plan)
    assert refused.status == 1 and "absent" in refused.err
    assert "UNKNOWN_TOPIC_OR_PARTITION" in refused.err
    refused = ran(cluster, "reassign", "--execute", "-", stdin=b"{}")
    assert refused.status == 1 and "is not a reassignment plan" in refused.err
