"""Workload H on a disk that fails: writes are short or refused, the disk is full, a flush fails,
and one of two log directories goes. What was acknowledged is there at the end, no offset is given
twice.

Each fault is proved by the number of calls that it struck, or by the answer to a client.
"""

import errno
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster.disks import Disk
from cluster.disks import missing as no_disk
from compat.support import Wire
from durability.armed_broker import ArmedBroker
from durability.broker_process import free_port
from history.model import now
from history.test_workload_h import seed, verdict_of, wait_until_all_go_on
from history.workload import BROKER_SETTINGS, Workload, create_topics
from long_form import pick
from node.test_settings import batches, create, produce
from waiting import pause

__all__ = ["seed"]  # a fixture
pytestmark = [
    pytest.mark.takes(seconds=pick(short=6, long=45)),
    pytest.mark.skipif(no_disk() is not None, reason=no_disk() or ""),
]

STORAGE_ERROR = 56
MEGABYTES = 256
BACK_S_MAX = 10.0
FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path / "disk", MEGABYTES)
    yield made
    made.unmount()


def under_h(tmp_path: Path, seed: int, directories: Sequence[Path], faults: Callable) -> None:
    """Runs the workload, and faults(broker, workload, started), where started() starts the broker
    again. It returns the broker that runs at the end."""
    port = free_port()
    given = BROKER_SETTINGS | {
        "log.dirs": ",".join(map(str, directories)),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.durability": "fsync",
    }

    def started() -> ArmedBroker:
        return ArmedBroker(directories[0], given)

    broker = started()
    create_topics(broker.address, segment_bytes="16384", index_interval_bytes="512")
    workload = Workload(broker.address, seed)
    try:
        wait_until_all_go_on(workload, 0)
        broker = faults(broker, workload, started)
        wait_until_all_go_on(workload, now())
        workload.stop()
        verdict = verdict_of(workload, tmp_path)
    finally:
        workload.stopping.set()
        broker.end()
    assert verdict.valid is True, f"seed {seed}\n{verdict}"


@contextmanager
def struck(broker: ArmedBroker, *rules: dict[str, object]) -> Iterator[None]:
    """Keeps the faults while the block runs, and until each has struck."""
    numbers = [broker.fault(**rule) for rule in rules]
    yield
    deadline = time.monotonic() + 20
    while not all(broker.fired(number) for number in numbers):
        missing = [rule for rule, n in zip(rules, numbers, strict=True) if not broker.fired(n)]
        assert time.monotonic() < deadline, f"did not happen: {missing}"
        time.sleep(0.05)
    broker.clear_faults()


def error_of(wire: Wire) -> int:
    return produce(wire, "probe", b"v").errorCode


def seconds_until(wire: Wire, error: int, most_s: float) -> float:
    began = time.monotonic()
    while error_of(wire) != error:
        assert time.monotonic() - began < most_s, f"no answer {error} within {most_s} s"
        time.sleep(0.05)
    return time.monotonic() - began


@pytest.mark.only_long
def test_writes_that_fail_and_a_full_disk(tmp_path, disk, seed):
    def faults(broker, workload, _started):
        with struck(broker, {"call": "pwritev", "action": "short", "count": 300}):
            pass
        refused = {"call": "pwritev", "action": "error", "count": 2}
        for number in (errno.EIO, errno.ENOSPC):
            rows = [refused | {"errno": number, "path_contains": name} for name in FILES]
            with struck(broker, *rows):
                pass
        rolls = {"call": "open", "action": "error", "errno": errno.ENOSPC, "path_contains": ".log"}
        with struck(broker, rolls):
            pass
        wait_until_all_go_on(workload, now())
        with Wire(broker.address) as wire:
            create(wire, "probe", {})
            assert error_of(wire) == 0
            disk.fill()
            seconds_until(wire, STORAGE_ERROR, 20)
            [row] = batches(wire, "probe", wait_ms=0)[:1]
            assert row.records[0].value == b"v", "a full disk is not read"
            disk.free()
            took = seconds_until(wire, 0, BACK_S_MAX)
        print(f"writes again {took:.2f} s after space was freed")
        return broker

    under_h(tmp_path, seed, [disk.folder], faults)


def test_a_flush_that_fails(tmp_path, disk, seed):
    def faults(broker, workload, started):
        with Wire(broker.address) as wire:
            create(wire, "probe", {})
            assert error_of(wire) == 0
            once = {"call": "fdatasync", "action": "error", "errno": errno.EIO}
            with struck(broker, once | {"path_contains": "input-0/"}):
                pass
            with struck(broker, once | {"path_contains": "probe-0/"}):
                assert error_of(wire) == STORAGE_ERROR
            for _ in range(5):
                assert error_of(wire) == STORAGE_ERROR, "a later flush counts for the lost bytes"
                time.sleep(0.2)
        broker.end()
        broker = started()
        with Wire(broker.address) as wire:
            assert error_of(wire) == 0
        return broker

    under_h(tmp_path, seed, [disk.folder], faults)


@pytest.mark.only_long
def test_one_of_two_log_directories_goes(tmp_path, disk, seed):
    """Its power is cut while the broker runs, so that each call fails; then it is repaired."""
    first = tmp_path / "first"

    def faults(broker, workload, started):
        lost = {path.name for path in disk.folder.glob("input-*")}
        kept = {path.name for path in first.glob("input-*")}
        assert lost and kept
        with Wire(broker.address) as wire:
            create(wire, "probe", {"retention.ms": "-1"}, 6)
            there = {
                int(path.name[6:]): folder
                for folder in (first, disk.folder)
                for path in folder.glob("probe-*")
            }
            pause(broker.process.pid)  # as in test_power_cut.cut
            disk.cut_power()
            broker.process.send_signal(signal.SIGCONT)
            deadline = time.monotonic() + 20
            while True:
                errors = {at: produce(wire, "probe", b"v", partition=at).errorCode for at in there}
                offline = {at for at, error in errors.items() if error == STORAGE_ERROR}
                if offline == {at for at, folder in there.items() if folder != first}:
                    break
                assert time.monotonic() < deadline, errors
            assert all(error == 0 for at, error in errors.items() if at not in offline)
        broker.end()
        disk.mount_again()
        return started()

    under_h(tmp_path, seed, [first, disk.folder], faults)
