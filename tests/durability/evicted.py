"""Takes files out of the page cache, as memory that is short does."""

import ctypes
import mmap
import os
from pathlib import Path

PAGE_BYTES = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)


def evict(path: Path) -> bool:
    """Returns whether no page of the file is left in memory; on tmpfs, for example, all are."""
    with open(path, "rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return pages_in_memory(file.fileno()) == 0


def pages_in_memory(file: int) -> int:
    """Asks with mincore, which reads nothing."""
    size_bytes = os.fstat(file).st_size
    found = (ctypes.c_ubyte * -(-size_bytes // PAGE_BYTES))()
    with mmap.mmap(file, size_bytes, mmap.MAP_PRIVATE) as pages:
        at = ctypes.c_char.from_buffer(pages)
        try:
            address = ctypes.c_void_p(ctypes.addressof(at))
            if libc.mincore(address, ctypes.c_size_t(size_bytes), found) != 0:
                raise OSError(ctypes.get_errno(), "mincore")
        finally:
            del at
    return sum(row & 1 for row in found)
