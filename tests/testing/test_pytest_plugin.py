"""The pytest plugin: its fixtures and markers, and several xdist workers."""

import os
import subprocess
import sys

import pytest
from testing.processes import scratch_directories

pytestmark = pytest.mark.alone(
    reason="compares the scratch directories of the whole machine before and after a broker"
)


def run(folder, *arguments, **files):
    """Runs pytest in another process, in a folder with these files. Returns its exit code and
    output."""
    for name, text in files.items():
        suffix = ".ini" if name == "pytest" else ".py"
        (folder / f"{name}{suffix}").write_text(text)
    environ = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    ran = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120
    )
    return ran.returncode, ran.stdout + ran.stderr


FIXTURES = """
import socket
import pytest
from confluent_kafka import Producer

def produce(broker, topic, value):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(20) == 0

seen = {}

def test_the_topic_is_on_the_sessions_broker(session_broker, topic):
    produce(session_broker, topic, b"v")
    session_broker.assert_records(topic, ["v"])
    session_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=None)
    seen["topic"], seen["session"] = topic, session_broker

def test_it_is_gone_and_so_are_the_faults(session_broker, topic):
    assert session_broker is seen["session"]
    assert topic != seen["topic"]
    assert session_broker.topics == [topic]
    produce(session_broker, topic, b"v")

def test_a_broker_of_its_own(broker, topic, session_broker):
    assert broker is not session_broker
    assert broker.topics == [topic]
    seen["own"] = broker

def test_another_one(broker, topic):
    assert broker is not seen["own"]
    with pytest.raises(RuntimeError):
        seen["own"].bootstrap_servers

@pytest.mark.broker({"num.partitions": 7}, durable=True)
@pytest.mark.topic(partitions=3, configs={"cleanup.policy": "compact"})
def test_markers(broker, topic):
    assert broker.node.config.integer("num.partitions") == 7
    assert broker.node.config.integer("message.max.bytes") == 5000
    assert not str(broker.directory).startswith("/dev/shm")
    assert len(broker.node.cluster().topic(topic).partitions) == 3

def test_the_ini_file(session_broker):
    assert session_broker.node.config.integer("message.max.bytes") == 5000

def test_a_topic_that_the_test_deletes(session_broker, topic):
    session_broker.delete_topic(topic)

@pytest.mark.parametrize("odd", ["a/b c", "ü" * 300])
def test_any_test_has_a_name_for_a_topic(topic, odd):
    assert len(topic) <= 249
"""
INI = "[pytest]\nbroker_settings =\n    message.max.bytes=5000\n"


def test_fixtures_markers_and_settings(tmp_path):
    before = scratch_directories()
    code, output = run(tmp_path, "--strict-markers", test_it=FIXTURES, pytest=INI)
    assert code == 0, output
    assert "9 passed" in output
    assert not scratch_directories() - before


def test_fixtures_are_listed_with_what_they_are(tmp_path):
    code, output = run(tmp_path, "--fixtures")
    assert code == 0
    for line in (
        "A broker for this test only, on a free port, with its data in memory.",
        "One broker for all tests of this process; with pytest-xdist, one for each worker.",
        "The name of a new topic of the test's broker, which is deleted after the test.",
    ):
        assert line in output


def test_a_bad_ini_line_is_said(tmp_path):
    ini = "[pytest]\nbroker_settings = message.max.bytes\n"
    code, output = run(tmp_path, test_it="def test(broker): pass", pytest=ini)
    assert code == 1
    assert "broker_settings: 'message.max.bytes' does not have the form name=value" in output


def test_a_failed_assertion_shows_the_difference_and_not_our_code(tmp_path):
    code, output = run(
        tmp_path,
        test_it="def test(broker, topic): broker.assert_records(topic, ['v'], timeout_s=0)",
    )
    assert code == 1
    assert "holds 0 record(s); the test expected 1" in output
    assert "expected  value=b'v'" in output
    assert "testing/broker.py" not in output


def test_nothing_is_imported_before_a_test_asks(tmp_path):
    code, output = run(
        tmp_path,
        test_it="""
import sys
def test_none():
    assert "barnabas.testing.pytest_plugin" in sys.modules
    for name in ("barnabas.node", "barnabas.cext.network.reactor", "barnabas.testing.broker"):
        assert name not in sys.modules, name
""",
    )
    assert code == 0, output


WORKERS = """
import pytest
from confluent_kafka import Producer

@pytest.mark.parametrize("number", range(8))
def test_each(session_broker, topic, number, worker_id):
    producer = Producer({"bootstrap.servers": session_broker.bootstrap_servers})
    producer.produce(topic, b"%d" % number)
    assert producer.flush(20) == 0
    session_broker.assert_records(topic, [str(number)])
    assert session_broker.topics == [topic]
    print("served", worker_id, session_broker.bootstrap_servers)
"""


def test_each_worker_of_xdist_has_its_own_broker(tmp_path):
    before = scratch_directories()
    code, output = run(tmp_path, "-n", "2", "-rP", test_it=WORKERS)
    assert code == 0, output
    assert "8 passed" in output
    served = {tuple(line.split()[1:]) for line in output.splitlines() if line.startswith("served")}
    assert {worker for worker, _ in served} == {"gw0", "gw1"}
    assert len({address for _, address in served}) == 2 == len(served)
    assert not scratch_directories() - before


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "pytest.exit('enough')"])
def test_an_interrupted_run_leaves_nothing(tmp_path, end):
    before = scratch_directories()
    text = f"import pytest\ndef test(session_broker, broker, topic):\n    {end}\n"
    code, output = run(tmp_path, test_it=text)
    assert code == 2, output
    assert not scratch_directories() - before
