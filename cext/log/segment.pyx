"""A segment: a part of a log, in files whose names are its base offset in 20 decimal digits.

    B.log        record batches (cext/record/records.pyx), one after another, nothing else
    B.index      8 bytes an entry: last offset of a batch - B int32, its position int32
    B.timeindex  12 bytes an entry: largest timestamp so far int64, last offset of its batch - B int32
    B.txnindex   34 bytes an aborted transaction (cext/log/txn_index.pyx); absent until the first

An index entry is due when more than index.interval.bytes were written since the last one; it names
the batch that is being noted. A time entry is added together with it when the largest timestamp
grew, and one more when the segment is sealed. Indexes of the active segment are preallocated,
sparse, to segment.index.bytes rounded down to whole entries, and cut to their entries when the
segment is sealed.

Invariants: the .log of the active segment only grows, except for a truncation; readers see
`size_bytes` bytes of it. A file that has a name in another directory too is copied before it is
changed (cext/log/linked_file.pyx). Index content is a hint: a search that it misleads begins again at the
segment's start. Maps are accessed under a guard (mapguard.h): an index that is truncated meanwhile
reads as zeros. After a crash the .log may end in a torn batch, and indexes have their full size and
may be wrong; cext/log/recover.pyx repairs both. Limits: positions fit int32, so a segment is below
2 GiB; offsets span less than 2^31.

The active segment keeps its descriptor and maps. Sealed segments are opened on use and stay open in
a pool of the broker, which closes the least recently used first. A referenced segment is not
closed, so many slices in flight can exceed the limit for a while.

Next on the data path: cext/log/index.pyx.
"""
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset, strlen

from barnabas.cext.log.index cimport (
    OFFSET_ENTRY_BYTES, OffsetEntry, TIME_ENTRY_BYTES, TimeEntry, offset_index_check,
    offset_index_entry, offset_index_floor, offset_index_put, offset_index_used, time_index_check,
    time_index_entry, time_index_floor, time_index_put, time_index_used,
)
from barnabas.cext.log.linked_file cimport own_file
from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_load_i32, atomic_load_i64, atomic_store_i32, atomic_store_i64,
)
from barnabas.cext.memory.descriptors cimport log_file_close
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from barnabas.cext.memory.sys cimport read_whole, write_whole
from barnabas.cext.record.batch_at cimport batch_header_at

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY, O_RDWR, O_CREAT

cdef extern from "<errno.h>" nogil:
    int EAGAIN, ENOENT, ENOMEM

cdef extern from "filemap.h" nogil:
    int64_t file_size(int fd)
    int64_t file_data_end(int fd, int64_t size_bytes)
    int64_t file_modified_ms(int fd)
    uint8_t* map_file(int fd, int64_t size_bytes, int writable)
    void unmap_file(uint8_t* map, int64_t size_bytes)

cdef extern from "mapguard.h" nogil:
    void mapguard_install()
    void mapguard_enter(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes)
    void mapguard_leave()
    int64_t mapguard_count()

cdef enum:
    PATH_BYTES_MAX = 4096
    EVICTION_TRIES = 8          # segments that each opening checks, to close them

cdef uint8_t[INDEX_PAGE_BYTES] ZEROS


# ------------------------------------------------------------------ creation, freeing and the pool

cdef void pool_retain(SegmentPool* pool) noexcept nogil:
    atomic_add_i64(&pool.references, 1)


cdef void pool_release(SegmentPool* pool) noexcept nogil:
    cdef int64_t i
    if atomic_add_i64(&pool.references, -1) == 0:
        for i in range(pool.find_count):
            free(pool.finds[i].stem)
        for i in range(pool.failure_count):
            free(pool.failures[i].stem)
        pthread_mutex_destroy(&pool.lock)
        free(pool)


