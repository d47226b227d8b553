"""What network threads know of a member when they check its commits: the partitions that it reads.

A group writes its members into the table that commits are checked against
(cext/coordinator/group_table.pyx), with these bytes. A member of the classic protocol may commit
for every partition. Next: consumer_group.py, coordinator/streams/streams_group.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_HELD = struct.Struct(">16sii")


def held_partitions(rows: Iterable[tuple[bytes, int, int]]) -> bytes:
    """Encodes the partitions of a member for GroupTable.put_member: topic id, partition, and the
    epoch at which it was assigned. Each may be given twice."""
    return b"".join(sorted({_HELD.pack(*row) for row in rows}))
