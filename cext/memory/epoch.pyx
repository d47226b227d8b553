"""Epoch-based reclamation; the contract is in epoch.pxd.

A domain has a counter and a slot for each thread that is inside. A thread in enter() writes the
counter's value into a free slot; afterwards it reads pointers. retire() is called after a pointer
was unlinked: it notes the value and increments the counter. A retired pointer can be freed when
every used slot has a later value, because such a thread read the counter after the unlinking and
cannot see the pointer. A thread whose slot was still empty at the check writes it before it reads
any pointer (both sides use a full fence in between), so it finds the pointer unlinked, too. A value
that was read early only delays the freeing.

Limits: EPOCH_SLOTS threads inside at once; further ones wait for a slot. Memory: 32 bytes for each
pointer that is retired and not freed. Next on the data path: cext/log/segment.pyx.
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc

from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_cas_i64, atomic_fence, atomic_load_i64, atomic_load_pointer,
    atomic_store_i64, atomic_store_pointer,
)
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
    sched_yield,
)

cdef extern from *:
    """
    #include <stdint.h>
    /* Where a thread looks for a free slot first: the one it had before is likely free and its own. */
    static __thread int barnabas_epoch_hint = -1;
    static inline int epoch_hint(void) {
        if (barnabas_epoch_hint < 0)
            barnabas_epoch_hint = (int)(((uintptr_t)&barnabas_epoch_hint >> 6) * 2654435761u >> 8);
        return barnabas_epoch_hint & 0x7fffffff;
    }
    static inline void epoch_remember(int slot) { barnabas_epoch_hint = slot; }
    """
    int epoch_hint() nogil
    void epoch_remember(int slot) nogil


cdef EpochDomain* epoch_domain_new() noexcept nogil:
    cdef EpochDomain* domain = <EpochDomain*>calloc(1, sizeof(EpochDomain))
    if domain != NULL:
        domain.now = 1
        pthread_mutex_init(&domain.lock, NULL)
    return domain


cdef void _free_all(Retired* first) noexcept nogil:
    cdef Retired* following
    while first != NULL:
        following = first.next
        first.free_it(first.pointer)
        free(first)
        first = following


cdef void epoch_domain_free(EpochDomain* domain) noexcept nogil:
    if domain == NULL:
        return
    # Freeing an object may retire more pointers.
    cdef Retired* first
    while domain.oldest != NULL:
        first = domain.oldest
        domain.oldest = domain.newest = NULL
        _free_all(first)
    pthread_mutex_destroy(&domain.lock)
    free(domain)


cdef int epoch_enter(EpochDomain* domain) noexcept nogil:
    cdef int first = epoch_hint() % EPOCH_SLOTS
    cdef int slot = first
    while True:
        if atomic_load_i64(&domain.slots[slot].entered) == 0:
            if atomic_cas_i64(&domain.slots[slot].entered, 0, atomic_load_i64(&domain.now)):
                atomic_fence()
                epoch_remember(slot)
                return slot
        slot = (slot + 1) % EPOCH_SLOTS
        if slot == first:
            sched_yield()


cdef void epoch_leave(EpochDomain* domain, int slot) noexcept nogil:
    atomic_store_i64(&domain.slots[slot].entered, 0)


cdef int64_t _earliest(EpochDomain* domain) noexcept nogil:
    """Returns the earliest epoch at which a thread inside has entered; the current one when no
    thread is inside."""
    cdef int64_t earliest = atomic_load_i64(&domain.now)
    cdef int64_t entered
    cdef int slot
    atomic_fence()
    for slot in range(EPOCH_SLOTS):
        entered = atomic_load_i64(&domain.slots[slot].entered)
        if entered != 0 and entered < earliest:
            earliest = entered
    return earliest


cdef void epoch_collect(EpochDomain* domain) noexcept nogil:
    cdef Retired* first
    cdef Retired* last = NULL
    cdef Retired* item
    cdef int64_t earliest, count = 0
    if atomic_load_i64(&domain.waiting) == 0:
        return
    pthread_mutex_lock(&domain.lock)
    earliest = _earliest(domain)
    first = item = domain.oldest
    while item != NULL and item.epoch < earliest:
        last = item
        count += 1
        item = item.next
    if last != NULL:
        last.next = NULL
        domain.oldest = item
        if item == NULL:
            domain.newest = NULL
        atomic_add_i64(&domain.waiting, -count)
    pthread_mutex_unlock(&domain.lock)
    if last != NULL:
        _free_all(first)  # outside the lock: it may retire something more


cdef void epoch_wait(EpochDomain* domain) noexcept nogil:
    cdef int64_t epoch = atomic_add_i64(&domain.now, 1) - 1
    while _earliest(domain) <= epoch:
        sched_yield()
    epoch_collect(domain)


cdef void epoch_retire(EpochDomain* domain, void* pointer, epoch_free free_it) noexcept nogil:
    cdef Retired* item = <Retired*>malloc(sizeof(Retired))
    if item == NULL:
        return  # without memory for the note the pointer is leaked: never freed too early
    item.next = NULL
    item.pointer = pointer
    item.free_it = free_it
    pthread_mutex_lock(&domain.lock)
    item.epoch = atomic_add_i64(&domain.now, 1) - 1
    if domain.newest == NULL:
        domain.oldest = item
    else:
        domain.newest.next = item
    domain.newest = item
    atomic_add_i64(&domain.waiting, 1)
    pthread_mutex_unlock(&domain.lock)
    epoch_collect(domain)


cdef class Epochs:
    def __cinit__(self):
        self.domain = epoch_domain_new()
        if self.domain == NULL:
            raise MemoryError

    def __dealloc__(self):
        epoch_domain_free(self.domain)

    def collect(self) -> int:
        """Frees the pointers that no thread can see any more. Returns the number of those that
        still wait."""
        cdef int64_t waiting
        with nogil:
            epoch_collect(self.domain)
            waiting = atomic_load_i64(&self.domain.waiting)
        return waiting


# -- a stress test of these functions: tests cannot call the hot functions from Python --------------

cdef enum:
    ALIVE = 0x5AFE5AFE
    POISON = 0x0DEADBAD

cdef struct Guarded:
    int64_t mark
    int64_t value

cdef void _poison(void* pointer) noexcept nogil:
    (<Guarded*>pointer).mark = POISON
    (<Guarded*>pointer).value = -1
    free(pointer)


cdef class EpochStress:
    """Readers follow one shared pointer that writers replace and retire, poisoned when freed."""
    cdef Epochs epochs
    cdef void* shared
    cdef int64_t stopped

    def __init__(self, Epochs epochs not None):
        self.epochs = epochs
        self.shared = self._new(0)

    cdef Guarded* _new(self, int64_t value) noexcept nogil:
        cdef Guarded* made = <Guarded*>malloc(sizeof(Guarded))
        if made != NULL:
            made.mark = ALIVE
            made.value = value
        return made

    def __dealloc__(self):
        free(self.shared)

    def stop(self) -> None:
        atomic_store_i64(&self.stopped, 1)

    def read(self, bint protected=True) -> tuple[int, int]:
        """Reads the pointer until stop(). Returns (number of reads, number of reads that found a
        freed object). Unprotected reads stay outside the epoch: they prove that the test can find
        the fault."""
        cdef int64_t reads = 0, wrong = 0
        cdef int slot = 0, spin
        cdef Guarded* seen
        with nogil:
            while not atomic_load_i64(&self.stopped):
                if protected:
                    slot = epoch_enter(self.epochs.domain)
                seen = <Guarded*>atomic_load_pointer(&self.shared)
                for spin in range(50):
                    if atomic_load_i64(&seen.mark) != ALIVE:
                        wrong += 1
                        break
                if protected:
                    epoch_leave(self.epochs.domain, slot)
                reads += 1
        return reads, wrong

    def replace(self, int64_t count) -> None:
        """Replaces the shared object `count` times; one caller at a time."""
        cdef int64_t i
        cdef Guarded* made
        cdef void* old
        with nogil:
            for i in range(count):
                made = self._new(i)
                if made == NULL:
                    break
                old = self.shared
                atomic_store_pointer(&self.shared, made)
                epoch_retire(self.epochs.domain, old, _poison)
