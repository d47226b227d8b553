"""The transaction index: the aborted transactions whose markers lie in a segment.

    B.txnindex       34 bytes an aborted transaction: version int16 = 0, producer id int64,
                     first offset int64, last offset int64 (the marker's), last stable offset int64
                     (after that abort). Entries ascend by last offset. Absent until the first

A reader of committed records in [from, to) gets the aborted transactions that reach into it: a
binary search finds the first marker at or above `from`, and the walk goes on, through later
segments too, until an entry's last stable offset shows that all before `to` was decided.

`aborted_count` of a segment is the number of entries that may be read; it is -1 until the first
reader or abort has read the file. It is published after the entry's bytes. A segment without
aborted transactions costs a reader one comparison, and so does a segment whose last marker is below
the offsets that it reads.

A crash can tear the last entry or lose entries that were not synced: a flush of the log syncs them
together with the batches, and recovery rebuilds the index. The opening of a cleanly closed log
checks that the entries are whole and in order and that their first and last batch belong to the
producer, and rebuilds an index that fails the check. As in Kafka, it does not notice when the last
entries or the whole file are missing. A reader gets SEGMENT_CORRUPT for impossible entries.

Next on the data path: cext/log/recover.pyx.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memset

from barnabas.cext.codec.endian cimport be16_load, be16_store, be64_load, be64_store
from barnabas.cext.log.linked_file cimport own_file
from barnabas.cext.log.segment cimport segment_fd, segment_find, segment_open_file
from barnabas.cext.memory.array cimport array_room
from barnabas.cext.memory.atomics cimport atomic_cas_i64, atomic_load_i64, atomic_store_i64
from barnabas.cext.memory.sys cimport read_whole, write_whole
from barnabas.cext.record.batch_at cimport BatchAt, SEGMENT_CORRUPT
from barnabas.cext.record.records cimport ATTR_CONTROL, ATTR_TRANSACTIONAL

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR, O_CREAT, O_TRUNC

cdef extern from "<errno.h>" nogil:
    int ENOENT, ENOMEM

cdef extern from "filemap.h" nogil:
    int64_t file_size(int fd)

cdef enum:
    PATH_BYTES_MAX = 4096
    ENTRIES_A_READ = 120        # 4 KiB
    PRODUCER_ID_AT = 43         # position in a batch


cdef void aborted_txns_free(AbortedTxns* list) noexcept nogil:
    free(list.items)
    memset(list, 0, sizeof(AbortedTxns))


cdef bint aborted_txns_add(AbortedTxns* list, const AbortedTxn* aborted) noexcept nogil:
    if not array_room(&list.items, &list.capacity, list.count + 1, sizeof(AbortedTxn)):
        return False
    list.items[list.count] = aborted[0]
    list.count += 1
    return True


cdef bint _parse(const uint8_t* bytes, AbortedTxn* into) noexcept nogil:
    """Decodes an entry. Returns False when the bytes cannot be one."""
    into.producer_id = <int64_t>be64_load(bytes + 2)
    into.first_offset = <int64_t>be64_load(bytes + 10)
    into.last_offset = <int64_t>be64_load(bytes + 18)
    into.last_stable_offset = <int64_t>be64_load(bytes + 26)
    return be16_load(bytes) == 0 and 0 <= into.first_offset <= into.last_offset


cdef int _entry(System* system, int fd, int64_t i, AbortedTxn* into) noexcept nogil:
    cdef uint8_t bytes[ABORTED_TXN_BYTES]
    cdef int64_t got = read_whole(system, fd, bytes, ABORTED_TXN_BYTES, i * ABORTED_TXN_BYTES)
    memset(into, 0, sizeof(AbortedTxn))
    if got < 0:
        return <int>got
    return 0 if got == ABORTED_TXN_BYTES and _parse(bytes, into) else SEGMENT_CORRUPT


# ----------------------------------------------------------------------------------------- writing

cdef int _open(Segment* segment, System* system, bint create) noexcept nogil:
    cdef char path[PATH_BYTES_MAX]
    snprintf(path, PATH_BYTES_MAX, "%s.txnindex", segment.stem)
    return system.open(system, path, O_RDWR | O_CREAT if create else O_RDWR, 0o644)


cdef int _open_to_change(
    Segment* segment, System* system, bint create, int64_t size_bytes
) noexcept nogil:
    """Opens the file as one that no other directory names; its first `size_bytes` bytes are kept.
    Returns the descriptor or -errno."""
    cdef char path[PATH_BYTES_MAX]
    cdef int fd = _open(segment, system, create)
    cdef int status
    if fd < 0:
        return fd
    snprintf(path, PATH_BYTES_MAX, "%s.txnindex", segment.stem)
    status = own_file(system, path, fd, size_bytes)
    if status == 0:
        return fd
    system.close(system, fd)
    return status


cdef int64_t _known(Segment* segment, System* system) noexcept nogil:
    """Returns the number of entries, which it reads from the file once; -errno or
    SEGMENT_CORRUPT."""
    cdef AbortedTxn last
    cdef int64_t count = atomic_load_i64(&segment.aborted_count)
    cdef int fd, status = 0
    if count >= 0:
        return count
    fd = segment_open_file(segment, system, ".txnindex", ".txnindex.deleted")
    count = 0
    last.last_offset = -1
    if fd >= 0:
        count = file_size(fd)
        if count > 0:
            count //= ABORTED_TXN_BYTES         # does not count a torn entry
        if count > 0:
            status = _entry(system, fd, count - 1, &last)
        system.close(system, fd)
    elif fd != -ENOENT:
        return fd
    if count < 0 or status < 0:
        return status if status < 0 else count
    # Readers read the count first. Another thread may have set both meanwhile, to the same values
    # or with one abort more.
    atomic_cas_i64(&segment.aborted_last_offset, -1, last.last_offset)
    atomic_cas_i64(&segment.aborted_count, -1, count)
    return atomic_load_i64(&segment.aborted_count)


cdef int _write(System* system, int fd, int64_t i, const AbortedTxn* aborted) noexcept nogil:
    cdef uint8_t bytes[ABORTED_TXN_BYTES]
    be16_store(bytes, 0)
    be64_store(bytes + 2, <uint64_t>aborted.producer_id)
    be64_store(bytes + 10, <uint64_t>aborted.first_offset)
    be64_store(bytes + 18, <uint64_t>aborted.last_offset)
    be64_store(bytes + 26, <uint64_t>aborted.last_stable_offset)
    return write_whole(system, fd, bytes, ABORTED_TXN_BYTES, i * ABORTED_TXN_BYTES)


cdef int txn_index_append(Segment* segment, System* system, const AbortedTxn* aborted) noexcept nogil:
    cdef int64_t count = _known(segment, system)
    cdef int fd, status
    if count < 0:
        return <int>count
    fd = _open_to_change(segment, system, True, count * ABORTED_TXN_BYTES)
    if fd < 0:
        return fd
    status = _write(system, fd, count, aborted)
    if status < 0:
        system.ftruncate(system, fd, count * ABORTED_TXN_BYTES)
    system.close(system, fd)
    if status < 0:
        return status
    atomic_store_i64(&segment.aborted_last_offset, aborted.last_offset)
    atomic_store_i64(&segment.aborted_count, count + 1)
    return 0


cdef int txn_index_cut(Segment* segment, System* system, int64_t end_offset) noexcept nogil:
    cdef AbortedTxn entry
    cdef int64_t count = _known(segment, system)
    cdef int fd, status = 0
    entry.last_offset = -1
    if count == 0 or count == -ENOENT:
        return 0
    fd = _open(segment, system, False)
    if fd < 0:
        return 0 if fd == -ENOENT else fd
    if count < 0:
        count = file_size(fd) // ABORTED_TXN_BYTES
    # Damaged entries at the end are cut off as well: they name no transaction.
    while count > 0:
        status = _entry(system, fd, count - 1, &entry)
        if status < 0 and status != SEGMENT_CORRUPT:
            break
        if status == 0 and entry.last_offset < end_offset:
            break
        count -= 1
    system.close(system, fd)
    if status < 0 and status != SEGMENT_CORRUPT:
        return status
    fd = _open_to_change(segment, system, False, count * ABORTED_TXN_BYTES)
    if fd < 0:
        return fd
    status = system.ftruncate(system, fd, count * ABORTED_TXN_BYTES)
    system.close(system, fd)
    if status < 0:
        return status
    atomic_store_i64(&segment.aborted_last_offset, entry.last_offset if count else -1)
    atomic_store_i64(&segment.aborted_count, count)
    segment.aborted_synced = min(segment.aborted_synced, count)
    return 0


cdef int txn_index_sync(Segment* segment, System* system) noexcept nogil:
    cdef int64_t count = atomic_load_i64(&segment.aborted_count)
    cdef int fd, status
    if count <= segment.aborted_synced:
        return 0
    fd = _open(segment, system, False)
    if fd < 0:
        return 0 if fd == -ENOENT else fd       # the segment was deleted meanwhile
    status = system.fdatasync(system, fd)
    system.close(system, fd)
    if status == 0:
        segment.aborted_synced = count
    return status


cdef int txn_index_replace(Segment* segment, System* system, const AbortedTxns* list) noexcept nogil:
    """Writes a new file and renames it over the old one. No other thread may see the log yet."""
    cdef char path[PATH_BYTES_MAX]
    cdef char made[PATH_BYTES_MAX]
    cdef int64_t i = 0
    cdef int fd, status = 0
    snprintf(path, PATH_BYTES_MAX, "%s.txnindex", segment.stem)
    snprintf(made, PATH_BYTES_MAX, "%s.txnindex.cleaned", segment.stem)
    atomic_store_i64(&segment.aborted_last_offset, -1)
    atomic_store_i64(&segment.aborted_count, -1)
    if list.count == 0:
        return system.unlink(system, path)
    fd = system.open(system, made, O_RDWR | O_CREAT | O_TRUNC, 0o644)
    if fd < 0:
        return fd
    while status == 0 and i < list.count:
        status = _write(system, fd, i, &list.items[i])
        i += 1
    if status == 0:
        status = system.fdatasync(system, fd)
    system.close(system, fd)
    return system.rename(system, made, path) if status == 0 else status


# ---------------------------------------------------------------------------------------- checking

cdef int _is_of(
    Segment* segment, System* system, int64_t offset, int64_t producer_id, int kind
) noexcept nogil:
    """Checks whether the batch at an offset belongs to a producer and is a marker (`kind`
    ATTR_CONTROL) or data (0) of a transaction. Returns 1, 0 or -errno; 1 also when compaction has
    removed the batch or the .log is damaged there."""
    cdef BatchAt at
    cdef uint8_t bytes[8]
    cdef int64_t got
    cdef int fd, status = segment_find(segment, system, offset, segment.size_bytes, &at)
    if status == SEGMENT_CORRUPT:
        return 1                                # the .log is damaged, not the index
    if status <= 0 or at.base_offset > offset:
        return status
    if at.magic != 2 or at.attributes & (ATTR_TRANSACTIONAL | ATTR_CONTROL) != (
            ATTR_TRANSACTIONAL | kind):
        return 0
    fd = segment_fd(segment, system)
    if fd < 0:
        return fd
    got = read_whole(system, fd, bytes, sizeof(bytes), at.position + PRODUCER_ID_AT)
    if got < 0:
        return <int>got
    return got == sizeof(bytes) and <int64_t>be64_load(bytes) == producer_id


cdef int _is_true(
    Segment* segment, System* system, const AbortedTxn* entry, int64_t before
) noexcept nogil:
    """Checks an entry against its batches; `before`: the last offset of the previous entry. Returns
    1, 0 or -errno."""
    cdef int status
    if entry.last_offset <= before or entry.first_offset == entry.last_offset:
        return 0
    if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
        return 0
    status = _is_of(segment, system, entry.last_offset, entry.producer_id, ATTR_CONTROL)
    if status == 1 and entry.first_offset >= segment.base_offset:
        status = _is_of(segment, system, entry.first_offset, entry.producer_id, 0)
    return status


cdef int txn_index_agrees(Segment* segment, System* system) noexcept nogil:
    cdef AbortedTxn entry
    cdef int64_t before = segment.base_offset - 1
    cdef int64_t size_bytes, i = 0
    cdef int status = 1
    cdef int fd = segment_open_file(segment, system, ".txnindex", ".txnindex.deleted")
    if fd < 0:
        return 1 if fd == -ENOENT else fd
    size_bytes = file_size(fd)
    if size_bytes < 0 or size_bytes % ABORTED_TXN_BYTES:
        status = <int>size_bytes if size_bytes < 0 else 0
    while status == 1 and i < size_bytes // ABORTED_TXN_BYTES:
        status = _entry(system, fd, i, &entry)
        if status == 0:
            status = _is_true(segment, system, &entry, before)
        before = entry.last_offset
        i += 1
    system.close(system, fd)
    return 0 if status == SEGMENT_CORRUPT else status


# ----------------------------------------------------------------------------------------- reading

cdef int64_t _first_marker(System* system, int fd, int64_t count, int64_t offset) noexcept nogil:
    """Returns the index of the first entry whose marker is at or above `offset`; `count` when there
    is none; -errno or SEGMENT_CORRUPT."""
    cdef AbortedTxn entry
    cdef int64_t low = 0, high = count, middle
    cdef int status
    while low < high:
        middle = (low + high) >> 1
        status = _entry(system, fd, middle, &entry)
        if status < 0:
            return status
        if entry.last_offset < offset:
            low = middle + 1
        else:
            high = middle
    return low


cdef int _collect(
    System* system, int fd, int64_t count, int64_t from_offset, int64_t to_offset,
    AbortedTxns* found
) noexcept nogil:
    cdef uint8_t bytes[ENTRIES_A_READ * ABORTED_TXN_BYTES]
    cdef AbortedTxn entry
    cdef int64_t i = _first_marker(system, fd, count, from_offset)
    cdef int64_t got, k, wanted
    if i < 0:
        return <int>i
    while i < count:
        wanted = min(count - i, <int64_t>ENTRIES_A_READ)
        got = read_whole(
            system, fd, bytes, wanted * ABORTED_TXN_BYTES, i * ABORTED_TXN_BYTES)
        if got != wanted * ABORTED_TXN_BYTES:
            return <int>got if got < 0 else SEGMENT_CORRUPT
        for k in range(wanted):
            if not _parse(bytes + k * ABORTED_TXN_BYTES, &entry):
                return SEGMENT_CORRUPT
            if entry.first_offset < to_offset and not aborted_txns_add(found, &entry):
                return -ENOMEM
            if entry.last_stable_offset >= to_offset:
                return 1
        i += wanted
    return 0


cdef int txn_index_collect(
    Segment* segment, System* system, int64_t from_offset, int64_t to_offset, AbortedTxns* found
) noexcept nogil:
    cdef int64_t count = _known(segment, system)
    cdef int fd, status
    if count <= 0:
        return <int>count
    if atomic_load_i64(&segment.aborted_last_offset) < from_offset:
        return 0
    fd = segment_open_file(segment, system, ".txnindex", ".txnindex.deleted")
    if fd < 0:
        return fd
    status = _collect(system, fd, count, from_offset, to_offset, found)
    system.close(system, fd)
    return status