cdef Segment* segment_new(SegmentPool* pool, const char* directory, int64_t base_offset) noexcept nogil:
    """Makes a segment with one reference, without opening a file. Returns NULL without memory."""
    cdef Segment* s = <Segment*>calloc(1, sizeof(Segment))
    cdef size_t room = strlen(directory) + 32
    if s == NULL:
        return NULL
    s.stem = <char*>malloc(room)
    if s.stem == NULL:
        free(s)
        return NULL
    snprintf(s.stem, room, "%s/%020lld", directory, <long long>base_offset)
    s.references = 1
    s.base_offset = base_offset
    s.pool = pool
    pool_retain(pool)
    s.fd = s.offsets.fd = s.times.fd = -1
    s.max_timestamp = s.first_timestamp = s.corrupt_from = -1
    s.aborted_count = s.aborted_last_offset = -1
    s.max_timestamp_offset = base_offset
    return s


cdef void _unmap(IndexFile* index) noexcept nogil:
    if index.map != NULL:
        unmap_file(index.map, index.map_bytes)
    if index.fd >= 0:
        log_file_close(index.fd)
    index.map = NULL
    index.map_bytes = 0
    index.fd = -1
    index.mapped = False
    atomic_store_i64(&index.entries, 0)


cdef void _unlink_from_pool(Segment* s) noexcept nogil:
    """Takes the segment out of the pool's list of open segments. The caller holds the pool's
    lock."""
    if not s.pooled:
        return
    if s.older != NULL:
        s.older.newer = s.newer
    else:
        s.pool.oldest = s.newer
    if s.newer != NULL:
        s.newer.older = s.older
    else:
        s.pool.newest = s.older
    s.older = s.newer = NULL
    s.pooled = False
    s.pool.open_count -= 1


cdef void _link_into_pool(Segment* s) noexcept nogil:
    """Adds the segment to the pool's list as the most recently used. The caller holds the pool's
    lock."""
    s.older = s.pool.newest
    s.newer = NULL
    if s.older != NULL:
        s.older.newer = s
    else:
        s.pool.oldest = s
    s.pool.newest = s
    s.pooled = True
    s.pool.open_count += 1


cdef void _close_files(Segment* s) noexcept nogil:
    """Closes the files and maps, without the broker's table of system calls: a slice in flight may
    outlive it."""
    if s.fd >= 0:
        log_file_close(s.fd)
        s.fd = -1
    _unmap(&s.offsets)
    _unmap(&s.times)


cdef void _evict(SegmentPool* pool) noexcept nogil:
    """Closes segments to which only their log refers, while too many are open. The caller holds the
    pool's lock. A segment that waits for a flush is closed only when no other one can be: its open
    descriptor reports lost writes. The newest stays open: the caller is about to use it."""
    cdef Segment* s
    cdef Segment* following
    cdef int tries, spare
    for spare in range(2):
        s = pool.oldest
        tries = 0
        while pool.open_count > pool.open_max and s != NULL and tries < EVICTION_TRIES:
            following = s.newer
            tries += 1
            if s != pool.newest and atomic_load_i64(&s.references) == 1 and (
                spare or atomic_load_i64(&s.flushed_bytes) >= atomic_load_i64(&s.size_bytes)
            ):
                _unlink_from_pool(s)
                _close_files(s)
            s = following


cdef void segment_retain(Segment* segment) noexcept nogil:
    atomic_add_i64(&segment.references, 1)


cdef void segment_release(Segment* segment) noexcept nogil:
    cdef SegmentPool* pool
    if atomic_add_i64(&segment.references, -1) > 0:
        return
    pool = segment.pool
    pthread_mutex_lock(&pool.lock)
    _unlink_from_pool(segment)
    pthread_mutex_unlock(&pool.lock)
    _close_files(segment)
    free(segment.stem)
    free(segment)
    pool_release(pool)


cdef void segment_release_retired(void* segment) noexcept nogil:
    segment_release(<Segment*>segment)


# ----------------------------------------------------------------------------------------- opening

cdef int _open(Segment* s, System* system, const char* suffix, int flags) noexcept nogil:
    cdef char path[PATH_BYTES_MAX]
    snprintf(path, PATH_BYTES_MAX, "%s%s", s.stem, suffix)
    return system.open(system, path, flags, 0o644)


