"""A log's leader epochs; described in leader_epochs.pyx. They have their own mutex, because readers
look up the end of an epoch while a writer appends to the log."""
from libc.stdint cimport int32_t, int64_t

from barnabas.cext.memory.mutex cimport pthread_mutex_t

cdef struct EpochEntry:
    int32_t epoch
    int64_t start_offset

cdef struct LeaderEpochs:
    pthread_mutex_t lock
    EpochEntry* entries         # epochs and start offsets grow strictly
    int64_t count
    int64_t capacity
    int64_t changes             # number of changes: shows whether the checkpoint is stale

cdef void leader_epochs_init(LeaderEpochs* e) noexcept nogil
cdef void leader_epochs_free(LeaderEpochs* e) noexcept nogil
cdef int32_t leader_epochs_latest(LeaderEpochs* e) noexcept nogil     # -1: none
# Notes that the records from start_offset on have this epoch, if it is later than the latest one.
# Returns False without memory.
cdef bint leader_epochs_assign(LeaderEpochs* e, int32_t epoch, int64_t start_offset) noexcept nogil
# The same for a batch that a follower appends at start_offset. It first removes epochs that begin
# there or later, because they have no records; also an epoch later than `epoch`.
cdef bint leader_epochs_follow(LeaderEpochs* e, int32_t epoch, int64_t start_offset) noexcept nogil
cdef void leader_epochs_cut_end(LeaderEpochs* e, int64_t end_offset) noexcept nogil
cdef void leader_epochs_cut_start(LeaderEpochs* e, int64_t start_offset) noexcept nogil
cdef void leader_epochs_end_of(LeaderEpochs* e, int32_t epoch, int64_t log_end, int32_t* found_epoch, int64_t* end_offset) noexcept nogil
cdef int32_t leader_epochs_at(LeaderEpochs* e, int64_t offset) noexcept nogil    # -1: none
