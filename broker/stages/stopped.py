"""The metadata store of a broker that does not run, for commands that change it before a start."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.config import BrokerConfig
from barnabas.metadata import znodes
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import MetadataTree
from barnabas.stages.opened import embedded_directory
from barnabas.storage.log_dirs import LogDir, UnusableDirectory


@contextmanager
def stopped_tree(config: BrokerConfig) -> Iterator[MetadataTree]:
    """Opens the metadata store in the first directory of log.dirs, and locks this directory until
    the `with` block ends. Creates the directory if it is missing. Does not change the mark of the
    last stop (clean or not).

    Raises UnusableDirectory when a broker uses the directory or the store is not embedded, and
    MetadataError."""
    if config.metadata_store == "zookeeper":
        raise UnusableDirectory(
            "metadata.store=zookeeper: the users are in ZooKeeper. Use kafka-configs with"
            " --zookeeper, or with --bootstrap-server while the broker runs."
        )
    directory = LogDir(Path(config.log_dirs[0]))
    directory.open()
    try:
        tree = EmbeddedTree(
            embedded_directory(directory.path), clock_ms=lambda: int(time.time() * 1000)
        )
        try:
            tree.ensure_paths(znodes.PERSISTENT_PATHS)
            yield tree
        finally:
            tree.close()
    finally:
        directory.close(clean=False)