cdef int segment_open_file(Segment* s, System* system, const char* suffix, const char* deleted) noexcept nogil:
    """Opens one of the files, under its name or its .deleted name: a segment that a reader holds
    may have been renamed meanwhile. Returns the descriptor or -errno."""
    cdef int fd = -ENOENT
    if atomic_load_i32(&s.cut_off):
        return fd
    fd = _open(s, system, suffix, O_RDONLY)
    if fd == -ENOENT:
        fd = _open(s, system, deleted, O_RDONLY)
    return fd


cdef int segment_fd(Segment* segment, System* system) noexcept nogil:
    cdef int fd
    if atomic_load_i32(&segment.active) or atomic_load_i32(&segment.pinned):
        return segment.fd
    pthread_mutex_lock(&segment.pool.lock)
    if segment.fd < 0:
        # Opening may wait for the disk, so it does not hold the lock that all readers share.
        pthread_mutex_unlock(&segment.pool.lock)
        fd = segment_open_file(segment, system, ".log", ".log.deleted")
        if fd < 0:
            return fd
        pthread_mutex_lock(&segment.pool.lock)
        if segment.fd < 0:
            segment.fd = fd
        else:
            log_file_close(fd)
    _unlink_from_pool(segment)
    if not segment.pinned:
        _link_into_pool(segment)
        _evict(segment.pool)
    fd = segment.fd
    pthread_mutex_unlock(&segment.pool.lock)
    return fd


cdef int segment_open_log(Segment* segment, System* system) noexcept nogil:
    return segment_open_file(segment, system, ".log", ".log.deleted")


cdef int64_t _sound(
    const Segment* s, const IndexFile* index, bint by_time, int64_t written_bytes
) noexcept nogil:
    """Returns how many entries of a mapped index, from the first, are sound. Behind `written_bytes`
    there are only zeros, which it does not read: each page of them would be loaded into memory and
    stay there."""
    cdef int64_t end_offset = s.base_offset + <int64_t>INT32_MAX + 1
    cdef int64_t sound
    mapguard_enter(index.map, index.map_bytes, NULL, 0)
    if by_time:
        sound = time_index_check(
            index.map, time_index_used(index.map, written_bytes), s.base_offset, end_offset)
    else:
        sound = offset_index_check(
            index.map, offset_index_used(index.map, written_bytes), s.base_offset, end_offset,
            s.size_bytes)
    mapguard_leave()
    return sound


cdef inline void _guard(const Segment* s) noexcept nogil:
    mapguard_enter(s.offsets.map, s.offsets.map_bytes, s.times.map, s.times.map_bytes)


cdef inline int64_t _written(int fd, int64_t found_bytes, int entry_bytes) noexcept nogil:
    """Returns the size in bytes of the whole entries up to the last written byte of a file with
    `found_bytes` bytes."""
    cdef int64_t end = file_data_end(fd, found_bytes) + entry_bytes - 1
    return min(end, found_bytes) // entry_bytes * entry_bytes


cdef int _map_sealed(Segment* s, System* system, IndexFile* index, bint by_time) noexcept nogil:
    """Maps an index of a sealed segment for reading; a missing file counts as an empty one. Returns
    0 or -errno. A thread that must not wait for the disk maps only an index in the page cache; once
    it is mapped, a search may wait for pages that the kernel has evicted."""
    cdef int fd
    cdef int64_t size_bytes
    cdef IndexFile found
    if atomic_load_i32(&s.active):
        return 0
    pthread_mutex_lock(&s.pool.lock)
    if index.mapped:
        pthread_mutex_unlock(&s.pool.lock)
        return 0
    pthread_mutex_unlock(&s.pool.lock)
    if by_time:
        fd = segment_open_file(s, system, ".timeindex", ".timeindex.deleted")
    else:
        fd = segment_open_file(s, system, ".index", ".index.deleted")
    if fd < 0 and fd != -ENOENT:
        return fd
    memset(&found, 0, sizeof(IndexFile))
    found.fd = -1
    if fd >= 0:
        size_bytes = file_size(fd)
        if system == system.cached_only and system.is_cached(system, fd, 0, size_bytes) == 0:
            log_file_close(fd)
            return -EAGAIN
        if size_bytes > 0:
            found.map = map_file(fd, size_bytes, False)
            if found.map != NULL:
                found.map_bytes = size_bytes
                found.entries = _sound(
                    s, &found, by_time,
                    _written(fd, size_bytes, TIME_ENTRY_BYTES if by_time else OFFSET_ENTRY_BYTES))
        log_file_close(fd)
    found.mapped = True
    pthread_mutex_lock(&s.pool.lock)
    if index.mapped:
        _unmap(&found)
    else:
        index[0] = found
    pthread_mutex_unlock(&s.pool.lock)
    return 0


