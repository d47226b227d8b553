"""When the disk of a log fails, the broker logs an ERROR within two seconds: the file, the error,
what clients get and what to do; once a minute for the same failure. Metrics and health show the
same."""

import errno
import logging
from urllib.request import urlopen

from api.admin_calls import admin_on

STORAGE_ERROR = 56
FAILED = "barnabas_log_failed_disk_calls_total"
OFFLINE = "kafka_server_replicamanager_offlinereplicacount"


def errors(caplog):
    return [row.getMessage() for row in caplog.records if row.levelno == logging.ERROR]


def line_within_2_s(a, caplog):
    """By the broker's clock."""
    a.broker.clock.advance(seconds=2)
    (line,) = errors(caplog)
    return line


def fetched(a, path):
    with urlopen(f"{a.broker.node.metrics.address}{path}") as answer:
        return answer.read().decode()


def value_of(a, name):
    page = fetched(a, "/metrics")
    (line,) = [line for line in page.splitlines() if line.startswith(name + " ")]
    return float(line.split()[-1])


def failing(a, call, error):
    return a.broker.node.system.fault(call, "error", errno=error, count=1 << 30)


def test_refused_writes_are_logged_at_once_and_once_a_minute(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), admin_on(tmp_path, metrics_port="0") as a:
        a.create("t")
        assert a.produce("t") == 0
        rule = failing(a, "pwritev", errno.ENOSPC)
        for _ in range(50):
            assert a.produce("t") == STORAGE_ERROR
        assert a.broker.node.system.fired(rule) == 50
        line = line_within_2_s(a, caplog)
        assert f"{a.data}/t-0/{0:020d}.log" in line and "No space left on device" in line
        assert "KAFKA_STORAGE_ERROR" in line and "Free space" in line
        for _ in range(50):
            assert a.produce("t") == STORAGE_ERROR
        a.broker.clock.advance(seconds=30)
        assert len(errors(caplog)) == 1
        assert value_of(a, FAILED) == 100
        a.broker.clock.advance(seconds=31)
        assert a.produce("t") == STORAGE_ERROR
        a.broker.clock.advance(seconds=2)
        assert len(errors(caplog)) == 2 and "times since the last" in errors(caplog)[1]
        assert value_of(a, OFFLINE) == 0 and fetched(a, "/health/ready") == "ready\n"
        a.broker.node.system.clear_faults()
        assert a.produce("t") == 0


def test_failed_flush_is_logged_at_once(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), admin_on(tmp_path, metrics_port="0") as a:
        a.create("t")
        rule = failing(a, "fdatasync", errno.EIO)
        assert a.produce("t") == STORAGE_ERROR
        assert a.broker.node.system.fired(rule)
        line = line_within_2_s(a, caplog)
        assert f"{a.data}/t-0/{0:020d}.log" in line and "Input/output error" in line
        assert "offline until the broker is started again" in line
        assert value_of(a, OFFLINE) == 1
        assert "1 partition is offline" in fetched(a, "/health/ready")


def test_failed_roll_is_logged_at_once(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), admin_on(tmp_path) as a:
        a.create("t", segment_bytes="1024")
        assert a.produce("t", size=900) == 0
        rule = failing(a, "open", errno.EMFILE)
        assert a.produce("t", size=900) == STORAGE_ERROR
        assert a.broker.node.system.fired(rule)
        assert "Too many open files" in line_within_2_s(a, caplog)
        a.broker.node.system.clear_faults()
        assert a.produce("t", size=900) == 0
