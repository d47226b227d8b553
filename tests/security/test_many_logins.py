"""Many failed logins leave no memory, and each kind of failure takes the same time."""

import gc
import os
import statistics
import time

from security.login_broker import PASSWORD, scram_login

from barnabas.security.failures import LoginFailed
from barnabas.security.jaas import LoginModule
from barnabas.security.plain import PlainUsers

ROUNDS = 40
EACH = 25


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fail(login):
    for number in range(EACH):
        with login.connect() as c:
            c.handshake("PLAIN")
            c.token(b"\0user%d\0bad" % number)
        with login.connect() as c:
            scram_login(c, "SCRAM-SHA-256", f"user{number}", "bad")
        with login.connect() as c:
            c.handshake("SCRAM-SHA-512")
            c.token(b"n,,n=user%d,r=abc" % number)
        with login.connect() as c:
            c.handshake("PLAIN", version=0)
            c.ask(b"x")


def test_failed_logins_leave_nothing_behind(login):
    """4,000 of four kinds, among them logins that the client aborts half-way."""
    reactor = login.broker.node.reactor
    for _ in range(5):
        fail(login)  # allocates what is allocated once
    gc.collect()
    before, files = resident_bytes(), len(os.listdir("/proc/self/fd"))
    for _ in range(ROUNDS):
        fail(login)
    end = time.monotonic() + 10
    while reactor.counters()["connection_count"] > 1 and time.monotonic() < end:
        time.sleep(0.01)
    gc.collect()
    assert resident_bytes() - before < 4 << 20
    assert len(os.listdir("/proc/self/fd")) <= files + 2
    assert reactor.counters()["held_bytes"] == 0


def median_ns(users, token):
    times = []
    for _ in range(4000):
        began = time.perf_counter_ns()
        try:
            users.authenticate(token)
        except LoginFailed:
            pass
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times)


def test_a_plain_user_that_does_not_exist_takes_as_long_as_a_wrong_password():
    users = PlainUsers(LoginModule("", {f"user_u{n}": PASSWORD for n in range(1000)}))
    wrong = b"\0u500\0" + b"x" * 40
    for _ in range(5):  # other programs use this machine, too
        ratio = median_ns(users, wrong) / median_ns(users, wrong.replace(b"u500", b"v500"))
        if 0.93 < ratio < 1.07:
            return
    raise AssertionError(ratio)