cdef int segment_pin(Segment* segment, System* system) noexcept nogil:
    """Opens all files and keeps them open. The pool closes nothing in between, because the caller
    and the log both hold a reference."""
    cdef int status = segment_fd(segment, system)
    if status >= 0:
        status = _map_sealed(segment, system, &segment.offsets, False)
    if status >= 0:
        status = _map_sealed(segment, system, &segment.times, True)
    if status < 0:
        return status
    pthread_mutex_lock(&segment.pool.lock)
    _unlink_from_pool(segment)
    atomic_store_i32(&segment.pinned, 1)
    pthread_mutex_unlock(&segment.pool.lock)
    return 0


cdef int _own(
    Segment* s, System* system, const char* suffix, int fd, int64_t size_bytes
) noexcept nogil:
    """Makes an open file of the segment one that no other directory names (own_file)."""
    cdef char path[PATH_BYTES_MAX]
    snprintf(path, PATH_BYTES_MAX, "%s%s", s.stem, suffix)
    return own_file(system, path, fd, size_bytes)


cdef int segment_own_log(Segment* segment, System* system, int64_t size_bytes) noexcept nogil:
    return _own(segment, system, ".log", segment.fd, size_bytes)


cdef int segment_open_active(
    Segment* segment, System* system, bint create, int64_t preallocated_bytes
) noexcept nogil:
    cdef int fd = _open(segment, system, ".log", O_RDWR | O_CREAT if create else O_RDWR)
    cdef int64_t size_bytes
    cdef int status
    if fd < 0:
        return fd
    size_bytes = file_size(fd)
    if size_bytes < 0:
        system.close(system, fd)
        return <int>size_bytes
    if create and size_bytes != 0:
        # A roll that a crash interrupted left this file: none of its records was acknowledged.
        status = _own(segment, system, ".log", fd, 0)
        if status == 0:
            status = system.ftruncate(system, fd, 0)
        if status < 0:
            system.close(system, fd)
            return status
        size_bytes = 0
    if preallocated_bytes > size_bytes:
        status = system.ftruncate(system, fd, preallocated_bytes)
        if status < 0:
            system.close(system, fd)
            return status
    if create:
        segment.created_ms = system.wall_ms(system)
    else:
        segment.created_ms = file_modified_ms(fd)
    segment.fd = fd
    atomic_store_i64(&segment.size_bytes, size_bytes)
    atomic_store_i64(&segment.foreign_bytes, size_bytes)
    atomic_store_i32(&segment.active, 1)
    return 0


cdef int segment_open_sealed(Segment* segment, System* system) noexcept nogil:
    cdef int fd = segment_fd(segment, system)
    cdef int64_t size_bytes = fd
    cdef int status
    if fd >= 0:
        size_bytes = file_size(fd)
    if size_bytes < 0:
        return <int>size_bytes
    segment.created_ms = file_modified_ms(fd)
    atomic_store_i64(&segment.size_bytes, size_bytes)
    atomic_store_i64(&segment.flushed_bytes, size_bytes)
    atomic_store_i64(&segment.foreign_bytes, size_bytes)
    status = _map_sealed(segment, system, &segment.offsets, False)
    return status if status < 0 else _map_sealed(segment, system, &segment.times, True)


cdef bint segment_indexes_fit(const Segment* segment) noexcept nogil:
    return (segment.offsets.map_bytes == segment.offsets.entries * OFFSET_ENTRY_BYTES
            and segment.times.map_bytes == segment.times.entries * TIME_ENTRY_BYTES)


