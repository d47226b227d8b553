"""Plans with `log_dirs`: `barnabas cluster reassign` moves replicas between log directories."""

import json

from api.test_alter_replica_log_dirs import broker_on, rows, started
from cli.conftest import run_command


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
