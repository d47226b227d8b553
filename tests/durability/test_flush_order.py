"""log.durability=fsync: the response to acks=all is sent after the fdatasync of its records."""

import re
import shutil
import threading
import time
from pathlib import Path

import pytest
from compat.support import Wire
from durability.broker_process import BrokerProcess, free_port
from node.test_settings import broker_with, create, produce, wire_to
from waiting import soon

CALLS = "pwrite64,pwritev,pwritev2,fdatasync,sendto,sendmsg,write,writev"
LINE = re.compile(r"^(?:\d+ +)?(?P<name>\w+)\((?P<fd>\d+)<(?P<what>[^>]*)>.*$")


def traced(tmp_path, durability: str) -> list[str]:
    """The steps of one acks=all produce: 'write', 'flush' of the .log, 'answer'."""
    out = tmp_path / "trace"
    how = "strace -D -f --seccomp-bpf -qq -y -s 16"  # -D: the process started is the broker
    command = [*how.split(), "-e", f"trace={CALLS}", "-o", str(out)]
    settings = {"log.durability": durability}
    data = tmp_path / "data"
    with BrokerProcess(data, free_port(), settings, before=command) as broker:
        with Wire(broker.address) as wire:
            create(wire, "t")
            assert produce(wire, "t", b"first").errorCode == 0
            # A client may have the answer before strace has written the call that sent it.
            soon(lambda: steps(out)[-1:] == ["answer"])
            before = len(steps(out))
            assert produce(wire, "t", b"second").errorCode == 0
            soon(lambda: "answer" in steps(out)[before:])
            return steps(out)[before:]


def steps(trace: Path) -> list[str]:
    done = []
    for line in trace.read_text().splitlines():
        found = LINE.match(line)
        if found is None:
            continue
        name, what = found["name"], found["what"]
        if what.endswith(".log"):
            done.append("flush" if name == "fdatasync" else "write")
        elif what.startswith(("socket:", "TCP:")):
            done.append("answer")
    return done


needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@needs_strace
def test_fsync_comes_between_the_write_and_the_answer(tmp_path):
    assert traced(tmp_path, "fsync") == ["write", "flush", "answer"]


@needs_strace
def test_os_answers_without_fsync(tmp_path):
    assert traced(tmp_path, "os") == ["write", "answer"]


@pytest.mark.parametrize(("durability", "waits"), [("fsync", True), ("os", False)])
def test_a_slow_fdatasync_delays_the_answer_only_under_fsync(tmp_path, durability, waits):
    with broker_with(tmp_path, {"log.durability": durability}) as b, wire_to(b) as wire:
        create(wire, "t")
        assert produce(wire, "t", b"first").errorCode == 0
        rule = b.node.system.fault(
            "fdatasync", "delay", delay_ms=400, count=100, path_contains="t-0"
        )
        began = time.monotonic()
        assert produce(wire, "t", b"second").errorCode == 0
        took_s = time.monotonic() - began
        assert took_s >= 0.4 or not waits, took_s
        assert (b.node.system.fired(rule) > 0) == waits
        b.node.system.clear_faults()


def test_failed_fdatasync_is_answered_with_an_error_and_never_with_success_later(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t")
        assert produce(wire, "t", b"kept").errorCode == 0
        b.node.system.fault("fdatasync", "error", errno=5, count=1, path_contains="t-0")
        assert produce(wire, "t", b"lost").errorCode == 56
        assert produce(wire, "t", b"later").errorCode == 56
        create(wire, "other")
        assert produce(wire, "other", b"served").errorCode == 0


def test_one_flush_serves_many_waiting_producers(tmp_path):
    """All wait for the flush that the first one began, and then for one more."""
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t")
        handle = b.node.loaded.logs.get("t", 0).handle
        hold = b.node.system.fault("fdatasync", "hold", path_contains="t-0")
        b.node.system.count_calls()
        before = b.node.system.calls("fdatasync")
        codes = []

        def one():
            with wire_to(b) as own:
                codes.append(produce(own, "t", b"v").errorCode)

        threads = [threading.Thread(target=one) for _ in range(16)]
        for thread in threads:
            thread.start()
        soon(lambda: handle.end_offset == 16 and b.node.system.fired(hold), "they do not write")
        assert not codes
        b.node.system.release(hold)
        for thread in threads:
            thread.join()
        assert codes == [0] * 16
        assert b.node.system.calls("fdatasync") - before <= 6
