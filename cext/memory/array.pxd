"""Arrays in C that grow, without the GIL."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy


cdef inline bint array_room(
    void* array, int64_t* capacity, int64_t wanted, size_t element_bytes
) noexcept nogil:
    """Makes room for `wanted` elements, and more, so that a million single elements are moved few
    times. `array` is the address of the pointer to the elements. Returns False when memory ran out;
    the array is then as it was."""
    cdef int64_t larger
    cdef void* items
    if wanted <= capacity[0]:
        return True
    larger = max(wanted, capacity[0] + capacity[0] // 2 + 4)
    memcpy(&items, array, sizeof(void*))
    items = realloc(items, <size_t>larger * element_bytes)
    if items == NULL:
        return False
    memcpy(array, &items, sizeof(void*))
    capacity[0] = larger
    return True
