"""Makes the archive from which quick JVMs of these tests map Kafka's classes: `python -m
compat.kafka_classes`, by tests/run before the tests.

A broker writes it at its end (Java's -XX:ArchiveClassesAtExit). With it a broker and the formatting
of its directory take 4.5 s of CPU, and 8.5 s without; a Java client takes 1.3 s, and 2.3 s without.
It is kept in ~/.cache/barnabas beside the jars, for one version of Kafka and of Java. Without it
the tests are the same and take longer.
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compat.support import KAFKA, QUICK_HEAP, rival

# 3.9.2: beside barnabas in one cluster; 4.4.0 and 2.7.2: the newest and the oldest Java client.
VERSIONS = (KAFKA, "3.9.2", "4.4.0", "2.7.2")


def make(version: str) -> Path:
    """Returns the archive; makes it if it is missing. Raises RivalError."""
    kept: Path = rival.archive(version)
    if kept.exists():
        return kept
    with tempfile.TemporaryDirectory(prefix="barnabas-classes-") as folder:
        new = kept.with_suffix(".new")  # in the same file system, so that the rename is atomic
        mode = "kraft" if version.startswith("4.") else "zookeeper"
        broker = rival.Rival(version, folder, mode, heap=QUICK_HEAP)
        broker.prepare()  # in a JVM that writes no archive
        broker.heap = (*QUICK_HEAP, f"-XX:ArchiveClassesAtExit={new}")
        broker.start()
        broker.stop()
    if not new.exists():
        raise rival.RivalError(f"Kafka {version} wrote no archive of its classes")
    return new.rename(kept)


if __name__ == "__main__":
    with ThreadPoolExecutor(2) as threads:
        print(*threads.map(make, VERSIONS), sep="\n")
