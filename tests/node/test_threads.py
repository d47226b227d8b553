"""The threads of a broker: each has a name in the kernel, and there are no more than needed."""

import os
import threading
from pathlib import Path

import pytest

from barnabas import Broker
from barnabas.cext.memory.threads import kernel_name

DIRECTORIES = 4


def kernel_names() -> dict[int, str]:
    return {
        int(task): Path(f"/proc/self/task/{task}/comm").read_text().rstrip("\n")
        for task in os.listdir("/proc/self/task")
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("acceptor", "acceptor"),
        ("transaction-timeouts", "transaction-tim"),
        ("request-handler-0", "request-handl-0"),
        ("request-handler-12", "request-hand-12"),
        ("log-recovery_3", "log-recovery_3"),
        ("flush-märz-1", "flush-m?rz-1"),
        ("x" * 40, "x" * 15),
        ("-" + "1" * 40, "1" * 15),
    ],
)
def test_a_kernel_name_keeps_its_number(name, expected):
    assert kernel_name(name) == expected


def test_f25_every_thread_has_a_kernel_name_and_directories_add_one_each(tmp_path):
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "num.io.threads": "2"}
    before = set(kernel_names())
    dirs = ",".join(str(tmp_path / f"d{number}") for number in range(DIRECTORIES))
    with Broker(settings | {"log.dirs": dirs}):
        names = {task: name for task, name in kernel_names().items() if task not in before}
        known = {thread.native_id: thread.name for thread in threading.enumerate()}
        assert {task: known.get(task) for task in names} == {task: known[task] for task in names}
        assert names == {task: kernel_name(known[task]) for task in names}
        flushing = [task for task in names if known[task].startswith("flush-")]
        assert len(flushing) == DIRECTORIES
        assert len(names) == len(set(names.values()))
        reading = [task for task in names if known[task].startswith("cold-reads-")]
        assert len(reading) == 2 * DIRECTORIES
        assert len(names) - len(flushing) - len(reading) <= 30
