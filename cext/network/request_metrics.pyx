"""Memory of the request metrics, and their export to Python. See request_metrics.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from barnabas.cext.memory.atomics cimport atomic_load_pointer, atomic_store_pointer
from barnabas.cext.memory.histogram cimport histogram_sum

TIME_NAMES = ("total", "request_queue", "local", "remote", "response_queue", "response_send",
              "conversions", "temporary_memory")


cdef bint metrics_init(RequestMetricsTable* f, int32_t key_count) noexcept nogil:
    f.of_key = <RequestMetrics**>calloc(key_count + 1, sizeof(RequestMetrics*))
    if f.of_key == NULL:
        return False
    f.key_count = key_count + 1
    return True


cdef void metrics_free(RequestMetricsTable* f) noexcept nogil:
    cdef int32_t i
    for i in range(f.key_count):
        free(f.of_key[i])
    free(f.of_key)
    f.of_key = NULL
    f.key_count = 0


cdef RequestMetrics* metrics_make(RequestMetricsTable* f, int32_t key) noexcept nogil:
    cdef void* made = calloc(1, sizeof(RequestMetrics))
    atomic_store_pointer(<void**>&f.of_key[key], made)      # a reader sees it with zeros
    return <RequestMetrics*>made


cdef dict metrics_dict(RequestMetricsTable** tables, int count):
    cdef int32_t key
    cdef dict found = {}
    for key in range(tables[0].key_count if count else 0):
        metrics = _of_key(tables, count, key)
        if metrics is not None:
            found[key if key < tables[0].key_count - 1 else -1] = metrics
    return found


cdef object _of_key(RequestMetricsTable** tables, int count, int32_t key):
    cdef const Histogram* times[64]
    cdef RequestMetrics* one
    cdef int i, part, k
    cdef int64_t parked = 0
    cdef bint used = False
    versions, errors = {}, {}
    for i in range(count):
        one = <RequestMetrics*>atomic_load_pointer(<void**>&tables[i].of_key[key])
        if one == NULL:
            continue
        used = True
        parked += one.parked
        for k in range(VERSIONS_MAX):
            if one.requests[k]:
                versions[k] = versions.get(k, 0) + one.requests[k]
        for k in range(ERROR_CODES_MAX + 1):
            if one.errors[k]:
                errors[k - 1] = errors.get(k - 1, 0) + one.errors[k]
    if not used:
        return None
    parts = {}
    for part in range(TIMES):
        for i in range(count):
            one = <RequestMetrics*>atomic_load_pointer(<void**>&tables[i].of_key[key])
            times[i] = &one.times[part] if one != NULL else NULL
        parts[TIME_NAMES[part]] = histogram_sum(times, count)
    return {"parked": parked, "versions": versions, "errors": errors, "times": parts}
