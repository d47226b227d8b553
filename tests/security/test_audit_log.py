"""The audit log: one line a host and second, and no host is left without a trace."""

import logging

import pytest

from barnabas.security.acl_codes import GROUP, READ, TOPIC
from barnabas.security.audit_log import HOSTS_MAX, AuditLog

SECOND_NS = 1_000_000_000


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "barnabas.authorizer")

    def taken():
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    return taken


class Clock:
    now_ns = 5 * SECOND_NS

    def __call__(self):
        return self.now_ns


def test_denials_have_one_line_for_each_host_and_second(lines):
    clock = Clock()
    audit = AuditLog(clock)
    for _ in range(1000):
        audit.denied("User:alice", "10.0.0.1", READ, TOPIC, "secret\n")
    audit.denied("User:bob", "10.0.0.2", READ, GROUP, "g")
    assert lines() == [
        r"'User:alice' from 10.0.0.1 was denied READ on TOPIC 'secret\n'",
        "'User:bob' from 10.0.0.2 was denied READ on GROUP 'g'",
    ]
    clock.now_ns += SECOND_NS
    audit.denied("User:alice", "10.0.0.1", READ, TOPIC, "t")
    assert lines() == [
        "'User:alice' from 10.0.0.1 was denied READ on TOPIC 't';"
        " 999 more denials of this host before"
    ]


def test_denials_of_many_hosts_keep_memory_limited(lines):
    clock = Clock()
    audit = AuditLog(clock)
    for n in range(10 * HOSTS_MAX):
        audit.denied("User:a", f"10.0.{n >> 8}.{n & 255}", READ, TOPIC, "x" * 10_000)
    written = lines()
    assert len(written) == HOSTS_MAX and all(len(line) < 300 for line in written)
    assert len(audit._lines_ns) <= HOSTS_MAX and not audit._unwritten
    clock.now_ns += SECOND_NS
    audit.denied("User:a", "10.1.1.1", READ, TOPIC, "t")
    assert lines() == [
        "'User:a' from 10.1.1.1 was denied READ on TOPIC 't';"
        f" {9 * HOSTS_MAX} denials of other hosts"
    ]
