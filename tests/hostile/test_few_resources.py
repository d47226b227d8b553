"""Workload H on a broker with 256 MB of memory, 128 descriptors and a tenth of a processor: all
clients go on, nothing acknowledged is lost, and the kernel kills nothing."""

import time
from contextlib import suppress
from pathlib import Path

import pytest
from durability.broker_process import BrokerProcess, free_port
from history.model import now
from history.test_workload_h import KINDS, done, seed, verdict_of, wait_until_all_go_on
from history.workload import BROKER_SETTINGS, Workload, create_topics
from hostile.control_groups import CPU, MEMORY, cpu_group, memory_group, missing

__all__ = ["seed"]  # a fixture
pytestmark = [
    pytest.mark.only_long,
    pytest.mark.takes(seconds=90),
    pytest.mark.skipif(missing(MEMORY) is not None, reason=str(missing(MEMORY))),
    pytest.mark.skipif(missing(CPU) is not None, reason=str(missing(CPU))),
]

MEMORY_BYTES, DESCRIPTORS, PERCENT = 256 << 20, 128, 10
RUN_S, PATIENCE_S = 20.0, 90.0


def throttled_periods(folder: Path) -> int:
    lines = (folder / "cpu.stat").read_text().splitlines()
    return int(dict(line.split() for line in lines)["nr_throttled"])


def test_workload_h_with_few_of_everything(tmp_path, seed):
    with memory_group(MEMORY_BYTES) as memory, cpu_group(PERCENT) as cpu:
        before = [*memory.prefix, *cpu.prefix, "prlimit", f"--nofile={DESCRIPTORS}"]
        broker = BrokerProcess(tmp_path / "data", free_port(), BROKER_SETTINGS, before)
        try:
            create_topics(broker.address)
            workload = Workload(broker.address, seed)
            try:
                wait_until_all_go_on(workload, 0, PATIENCE_S)
                time.sleep(RUN_S)
                since = now()
                wait_until_all_go_on(workload, since, PATIENCE_S)
                workload.stop()
                verdict = verdict_of(workload, tmp_path)
            finally:
                workload.stopping.set()
            assert broker.process.poll() is None and memory.kills == 1
            assert throttled_periods(cpu.folder) > 10, "the limit was not reached"
        finally:
            with suppress(ProcessLookupError):
                broker.kill()
    assert verdict.valid is True, f"seed {seed}\n{verdict}"
    for kind in KINDS:
        assert done(workload.history.operations(), kind, since, now()) > 0, kind
