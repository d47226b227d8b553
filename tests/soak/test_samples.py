"""The judge of a soak: what grows is found, what is flat is not."""

import subprocess
import sys
import time

import pytest
from soak.samples import MB, Sample, Sampler, growths, sample

FLAT = [Sample(float(at), 7, 40 * MB, 60, 12, 100 * MB, 3.0) for at in range(30)]


def names(samples):
    return [row.name for row in growths(samples)]


def test_what_is_flat_is_not_found():
    assert names(FLAT) == []
    uneven = [
        row._replace(p99_ms=3.0 + row.at_s % 5, threads=12 + at % 2) for at, row in enumerate(FLAT)
    ]
    assert names(uneven) == []


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("memory_bytes", MB // 2),
        ("descriptors", 1),
        ("threads", 0.4),
        ("disk_bytes", 2 * MB),
        ("p99_ms", 0.4),
    ],
)
def test_what_grows_is_found(name, step):
    grown = [row._replace(**{name: getattr(row, name) + at * step}) for at, row in enumerate(FLAT)]
    assert names(grown) == [name]


def test_samples_of_two_processes_are_refused():
    with pytest.raises(ValueError, match="cannot be judged"):
        growths([*FLAT, FLAT[0]._replace(pid=8)])
    with pytest.raises(ValueError, match="cannot be judged"):
        growths(FLAT[:5])


LEAKS = """
import os, sys, threading, time
kept, folder = [], sys.argv[1]
for number in range(10_000):
    kept.append(bytearray(os.urandom(1 << 20)))
    kept.append(open(os.path.join(folder, str(number)), "wb"))
    kept[-1].write(bytes(1 << 20))
    kept[-1].flush()
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    time.sleep(0.02)
"""


def test_a_process_that_leaks_is_seen_from_outside(tmp_path):
    with subprocess.Popen([sys.executable, "-c", LEAKS, str(tmp_path)]) as leaking:
        sampler = Sampler(lambda: leaking.pid, tmp_path, lambda: 1.0, every_s=0.05)
        try:
            while len(sampler.samples) < 40:
                assert leaking.poll() is None
                time.sleep(0.05)
        finally:
            sampler.stop()
            leaking.kill()
    assert names(sampler.samples) == ["memory_bytes", "descriptors", "threads", "disk_bytes"]


def test_a_process_that_has_ended_has_no_sample(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
        with pytest.raises(OSError):
            sample(ended.pid, tmp_path, 0.0, 0.0)
