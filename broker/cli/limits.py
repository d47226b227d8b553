"""Computes how many partitions fit into the limits of this process: descriptors, mapped regions.

A partition with an active segment keeps its log and two indexes open and the indexes mapped. Sealed
segments are opened when they are read, at most a thousand. Each connection needs a descriptor too.
"""

import contextlib
import resource
from dataclasses import dataclass
from pathlib import Path

from barnabas.storage.log_manager import OPEN_SEGMENTS_MAX

DESCRIPTORS_A_PARTITION, MAPS_A_PARTITION = 3, 2
DESCRIPTORS_OTHER, MAPS_OTHER = 128, 1024  # of the process itself, without OPEN_SEGMENTS_MAX
MAPS_A_SEGMENT = 2
MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of this process; None: no limit, or one that cannot be read."""

    descriptors: int | None
    maps: int | None

    @property
    def partitions(self) -> int | None:
        """The number of partitions with an active segment that fit, without connections."""
        found = []
        if self.descriptors is not None:
            left = self.descriptors - DESCRIPTORS_OTHER - OPEN_SEGMENTS_MAX
            found.append(left // DESCRIPTORS_A_PARTITION)
        if self.maps is not None:
            left = self.maps - MAPS_OTHER - MAPS_A_SEGMENT * OPEN_SEGMENTS_MAX
            found.append(left // MAPS_A_PARTITION)
        return max(min(found), 0) if found else None

    def text(self) -> str:
        """Returns the limits as one line for the operator."""
        if self.partitions is None:
            return "limits: the system limits neither open files nor mapped regions"
        rights, names = [], []
        if self.descriptors is not None:
            rights.append(f"open {self.descriptors:,} files")
            names.append("ulimit -n")
        if self.maps is not None:
            rights.append(f"map {self.maps:,} regions")
            names.append("vm.max_map_count")
        return (
            f"limits: up to about {self.partitions:,} partitions fit: this process may"
            f" {' and '.join(rights)} ({', '.join(names)})"
        )


def raise_and_read() -> Limits:
    """Raises the limit of descriptors as far as the system allows, and returns the limits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    maps = None
    with contextlib.suppress(OSError, ValueError):
        maps = int(MAX_MAP_COUNT.read_text())
    return Limits(None if soft == resource.RLIM_INFINITY else soft, maps)
