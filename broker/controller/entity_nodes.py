"""Changes of the settings of a user, a client id or an address in the metadata tree.

One node holds all settings of an entity: SCRAM credentials and quotas of a user, for example. A
change keeps those it does not name. It is computed from the node's current version, and computed
again when another broker has changed the node since. An entity without any setting has no node; a
user that has client ids keeps an empty one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from barnabas.controller.config_changes import notes_of
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.tree import (
    BadVersion,
    CreateNode,
    DeleteNode,
    MetadataTree,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
    StoreUnavailable,
)

ATTEMPTS_MAX = 10
Edit = Callable[[dict[str, str]], None]


class EntityNodes:
    """The entities of a cluster; one thread at a time changes them."""

    def __init__(self, tree: MetadataTree, reader: ClusterStateReader) -> None:
        self._tree = tree
        self._reader = reader
        self._lock = threading.Lock()

    def change(self, entity: str, edit: Edit) -> None:
        """Lets `edit` change the settings of an entity, and stores them. `entity`: the path below
        /config. Raises what `edit` raises, and MetadataError; nothing is changed then."""
        with self._lock:
            may_delete = True
            for _attempt in range(ATTEMPTS_MAX):
                operations = self._operations(entity, edit, may_delete)
                if not operations:
                    return
                try:
                    self._tree.multi(operations)
                except MultiFailed as failed:
                    if isinstance(failed.error, NotEmpty):
                        may_delete = False
                    elif not isinstance(failed.error, BadVersion | NodeExists | NoNode):
                        raise failed.error from failed
                    continue  # another broker was faster
                self._reader.refresh_config([entity])
                return
        raise StoreUnavailable(
            f"gave up after {ATTEMPTS_MAX} attempts: other brokers changed {entity} at the"
            " same time"
        )

    def _operations(self, entity: str, edit: Edit, may_delete: bool) -> list[Operation]:
        path = znodes.config_path(*entity.split("/", 1))
        # From the node itself: a change of another broker may not have been read yet.
        try:
            data, stat = self._tree.get(path)
            texts, version = znodes.decode_config(data), stat.version
        except NoNode:
            texts, version = {}, None
        edit(texts)
        data = znodes.encode_config(texts)
        if version is None and not texts:
            return []
        if version is None:
            self._tree.ensure_path(path.rpartition("/")[0])
            write: Operation = CreateNode(path, data)
        elif texts or not may_delete:
            write = SetData(path, data, version)
        else:
            write = DeleteNode(path, version)
        return [write, *notes_of(self._tree, entity)]
