"""Offsets of Kafka 0.8: version 0 of OffsetCommit and OffsetFetch, in the metadata tree.

/consumers/G/offsets/T/P holds the offset as text. Clients of that age also read it directly. There
is no metadata string, no expiry and no member: any group may commit at any time.
"""

from __future__ import annotations

from barnabas.errors import InvalidGroupId
from barnabas.metadata.tree import InvalidPath, MetadataTree, NodeExists, NoNode, parent_of
from barnabas.metadata.znodes import CONSUMERS_PATH


class TreeOffsets:
    """The offsets in the metadata tree."""

    def __init__(self, tree: MetadataTree) -> None:
        self._tree = tree

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Commits an offset; it is durable when this returns. Raises InvalidGroupId for a name that
        cannot be the name of a node."""
        path, data = _path(group, topic, partition), b"%d" % offset
        try:
            try:
                self._tree.set(path, data)
            except NoNode:
                self._tree.ensure_path(parent_of(path))
                self._tree.create(path, data)
        except NodeExists:  # another client has committed first
            self._tree.set(path, data)
        except InvalidPath as error:
            raise InvalidGroupId() from error

    def fetch(self, group: str, topic: str, partition: int) -> int | None:
        """Returns the committed offset, or None when none was committed. Raises InvalidGroupId
        for a group or topic that no path can have."""
        try:
            data, _ = self._tree.get(_path(group, topic, partition))
            return int(data)
        except (NoNode, ValueError):
            return None
        except InvalidPath as error:
            raise InvalidGroupId() from error


def _path(group: str, topic: str, partition: int) -> str:
    if not group or "/" in group or "/" in topic:
        raise InvalidGroupId()
    return f"{CONSUMERS_PATH}/{group}/offsets/{topic}/{partition}"
