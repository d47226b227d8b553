"""The tree that `barnabas storage import --zookeeper` reads, from a server or from its data.

A data directory is copied, and the copy is served by a ZooKeeper of this command on loopback, which
needs Java. The tree may be below a chroot: the one with the topics of the given cluster is used.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.cli.zookeeper_process import CannotStartZooKeeper, ZooKeeperProcess
from barnabas.config import BrokerConfig
from barnabas.takeover.refusals import CannotImport

if TYPE_CHECKING:
    from barnabas.metadata.tree import MetadataTree

DATA = "version-2"  # in a data directory: snapshots, and logs unless dataLogDir is set
CHROOT_DEPTH_MAX = 3

Load = Callable[[str], BrokerConfig]  # the settings with this zookeeper.connect


@contextmanager
def zookeeper_tree(
    where: str, load: Load, cluster_ids: Sequence[str]
) -> Iterator[tuple["MetadataTree", str]]:
    """Opens the tree, and yields it with the id of its cluster ("" before Kafka 0.10.1). `where`:
    HOST:PORT[,...][/CHROOT], or a data directory; `cluster_ids`: those of the log directories.
    Raises CannotImport, ConfigError, MetadataError."""
    from barnabas.metadata.tree_copy import owner_of
    from barnabas.stages.opened import open_zookeeper

    with ExitStack() as stack:
        connect = where
        if Path(where).is_dir():
            connect = stack.enter_context(_served(Path(where)))
            root = stack.enter_context(closing(open_zookeeper(load(connect), None)))
            connect += _chroot(root, cluster_ids, where)
        tree = stack.enter_context(closing(open_zookeeper(load(connect), None)))
        if tree.exists("/brokers/topics") is None:
            raise CannotImport(
                [f"{where} has no topics of Kafka (/brokers/topics). Give the chroot of its tree."]
            )
        yield tree, owner_of(tree).cluster_id or ""


@contextmanager
def _served(directory: Path) -> Iterator[str]:
    if not (directory / DATA).is_dir():
        raise CannotImport([f"{directory} is not a data directory of ZooKeeper: it has no {DATA}."])
    with tempfile.TemporaryDirectory(prefix="barnabas-zookeeper-") as folder:
        shutil.copytree(directory / DATA, Path(folder) / "data" / DATA)
        server = ZooKeeperProcess(Path(folder), ["-Dzookeeper.snapshot.trust.empty=true"])
        try:
            server.start()
        except CannotStartZooKeeper as error:
            raise CannotImport([f"{directory} cannot be served: {error}."]) from error
        try:
            yield server.address
        finally:
            server.stop()


def _chroot(root: "MetadataTree", cluster_ids: Sequence[str], where: str) -> str:
    """Returns the path above the tree of one of the clusters; "" for the root."""
    found = sorted(_trees(root, "", 0))
    # Brokers before 2.4 write no cluster id into their directories, before 0.10.1 none at all.
    matching = [path for path, id_ in found if not cluster_ids or id_ in (*cluster_ids, "")]
    if len(matching) == 1:
        return matching[0]
    known = ", ".join(f"{path or '/'} (cluster {id_ or 'without id'})" for path, id_ in found)
    raise CannotImport(
        [
            f"{where} has {len(matching)} trees of cluster {', '.join(cluster_ids) or '(no id)'}:"
            f" it has {known or 'none of Kafka'}. Give the data of the right ZooKeeper, or its"
            " address with the chroot."
        ]
    )


def _trees(root: "MetadataTree", path: str, depth: int) -> Iterator[tuple[str, str]]:
    from barnabas.metadata import znodes
    from barnabas.metadata.tree import NoNode

    names = root.children(path or "/")
    if "brokers" in names and root.exists(f"{path}{znodes.TOPICS_PATH}") is not None:
        try:
            data = root.get(f"{path}{znodes.CLUSTER_ID_PATH}")[0]
            yield path, znodes.decode_cluster_id(data)
        except NoNode:
            yield path, ""
        return
    if depth < CHROOT_DEPTH_MAX:
        for name in names:
            if name != "zookeeper":
                yield from _trees(root, f"{path}/{name}", depth + 1)