cdef int _open_index(
    Segment* s, System* system, IndexFile* index, bint by_time, int64_t index_bytes, bint empty
) noexcept nogil:
    cdef int entry_bytes = TIME_ENTRY_BYTES if by_time else OFFSET_ENTRY_BYTES
    cdef int64_t size_bytes = index_bytes // entry_bytes * entry_bytes
    cdef int64_t found_bytes
    cdef int64_t written_bytes = 0
    cdef int fd = _open(s, system, ".timeindex" if by_time else ".index", O_RDWR | O_CREAT)
    cdef int status = 0
    if fd < 0:
        return fd
    status = _own(s, system, ".timeindex" if by_time else ".index", fd, 0 if empty else file_size(fd))
    if empty and status == 0:
        status = system.ftruncate(system, fd, 0)
    found_bytes = file_size(fd)
    if found_bytes > 0:
        written_bytes = _written(fd, found_bytes, entry_bytes)
    if status == 0 and found_bytes != size_bytes:
        if found_bytes > size_bytes:
            size_bytes = found_bytes // entry_bytes * entry_bytes
        status = system.ftruncate(system, fd, size_bytes)
    if status == 0:
        index.map = map_file(fd, size_bytes, True)
        if index.map == NULL:
            status = -ENOMEM
    if status < 0:
        system.close(system, fd)
        return status
    index.fd = fd
    index.map_bytes = size_bytes
    index.mapped = True
    atomic_store_i64(&index.entries, _sound(s, index, by_time, written_bytes))
    index.reserved_bytes = index.entries * entry_bytes
    return 0


cdef int segment_open_indexes(
    Segment* segment, System* system, int64_t index_bytes, bint empty
) noexcept nogil:
    """Opens both indexes of an active segment at full size; `empty` removes their entries. Returns
    0 or -errno."""
    cdef int status = 0
    if segment.offsets.map == NULL:
        status = _open_index(segment, system, &segment.offsets, False, index_bytes, empty)
    if status == 0 and segment.times.map == NULL:
        status = _open_index(segment, system, &segment.times, True, index_bytes, empty)
    return status


# ----------------------------------------------------------------------------------------- writing

cdef inline int64_t _slots(const IndexFile* index, int64_t entry_bytes) noexcept nogil:
    return index.map_bytes // entry_bytes


cdef int64_t segment_entries_left(const Segment* segment) noexcept nogil:
    """In the time index one slot is reserved for the entry that segment_seal adds."""
    if segment.offsets.map == NULL:
        return INT64_MAX
    return min(_slots(&segment.offsets, OFFSET_ENTRY_BYTES) - segment.offsets.entries,
               _slots(&segment.times, TIME_ENTRY_BYTES) - 1 - segment.times.entries)


cdef int _reserve(System* system, IndexFile* index, int64_t entry_bytes) noexcept nogil:
    cdef int64_t wanted = min((index.entries + 1) * entry_bytes, index.map_bytes)
    cdef int64_t until
    cdef int status
    while index.reserved_bytes < wanted:
        until = index.reserved_bytes // INDEX_PAGE_BYTES * INDEX_PAGE_BYTES + INDEX_PAGE_BYTES
        until = min(until, index.map_bytes)
        status = write_whole(
            system, index.fd, ZEROS, until - index.reserved_bytes, index.reserved_bytes)
        if status < 0:
            return status
        index.reserved_bytes = until
    return 0


cdef int segment_reserve_entries(Segment* segment, System* system) noexcept nogil:
    cdef int status = _reserve(system, &segment.offsets, OFFSET_ENTRY_BYTES)
    return status if status < 0 else _reserve(system, &segment.times, TIME_ENTRY_BYTES)


cdef void _note_time(Segment* s) noexcept nogil:
    """Adds a time entry when the largest timestamp grew since the last one."""
    cdef int64_t slot = s.times.entries
    cdef int64_t last = -1
    if s.times.map == NULL or slot >= _slots(&s.times, TIME_ENTRY_BYTES):
        return
    if slot > 0:
        last = time_index_entry(s.times.map, slot - 1).timestamp
    if s.max_timestamp > last:
        time_index_put(
            s.times.map, slot, s.max_timestamp, <int32_t>(s.max_timestamp_offset - s.base_offset))
        atomic_store_i64(&s.times.entries, slot + 1)


