"""Plans with `log_dirs`: `barnabas cluster reassign` moves replicas between log directories."""

import json

from api.test_alter_replica_log_dirs import broker_on, rows, started
from cli.conftest import run_command

from barnabas.client import Cluster, Resource, describe_configs
from barnabas.client.admin import BROKER
from barnabas.client.log_dir_moves import RATE

FLAG = "--replica-alter-log-dirs-throttle"


def test_a_plan_with_log_dirs_by_the_command(tmp_path):
    with broker_on(tmp_path) as a:
        _, there = started(a)
        node_id = a.broker.node.opened.node_id
        row = {"topic": "t", "partition": 0, "replicas": [node_id]}
        row["log_dirs"] = [str(tmp_path / there)]
        plan = json.dumps({"version": 1, "partitions": [row]}).encode()
        words = ("cluster", "reassign", "--execute", "-", "--wait")
        done = run_command(*words, "-b", a.broker.bootstrap_servers, stdin=plan)
        assert done.status == 0, done.err
        assert f"t-0 is in {tmp_path / there} on broker {node_id}" in done.text + done.err
        assert [found[:2] for found in rows(a)] == [(there, False)]
        row["log_dirs"] = [str(tmp_path / "three")]
        plan = json.dumps({"version": 1, "partitions": [row]}).encode()
        done = run_command(*words, "-b", a.broker.bootstrap_servers, stdin=plan)
        assert done.status == 1 and "LOG_DIR_NOT_FOUND" in done.err
        row["log_dirs"] = ["any", "any"]
        plan = json.dumps({"version": 1, "partitions": [row]}).encode()
        done = run_command(*words, "-b", a.broker.bootstrap_servers, stdin=plan)
        assert done.status == 1 and "not a reassignment plan" in done.err


def rate_of(a):
    node_id = a.broker.node.opened.node_id
    with Cluster(a.broker.bootstrap_servers) as cluster:
        found = describe_configs(cluster, Resource(BROKER, str(node_id)))
    return next((row.value for row in found if row.name == RATE), None)  # listed when it is set


def test_a_throttle_of_the_copies(tmp_path):
    with broker_on(tmp_path) as a:
        _, there = started(a)

        def execute(directory, *words):
            row = {"topic": "t", "partition": 0, "replicas": [a.broker.node.opened.node_id]}
            row |= {"log_dirs": [directory]} if directory else {}
            plan = json.dumps({"version": 1, "partitions": [row]}).encode()
            words = ("cluster", "reassign", "--execute", "-", FLAG, *words)
            return run_command(*words, "-b", a.broker.bootstrap_servers, stdin=plan)

        done = execute(str(tmp_path / there), "1")
        assert done.status == 0, done.err
        assert "copies 1 bytes a second between its log directories" in done.err
        assert rate_of(a) == "1"
        done = execute(str(tmp_path / there), "1000000000", "--wait")
        assert done.status == 0 and "removed the throttle of the copies" in done.err, done.err
        assert rate_of(a) is None
        assert [row[:2] for row in rows(a)] == [(there, False)]
        done = execute("", "5")
        assert done.status == 1 and f"{FLAG} needs log_dirs" in done.err
        done = run_command("cluster", "reassign", FLAG, "5", "-b", a.broker.bootstrap_servers)
        assert done.status == 1 and f"{FLAG} needs --execute" in done.err
