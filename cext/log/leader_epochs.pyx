"""The start offset of each leader epoch of a log (KIP-101), in a sorted array in memory.

Invariants: epochs and start offsets grow strictly. An epoch without records is replaced by the next
epoch that begins at the same offset. broker/storage writes the checkpoint file from
LogHandle.leader_epochs(). After a crash the file may be older than the log: recovery adds the
epochs that it finds in batches, and removes those that begin at or above the log's end.

Memory: 16 bytes an entry. Next on the data path: cext/log/recover.pyx.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memmove, memset

from barnabas.cext.memory.array cimport array_room
from barnabas.cext.memory.atomics cimport atomic_add_i64
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)


cdef void leader_epochs_init(LeaderEpochs* e) noexcept nogil:
    memset(e, 0, sizeof(LeaderEpochs))
    pthread_mutex_init(&e.lock, NULL)


cdef void leader_epochs_free(LeaderEpochs* e) noexcept nogil:
    free(e.entries)
    e.entries = NULL
    pthread_mutex_destroy(&e.lock)


cdef int32_t leader_epochs_latest(LeaderEpochs* e) noexcept nogil:
    cdef int32_t latest
    pthread_mutex_lock(&e.lock)
    latest = e.entries[e.count - 1].epoch if e.count else -1
    pthread_mutex_unlock(&e.lock)
    return latest


cdef bint _push(LeaderEpochs* e, int32_t epoch, int64_t start_offset) noexcept nogil:
    if not array_room(&e.entries, &e.capacity, e.count + 1, sizeof(EpochEntry)):
        return False
    e.entries[e.count].epoch = epoch
    e.entries[e.count].start_offset = start_offset
    e.count += 1
    return True


cdef bint leader_epochs_assign(LeaderEpochs* e, int32_t epoch, int64_t start_offset) noexcept nogil:
    """Adds an entry if the epoch is later than the latest one, and removes entries that begin at or
    above `start_offset`. Returns False without memory."""
    cdef bint done = True
    pthread_mutex_lock(&e.lock)
    if epoch > (e.entries[e.count - 1].epoch if e.count else -1):
        while e.count and e.entries[e.count - 1].start_offset >= start_offset:
            e.count -= 1
        done = _push(e, epoch, start_offset)
        atomic_add_i64(&e.changes, 1)
    pthread_mutex_unlock(&e.lock)
    return done


cdef bint leader_epochs_follow(LeaderEpochs* e, int32_t epoch, int64_t start_offset) noexcept nogil:
    """A broker that was elected notes its epoch at the log's end, and may lose the leadership
    before it appends: the next leader's records may then have an earlier epoch."""
    cdef bint is_latest
    pthread_mutex_lock(&e.lock)
    is_latest = e.count and e.entries[e.count - 1].epoch == epoch
    pthread_mutex_unlock(&e.lock)
    if is_latest:
        return True
    leader_epochs_cut_end(e, start_offset)
    return leader_epochs_assign(e, epoch, start_offset)


cdef void leader_epochs_cut_end(LeaderEpochs* e, int64_t end_offset) noexcept nogil:
    """Removes the epochs that begin at or above `end_offset`."""
    pthread_mutex_lock(&e.lock)
    while e.count and e.entries[e.count - 1].start_offset >= end_offset:
        e.count -= 1
        atomic_add_i64(&e.changes, 1)
    pthread_mutex_unlock(&e.lock)


cdef void leader_epochs_cut_start(LeaderEpochs* e, int64_t start_offset) noexcept nogil:
    """Removes the epochs that end at or below `start_offset`; the epoch that contains it begins
    there from now on."""
    cdef int64_t drop = 0
    pthread_mutex_lock(&e.lock)
    while drop + 1 < e.count and e.entries[drop + 1].start_offset <= start_offset:
        drop += 1
    if e.count and e.entries[drop].start_offset < start_offset:
        e.entries[drop].start_offset = start_offset
        atomic_add_i64(&e.changes, 1)
    if drop:
        memmove(e.entries, e.entries + drop, (e.count - drop) * sizeof(EpochEntry))
        e.count -= drop
        atomic_add_i64(&e.changes, 1)
    pthread_mutex_unlock(&e.lock)


cdef void leader_epochs_end_of(
    LeaderEpochs* e, int32_t epoch, int64_t log_end, int32_t* found_epoch, int64_t* end_offset
) noexcept nogil:
    """Finds the largest epoch at or below `epoch` and its end offset; the latest epoch ends at the
    log's end. Sets both to -1 for a negative epoch, and for one above every known epoch."""
    cdef int64_t i
    found_epoch[0] = -1
    end_offset[0] = -1
    pthread_mutex_lock(&e.lock)
    if e.count and epoch == e.entries[e.count - 1].epoch:
        found_epoch[0] = epoch
        end_offset[0] = log_end
    elif e.count and 0 <= epoch < e.entries[e.count - 1].epoch:
        if epoch < e.entries[0].epoch:
            # The epoch is older than all known ones: such a replica has no records in common with
            # this log above the log's start.
            found_epoch[0] = epoch
            end_offset[0] = e.entries[0].start_offset
        else:
            i = e.count - 1
            while e.entries[i].epoch > epoch:
                i -= 1
            found_epoch[0] = e.entries[i].epoch
            end_offset[0] = e.entries[i + 1].start_offset
    pthread_mutex_unlock(&e.lock)


cdef int32_t leader_epochs_at(LeaderEpochs* e, int64_t offset) noexcept nogil:
    cdef int32_t found = -1
    cdef int64_t i
    pthread_mutex_lock(&e.lock)
    for i in range(e.count):
        if e.entries[i].start_offset > offset:
            break
        found = e.entries[i].epoch
    pthread_mutex_unlock(&e.lock)
    return found
