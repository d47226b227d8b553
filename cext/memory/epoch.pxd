"""Epoch-based reclamation: a thread inside an epoch may follow pointers that others retire.

A domain belongs to one broker. enter() claims one of EPOCH_SLOTS slots; leave() gives it back;
retire() frees the pointer once no thread is inside an epoch that could have seen it. Never wait
for a client, and never sleep in epoll, inside an epoch.
"""
from libc.stdint cimport int64_t, uint8_t

from barnabas.cext.memory.mutex cimport pthread_mutex_t

cdef enum:
    EPOCH_SLOTS = 256

ctypedef void (*epoch_free)(void* pointer) noexcept nogil

cdef struct EpochSlot:
    int64_t entered             # the epoch in which its thread entered; 0: the slot is free
    uint8_t apart[56]           # one cache line a slot: threads do not share

cdef struct Retired:
    Retired* next
    void* pointer
    epoch_free free_it
    int64_t epoch               # threads that entered in a later epoch cannot have seen it

cdef struct EpochDomain:
    EpochSlot slots[EPOCH_SLOTS]
    int64_t now                 # counts up at every retire(), from 1
    int64_t waiting             # retired and not freed yet
    pthread_mutex_t lock        # guards the list of retired pointers
    Retired* oldest
    Retired* newest

# Makes a domain; NULL: no memory.
cdef EpochDomain* epoch_domain_new() noexcept nogil
# Frees the domain and all retired pointers; no thread may be inside an epoch.
cdef void epoch_domain_free(EpochDomain* domain) noexcept nogil
# Enters an epoch and returns the slot for epoch_leave.
cdef int epoch_enter(EpochDomain* domain) noexcept nogil
cdef void epoch_leave(EpochDomain* domain, int slot) noexcept nogil
# Calls free_it(pointer) when no thread can see the pointer any more; the caller has unlinked it.
cdef void epoch_retire(EpochDomain* domain, void* pointer, epoch_free free_it) noexcept nogil
# Frees the pointers that no thread can see any more; retire() does the same. Call it from time to
# time from a thread with little work.
cdef void epoch_collect(EpochDomain* domain) noexcept nogil
# Returns when every thread that was inside has left. Never call it inside an epoch.
cdef void epoch_wait(EpochDomain* domain) noexcept nogil

cdef class Epochs:
    """Python's owner of one domain. An object that keeps `domain` also keeps a reference to
    this."""
    cdef EpochDomain* domain
