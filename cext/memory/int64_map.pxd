"""A map from int64 to int64, for example for state per producer id. The owner frees it.

Hand-written: a dict needs the GIL, and std::unordered_map needs modules compiled as C++."""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

cdef struct Int64Map:
    int64_t* keys
    int64_t* values
    uint8_t* used
    int64_t count
    int64_t capacity            # a power of two, at most half full

cdef inline void int64_map_init(Int64Map* m) noexcept nogil:
    m.keys = m.values = NULL
    m.used = NULL
    m.count = m.capacity = 0

cdef inline void int64_map_free(Int64Map* m) noexcept nogil:
    free(m.keys)
    free(m.values)
    free(m.used)
    int64_map_init(m)

cdef inline int64_t _home(const Int64Map* m, int64_t key) noexcept nogil:
    return <int64_t>((<uint64_t>key * <uint64_t>0x9E3779B97F4A7C15) >> 20) & (m.capacity - 1)

cdef inline int64_t _slot(const Int64Map* m, int64_t key) noexcept nogil:
    cdef int64_t at = _home(m, key)
    while m.used[at] and m.keys[at] != key:
        at = (at + 1) & (m.capacity - 1)
    return at

cdef inline int64_t int64_map_get(const Int64Map* m, int64_t key, int64_t otherwise) noexcept nogil:
    cdef int64_t at
    if m.count == 0:
        return otherwise
    at = _slot(m, key)
    return m.values[at] if m.used[at] else otherwise

cdef inline bint _grow(Int64Map* m) noexcept nogil:
    cdef Int64Map grown
    cdef int64_t i, at
    int64_map_init(&grown)
    grown.capacity = m.capacity * 2 if m.capacity else 16
    grown.keys = <int64_t*>calloc(grown.capacity, sizeof(int64_t))
    grown.values = <int64_t*>calloc(grown.capacity, sizeof(int64_t))
    grown.used = <uint8_t*>calloc(grown.capacity, 1)
    if grown.keys == NULL or grown.values == NULL or grown.used == NULL:
        int64_map_free(&grown)
        return False
    for i in range(m.capacity):
        if m.used[i]:
            at = _slot(&grown, m.keys[i])
            grown.keys[at] = m.keys[i]
            grown.values[at] = m.values[i]
            grown.used[at] = 1
    grown.count = m.count
    int64_map_free(m)
    m[0] = grown
    return True

cdef inline bint int64_map_put(Int64Map* m, int64_t key, int64_t value) noexcept nogil:
    """Sets a key's value. Returns False without memory."""
    cdef int64_t at
    if m.count * 2 >= m.capacity and not _grow(m):
        return False
    at = _slot(m, key)
    if not m.used[at]:
        m.used[at] = 1
        m.keys[at] = key
        m.count += 1
    m.values[at] = value
    return True

cdef inline bint int64_map_remove(Int64Map* m, int64_t key) noexcept nogil:
    """Removes a key; returns whether it existed. The entries after it in its run move up, so that
    no search ends early."""
    cdef int64_t at, hole, home
    if m.count == 0:
        return False
    at = hole = _slot(m, key)
    if not m.used[at]:
        return False
    while True:
        at = (at + 1) & (m.capacity - 1)
        if not m.used[at]:
            break
        home = _home(m, m.keys[at])
        if ((at - home) & (m.capacity - 1)) >= ((at - hole) & (m.capacity - 1)):
            m.keys[hole] = m.keys[at]
            m.values[hole] = m.values[at]
            hole = at
    m.used[hole] = 0
    m.count -= 1
    return True
