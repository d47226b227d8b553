"""The files of a partition in plain Python: the twin of cext.log.log_handle.

A batch is (base offset, last offset, position, size, largest timestamp). Damage raises ValueError.
"""

import struct

from oracle.records import crc32c

BATCH = struct.Struct(">qiibIhiqqqhii")


def parse_log(data: bytes) -> list[tuple[int, int, int, int, int]]:
    found, position, expected = [], 0, -1
    while position < len(data):
        if len(data) - position < BATCH.size:
            raise ValueError(f"torn header at {position}")
        base, length, _, magic, crc, _, delta, _, latest, *_ = BATCH.unpack_from(data, position)
        size = 12 + length
        whole = data[position : position + size]
        if magic != 2 or len(whole) != size or crc32c(whole[21:]) != crc or base < expected:
            raise ValueError(f"no batch at {position}")
        found.append((base, base + delta, position, size, latest))
        expected = base + delta + 1
        position += size
    return found


def index_of(batches, base_offset: int, interval_bytes: int, *, sealed: bool = True):
    """(.index, .timeindex) bytes as a broker writes them for these batches, appended in one go."""
    offsets, times = [], []
    since, latest, latest_offset = 0, -1, base_offset

    def note_time():
        if latest > (times[-1][0] if times else -1):
            times.append((latest, latest_offset - base_offset))

    for _, last, position, size, timestamp in batches:
        if timestamp > latest:
            latest, latest_offset = timestamp, last
        if since > interval_bytes:
            offsets.append((last - base_offset, position))
            note_time()
            since = 0
        since += size
    if sealed and latest >= 0:
        note_time()
    return (
        b"".join(struct.pack(">ii", *entry) for entry in offsets),
        b"".join(struct.pack(">qi", *entry) for entry in times),
    )


def parse_snapshot(data: bytes) -> dict[int, tuple]:
    """producer id -> (epoch, last sequence, last offset, delta, timestamp, coordinator, txn)."""
    version, crc, count = struct.unpack_from(">hIi", data)
    if version != 1 or crc != crc32c(data[6:]) or len(data) != 10 + 46 * count:
        raise ValueError("not a producer snapshot")
    entries = struct.iter_unpack(">qhiqiqiq", data[10:])
    return {pid: tuple(rest) for pid, *rest in entries}


def parse_transactions(data: bytes) -> list[tuple[int, int, int, int]]:
    """(producer id, first offset, last offset, last stable offset) of each aborted transaction."""
    found = list(struct.iter_unpack(">hqqqq", data))
    if any(version != 0 for version, *_ in found):
        raise ValueError("not a transaction index")
    return [tuple(rest) for _, *rest in found]