cdef void segment_note_batch(
    Segment* segment, int64_t position, int64_t size_bytes, int64_t last_offset,
    int64_t max_timestamp, int64_t index_interval_bytes
) noexcept nogil:
    cdef int64_t slot = segment.offsets.entries
    if position == 0:
        segment.first_timestamp = max_timestamp
    if max_timestamp > segment.max_timestamp:
        segment.max_timestamp = max_timestamp
        segment.max_timestamp_offset = last_offset
    if segment.unindexed_bytes > index_interval_bytes:
        _guard(segment)
        if slot < _slots(&segment.offsets, OFFSET_ENTRY_BYTES):
            offset_index_put(segment.offsets.map, slot,
                             <int32_t>(last_offset - segment.base_offset), <int32_t>position)
            atomic_store_i64(&segment.offsets.entries, slot + 1)
        _note_time(segment)
        mapguard_leave()
        segment.unindexed_bytes = 0
    segment.unindexed_bytes += size_bytes


cdef int _trim(System* system, IndexFile* index, int64_t entry_bytes) noexcept nogil:
    """Cuts an index file to its entries and closes it. The map stays, and no thread reads behind
    the entries. Returns 0 or -errno."""
    cdef int status
    if index.fd < 0:
        return 0
    status = system.ftruncate(system, index.fd, index.entries * entry_bytes)
    system.close(system, index.fd)
    index.fd = -1
    return status


cdef int segment_seal(Segment* segment, System* system) noexcept nogil:
    cdef int status, failed = 0
    if not segment.active:
        return 0
    if segment.times.map != NULL and segment.max_timestamp >= 0:
        failed = _reserve(system, &segment.times, TIME_ENTRY_BYTES)
        if failed == 0:
            _guard(segment)
            _note_time(segment)
            mapguard_leave()
    status = _trim(system, &segment.offsets, OFFSET_ENTRY_BYTES)
    failed = status if failed == 0 else failed
    status = _trim(system, &segment.times, TIME_ENTRY_BYTES)
    failed = status if failed == 0 else failed
    if file_size(segment.fd) > segment.size_bytes:
        status = system.ftruncate(system, segment.fd, segment.size_bytes)
        failed = status if failed == 0 else failed
    pthread_mutex_lock(&segment.pool.lock)
    atomic_store_i32(&segment.active, 0)
    _link_into_pool(segment)
    _evict(segment.pool)
    pthread_mutex_unlock(&segment.pool.lock)
    return failed


cdef int segment_cut(
    Segment* segment, System* system, int64_t size_bytes, int64_t end_offset
) noexcept nogil:
    """Truncates the active segment, whose indexes are open. Readers that meet this begin again,
    because the log's `truncations` is odd."""
    cdef int64_t entries = segment.offsets.entries
    cdef int64_t times = segment.times.entries
    cdef int status = segment_own_log(segment, system, size_bytes)
    if status == 0:
        status = system.ftruncate(system, segment.fd, size_bytes)
    if status < 0:
        return status
    _guard(segment)
    while entries > 0 and (
        offset_index_entry(segment.offsets.map, entries - 1).position >= size_bytes
        or offset_index_entry(segment.offsets.map, entries - 1).relative_offset
        >= end_offset - segment.base_offset
    ):
        entries -= 1
    while times > 0 and time_index_entry(
        segment.times.map, times - 1).relative_offset >= end_offset - segment.base_offset:
        times -= 1
    atomic_store_i64(&segment.offsets.entries, entries)
    atomic_store_i64(&segment.times.entries, times)
    # The bytes behind the entries must be zero again: after a crash they show where the entries
    # end.
    memset(segment.offsets.map + entries * OFFSET_ENTRY_BYTES, 0,
           segment.offsets.reserved_bytes - entries * OFFSET_ENTRY_BYTES)
    memset(segment.times.map + times * TIME_ENTRY_BYTES, 0,
           segment.times.reserved_bytes - times * TIME_ENTRY_BYTES)
    mapguard_leave()
    atomic_store_i64(&segment.size_bytes, size_bytes)
    atomic_store_i64(&segment.flushed_bytes, min(segment.flushed_bytes, size_bytes))
    atomic_store_i64(&segment.foreign_bytes, min(segment.foreign_bytes, size_bytes))
    segment.unindexed_bytes = 0
    if size_bytes == 0:
        segment.first_timestamp = -1
    return segment_load_times(segment, system, size_bytes)


