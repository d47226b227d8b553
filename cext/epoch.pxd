"""Epoch-based reclamation: a thread inside an epoch may follow pointers that others retire.

A domain belongs to one broker. enter() claims one of EPOCH_SLOTS slots; leave() gives it back;
retire() frees the pointer once no thread is inside an epoch that could have seen it. Never wait
for a client, and never sleep in epoll, inside an epoch.
"""
cdef enum:
    EPOCH_SLOTS = 256

cdef struct EpochDomain            # defined in epoch.pyx's C part or here, as the implementation needs

ctypedef void (*epoch_free)(void* pointer) noexcept nogil

cdef EpochDomain* epoch_domain_new() noexcept nogil
cdef void epoch_domain_free(EpochDomain* domain) noexcept nogil      # frees everything retired; no thread may be inside
cdef int epoch_enter(EpochDomain* domain) noexcept nogil             # -> slot
cdef void epoch_leave(EpochDomain* domain, int slot) noexcept nogil
cdef void epoch_retire(EpochDomain* domain, void* pointer, epoch_free free_it) noexcept nogil
