"""Metrics of this process from the operating system, under the names that all exporters use."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Iterator

from barnabas.telemetry.registry import COUNTER, GAUGE, Family, Metric, Page, of_mbean

CPU = Metric("process_cpu_seconds_total", COUNTER, (), "User and system time of the process")
RESIDENT = Metric("process_resident_memory_bytes", GAUGE, (), "Memory that is in RAM")
VIRTUAL = Metric("process_virtual_memory_bytes", GAUGE, (), "Virtual memory in bytes")
OPEN_FDS = Metric("process_open_fds", GAUGE, (), "Open file descriptors")
MAX_FDS = Metric("process_max_fds", GAUGE, (), "The limit of open file descriptors")
THREADS = Metric("process_threads", GAUGE, (), "Threads of the process")
STARTED = Metric(
    "process_start_time_seconds", GAUGE, (), "Start of the process, in seconds since 1970"
)
PYTHON = Metric("python_info", GAUGE, ("implementation", "version"), "The interpreter; always 1")
BUILD = Metric("barnabas_build_info", GAUGE, ("version",), "This broker's version; always 1")
DISK_READ = of_mbean(
    "kafka.server:type=KafkaServer,name=linux-disk-read-bytes",
    GAUGE,
    "Bytes this process has read from storage devices",
)
DISK_WRITE = of_mbean(
    "kafka.server:type=KafkaServer,name=linux-disk-write-bytes",
    GAUGE,
    "Bytes this process has caused to be written to storage devices",
)

METRICS = (
    CPU,
    RESIDENT,
    VIRTUAL,
    OPEN_FDS,
    MAX_FDS,
    THREADS,
    STARTED,
    PYTHON,
    BUILD,
    DISK_READ,
    DISK_WRITE,
)


def _stat() -> list[str]:
    """Returns /proc/self/stat from its third field on; the second field may contain spaces."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _started_s(start_ticks: int) -> float:
    """Returns the start in seconds since 1970, calculated from clock ticks since boot."""
    with open("/proc/uptime", encoding="ascii") as file:
        up_s = float(file.read().split()[0])
    return time.time() - up_s + start_ticks / os.sysconf("SC_CLK_TCK")


def _disk() -> dict[str, int]:
    """Returns the bytes read and written; empty when the kernel does not count or show them."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            rows = dict(line.split(": ") for line in file)
    except (OSError, ValueError):
        return {}
    return {name: int(rows[name]) for name in ("read_bytes", "write_bytes") if name in rows}


class ProcessCollector:
    """The collector. One for a process would be enough; one for each broker is simpler."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._started_s = _started_s(int(_stat()[19]))

    def __call__(self, page: Page) -> Iterator[Family]:
        stat = _stat()
        used = resource.getrusage(resource.RUSAGE_SELF)
        yield CPU, [("", round(used.ru_utime + used.ru_stime, 6))]
        yield RESIDENT, [("", int(stat[21]) * os.sysconf("SC_PAGE_SIZE"))]
        yield VIRTUAL, [("", int(stat[20]))]
        yield THREADS, [("", int(stat[17]))]
        yield STARTED, [("", round(self._started_s, 2))]
        yield (
            OPEN_FDS,
            [("", len(os.listdir("/proc/self/fd")) - 1)],
        )  # without the descriptor of the listing itself
        yield MAX_FDS, [("", resource.getrlimit(resource.RLIMIT_NOFILE)[0])]
        version = ".".join(str(part) for part in sys.version_info[:3])
        kind = platform.python_implementation()
        yield PYTHON, [(page.labels(implementation=kind, version=version), 1)]
        yield BUILD, [(page.labels(version=self._version), 1)]
        disk = _disk()
        if disk:
            yield DISK_READ, [("", disk["read_bytes"])]
            yield DISK_WRITE, [("", disk["write_bytes"])]