# ----------------------------------------------------------------------------------------- reading

cdef int _walk_to(
    System* system, int fd, int64_t position, int64_t offset, int64_t end, BatchAt* found
) noexcept nogil:
    """Finds the first batch from `position` on whose last offset is at or above `offset`: 1; 0 at
    `end`; SEGMENT_CORRUPT or -errno."""
    cdef uint8_t window[WALK_BYTES]
    cdef int64_t window_at = 0, window_bytes = 0, inside
    cdef int status
    while position < end:
        inside = position - window_at
        status = 0
        if 0 <= inside < window_bytes:
            status = batch_header_at(window + inside, window_bytes - inside, end - position, found)
        if status == 0:
            window_at = position
            window_bytes = read_whole(
                system, fd, window, min(end - position, <int64_t>WALK_BYTES), position)
            if window_bytes < 0:
                return <int>window_bytes
            status = batch_header_at(window, window_bytes, end - position, found)
        found.position = position
        if status <= 0:
            return SEGMENT_CORRUPT
        if found.last_offset >= offset:
            return 1
        position += found.size_bytes
    return 0


cdef int segment_batch_at(
    Segment* segment, System* system, int64_t position, int64_t end, BatchAt* found
) noexcept nogil:
    cdef int fd = segment_fd(segment, system)
    if fd < 0:
        return fd
    return _walk_to(system, fd, position, segment.base_offset - 1, end, found)


cdef int segment_find(
    Segment* segment, System* system, int64_t offset, int64_t end, BatchAt* found
) noexcept nogil:
    cdef int64_t relative = min(offset - segment.base_offset, <int64_t>INT32_MAX)
    cdef int64_t slot = -1, position = 0
    cdef int fd = segment_fd(segment, system)
    cdef int status
    if fd < 0:
        return fd
    status = _map_sealed(segment, system, &segment.offsets, False)
    if status < 0:
        return status
    if segment.offsets.map != NULL and relative >= 0:
        _guard(segment)
        slot = offset_index_floor(
            segment.offsets.map, atomic_load_i64(&segment.offsets.entries), <int32_t>relative)
        if slot >= 0:
            position = offset_index_entry(segment.offsets.map, slot).position
        mapguard_leave()
    if slot >= 0:
        if 0 < position < end:
            status = _walk_to(system, fd, position, offset, end, found)
            # The entry is right when the batch at its position begins at or below the offset.
            if status == 1 and (found.position > position or found.base_offset <= offset):
                return 1
            if status == 0:
                return 0
    return _walk_to(system, fd, 0, offset, end, found)


cdef int64_t segment_offset_above(
    Segment* segment, System* system, int64_t position, int64_t otherwise
) noexcept nogil:
    """Searches the offset index and checks the entry against its batch. Call segment_find of the
    same segment first, which maps the index."""
    cdef OffsetEntry entry
    cdef BatchAt found
    cdef int64_t low = 0, high, middle, entries
    cdef int status
    if segment.offsets.map == NULL:
        return otherwise
    high = entries = atomic_load_i64(&segment.offsets.entries)
    _guard(segment)
    while low < high:
        middle = (low + high) >> 1
        if offset_index_entry(segment.offsets.map, middle).position < position:
            low = middle + 1
        else:
            high = middle
    if low < entries:
        entry = offset_index_entry(segment.offsets.map, low)
    mapguard_leave()
    if low == entries or entry.position < position:
        return otherwise
    status = segment_batch_at(
        segment, system, entry.position, atomic_load_i64(&segment.size_bytes), &found)
    if status == -EAGAIN:
        return status
    if status != 1 or found.last_offset != segment.base_offset + entry.relative_offset:
        return otherwise
    return found.last_offset


