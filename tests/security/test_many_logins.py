"""Many failed logins leave nothing behind, and each kind of failure takes the same time."""

import gc
import os
import statistics
import threading
import time

from long_form import pick
from security.login_broker import PASSWORD, scram_login
from testing.processes import growths

from barnabas.config.jaas import LoginModule
from barnabas.security.failures import LoginFailed
from barnabas.security.plain import PlainUsers

EACH = 25  # of each kind
ROUNDS = pick(short=20, long=1000)
SHARE = 5  # the first and the last rounds, whose CPU time is compared
IDLE_S = 0.5
GROWTH_MAX_BYTES = 4 << 20


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


def cpu_s(work):
    """The CPU time of this process, which is the broker's too, in seconds."""
    began = time.process_time()
    work()
    return time.process_time() - began


def idle_cpu_s():
    return cpu_s(lambda: threading.Event().wait(IDLE_S))


def test_failed_logins_leave_nothing_behind(login):
    """2,000 of four kinds, in the long form 100,000, among them logins that the client aborts
    half-way."""
    reactor = login.broker.node.reactor
    for _ in range(5):
        fail(login)  # allocates what is allocated once
    gc.collect()
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    idle_s, took_s = idle_cpu_s(), []

    def fail_often():
        took_s.extend(cpu_s(lambda: fail(login)) for _ in range(ROUNDS))
        end = time.monotonic() + 10
        while reactor.counters()["connection_count"] > 1 and time.monotonic() < end:
            time.sleep(0.01)
        gc.collect()

    grown = growths(fail_often, GROWTH_MAX_BYTES)
    assert grown[-1] < GROWTH_MAX_BYTES, grown
    assert len(os.listdir("/proc/self/fd")) <= files + 2
    assert threading.active_count() <= threads
    assert idle_cpu_s() < idle_s + IDLE_S * 0.05
    # The best round of each: other programs on the machine only make a round slower.
    first_s, last_s = (min(part) for part in (took_s[:SHARE], took_s[-SHARE:]))
    assert last_s < 2.5 * first_s, took_s
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
