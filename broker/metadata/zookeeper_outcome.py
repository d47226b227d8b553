"""Decides whether a multi whose answer was lost was done, from the state of its nodes.

A multi is done completely or not at all, with one number (zxid) that is larger than `before`, the
largest zxid seen when it was sent. So each of its operations is evidence:

    the node to be created  created after `before`, with the requested data: done
                            older; or absent, and its parent unchanged since `before`: not done
    the data to be set      changed since `before`, as requested: done; unchanged: not done
    the node to be deleted  exists, and is older than `before`: not done; absent: no evidence
    a sequential node       its parent unchanged since `before`: not done; else no evidence

One operation that was not done decides, because the lost request cannot arrive any more: ZooKeeper
closes the old connection of a session before it accepts the new one. The multi was done when all
evidence agrees on one number. Otherwise the outcome is unknown: another writer came between.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.metadata.tree import CheckVersion, CreateNode, DeleteNode, Operation, SetData


class Verdict(enum.Enum):
    """The outcome of a multi whose answer was lost."""

    DONE = "done"
    NOT_DONE = "not done"
    UNKNOWN = "unknown"


_NEUTRAL = 0  # not a zxid: agrees with every number


class Found:
    """What was read of one path: its stat, its data, and the zxid of the last change of its
    parent's children. Stats are those of ZooKeeper; None where no node exists."""

    __slots__ = ("data", "parent_pzxid", "stat")

    def __init__(self, stat: Any, data: bytes, parent_pzxid: int) -> None:
        self.stat = stat
        self.data = data
        self.parent_pzxid = parent_pzxid


def verdict(
    operations: Sequence[Operation], found: Mapping[str, Found], before: int, session_id: int
) -> tuple[Verdict, int]:
    """Returns whether the multi was done, and its number (zxid) if it is known, otherwise 0.
    `found` by path: paths that are changed twice have no entry, and sequential nodes only that of
    their parent."""
    numbers: set[int] = set()
    unknown = False
    for operation in operations:
        said = _witness(operation, found.get(operation.path), before, session_id)
        if said is Verdict.NOT_DONE:
            return said, 0
        if said is Verdict.UNKNOWN:
            unknown = True
        else:
            assert isinstance(said, int)
            numbers.add(said)
    numbers.discard(_NEUTRAL)
    deletes = any(isinstance(operation, DeleteNode) for operation in operations)
    if unknown or len(numbers) > 1 or not (numbers or deletes):
        return Verdict.UNKNOWN, 0
    return Verdict.DONE, numbers.pop() if numbers else 0


def _witness(
    operation: Operation, found: Found | None, before: int, session_id: int
) -> Verdict | int:
    """Returns the number of the change, or the verdict if there is no number."""
    if isinstance(operation, CheckVersion):
        return _NEUTRAL
    if found is None:
        return Verdict.UNKNOWN
    if isinstance(operation, CreateNode):
        return _creation(operation, found, before, session_id)
    if found.stat is None:
        return _NEUTRAL if isinstance(operation, DeleteNode) else Verdict.UNKNOWN
    if isinstance(operation, DeleteNode):
        return Verdict.NOT_DONE if found.stat.czxid <= before else Verdict.UNKNOWN
    return _setting(operation, found, before)


def _creation(operation: CreateNode, found: Found, before: int, session_id: int) -> Verdict | int:
    stat = found.stat
    if stat is None:
        if found.parent_pzxid <= before:
            return Verdict.NOT_DONE
        return _NEUTRAL if operation.sequence else Verdict.UNKNOWN
    if stat.czxid <= before:
        return Verdict.NOT_DONE
    if stat.version != 0:
        return Verdict.UNKNOWN
    owner = session_id if operation.ephemeral else 0
    if found.data == operation.data and stat.ephemeralOwner == owner:
        return int(stat.czxid)
    return Verdict.NOT_DONE  # another writer created it: the next attempt reports that


def _setting(operation: SetData, found: Found, before: int) -> Verdict | int:
    stat = found.stat
    if stat.mzxid <= before:
        return Verdict.NOT_DONE
    expected = operation.version in (-1, stat.version - 1)
    return int(stat.mzxid) if expected and found.data == operation.data else Verdict.UNKNOWN