cdef int64_t segment_time_floor(
    Segment* segment, System* system, int64_t timestamp, int64_t end
) noexcept nogil:
    """Returns the position of the batch that the last time entry below `timestamp` names, 0 without
    one, or -errno."""
    cdef BatchAt found
    cdef int64_t slot
    cdef TimeEntry entry
    cdef int status = _map_sealed(segment, system, &segment.times, True)
    if status < 0:
        return status
    if segment.times.map == NULL:
        return 0
    _guard(segment)
    slot = time_index_floor(
        segment.times.map, atomic_load_i64(&segment.times.entries), timestamp - 1)
    if slot >= 0:
        entry = time_index_entry(segment.times.map, slot)
    mapguard_leave()
    if slot < 0:
        return 0
    status = segment_find(
        segment, system, segment.base_offset + entry.relative_offset, end, &found)
    if status < 0:
        return status
    # The entry is right when its batch has its timestamp; otherwise batches before may be later.
    return found.position if status and found.max_timestamp == entry.timestamp else 0


cdef void segment_last_entries(
    const Segment* segment, OffsetEntry* place, TimeEntry* moment
) noexcept nogil:
    _guard(segment)
    if place != NULL:
        place[0] = offset_index_entry(segment.offsets.map, segment.offsets.entries - 1)
    if moment != NULL:
        moment[0] = time_index_entry(segment.times.map, segment.times.entries - 1)
    mapguard_leave()


cdef int segment_load_times(Segment* segment, System* system, int64_t end) noexcept nogil:
    """Finds the largest timestamp. At a damaged header it stops, and later timestamps stay unknown;
    a read of the damage returns an error."""
    cdef int status = _load_times(segment, system, end)
    return 0 if status == SEGMENT_CORRUPT else status


cdef int _load_times(Segment* segment, System* system, int64_t end) noexcept nogil:
    """Finds the largest timestamp from the last time entry and the headers of the batches behind
    it. Returns 0, SEGMENT_CORRUPT or -errno."""
    cdef BatchAt found
    cdef TimeEntry entry
    cdef int64_t position = 0
    cdef int status = _map_sealed(segment, system, &segment.times, True)
    if status < 0:
        return status
    segment.max_timestamp = -1
    segment.max_timestamp_offset = segment.base_offset
    if end == 0:
        return 0
    status = segment_batch_at(segment, system, 0, end, &found)
    if status < 0:
        return status
    segment.first_timestamp = found.max_timestamp
    if segment.times.map != NULL and segment.times.entries > 0:
        segment_last_entries(segment, NULL, &entry)
        segment.max_timestamp = entry.timestamp
        segment.max_timestamp_offset = segment.base_offset + entry.relative_offset
        status = segment_find(segment, system, segment.max_timestamp_offset, end, &found)
        if status < 0:
            return status
        position = found.position if status else end
    while position < end:
        status = segment_batch_at(segment, system, position, end, &found)
        if status <= 0:
            return status
        if found.max_timestamp > segment.max_timestamp:
            segment.max_timestamp = found.max_timestamp
            segment.max_timestamp_offset = found.last_offset
        position += found.size_bytes
    return 0


# -------------------------------------------------------------------------------------- for Python

cdef class SegmentCache:
    def __cinit__(self, *, int64_t open_segments_max=1000):
        if open_segments_max < 1:
            raise ValueError(f"open_segments_max is {open_segments_max}; it must be at least 1")
        self.pool = <SegmentPool*>calloc(1, sizeof(SegmentPool))
        if self.pool == NULL:
            raise MemoryError
        self.pool.references = 1
        self.pool.open_max = open_segments_max
        pthread_mutex_init(&self.pool.lock, NULL)
        mapguard_install()

    def __dealloc__(self):
        if self.pool != NULL:
            pool_release(self.pool)

    @property
    def open_segments(self) -> int:
        """The number of sealed segments that are open."""
        return self.pool.open_count

    @property
    def lost_index_pages(self) -> int:
        """How often, in this process, a thread met a mapped page that was gone, because its file
        was truncated or could not be read."""
        return mapguard_count()
