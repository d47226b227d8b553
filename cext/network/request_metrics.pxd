"""Request metrics of a network thread: one RequestMetrics for each API key.

The thread makes it at the first request of a key, and only that thread writes it; Python gets the
sum over all threads. A request's time has the same parts as in Kafka:

    total           from its last byte to the last byte of its answer
    request queue   until a handler begins to handle it
    local           handling it; if it must wait, until the wait begins
    remote          waiting for replicas, for the disk, for more records
    response queue  until its answer is being sent
    response send   until the socket has taken all of it

Parts that are always zero are not counted: a missing part means zero.

A thread reads its clock once for several steps, so the time of Python's answer may be later than
the thread's reading. A part begins no earlier than the end of the part before it, so the parts
never add up to more than the total.
"""
from libc.stdint cimport int16_t, int32_t, int64_t

from barnabas.cext.memory.histogram cimport Histogram, histogram_add
from barnabas.cext.network.handler cimport ERROR_CODES_MAX, Request

cdef enum:
    TIME_TOTAL
    TIME_REQUEST_QUEUE
    TIME_LOCAL
    TIME_REMOTE
    TIME_RESPONSE_QUEUE
    TIME_RESPONSE_SEND
    TIME_CONVERSIONS                # of records between message formats
    TEMPORARY_MEMORY                # for conversions: 1,024 stands for a byte
    TIMES

cdef enum:
    VERSIONS_MAX = 32               # the last one counts all higher versions
    ANSWERED_MAX = 256              # answers of one connection whose send time is measured together

cdef struct RequestMetrics:
    int64_t parked                  # at this moment
    int64_t requests[VERSIONS_MAX]  # answered, by version
    int64_t errors[ERROR_CODES_MAX + 1]     # answered, by error code from -1 on
    Histogram times[TIMES]

cdef struct Answered:               # an answer that is ready and not sent yet
    RequestMetrics* metrics         # NULL: none
    int64_t received_ns
    int64_t done_ns

cdef struct RequestMetricsTable:            # of one network thread
    RequestMetrics** of_key         # key_count of them and one more, of Fetch from other brokers
    int32_t key_count
    int32_t answered_count
    int64_t clock_ns                # the last reading in this turn
    bint clock_is_fresh             # no work that takes time was done since
    Answered answered[ANSWERED_MAX]

cdef bint metrics_init(RequestMetricsTable* f, int32_t key_count) noexcept nogil
cdef void metrics_free(RequestMetricsTable* f) noexcept nogil
# Makes the metrics of a key. Returns NULL for a key that does not exist, and when memory ran out.
cdef RequestMetrics* metrics_make(RequestMetricsTable* f, int32_t key) noexcept nogil
# Returns {(key, from another broker): see reactor.pyi}, summed over the tables of several threads.
cdef dict metrics_dict(RequestMetricsTable** tables, int count)

cdef inline RequestMetrics* metrics_of(RequestMetricsTable* f, const Request* q) noexcept nogil:
    cdef int32_t key = f.key_count - 1 if q.from_follower else q.api_key
    if key < 0 or key >= f.key_count or (key == f.key_count - 1 and not q.from_follower):
        return NULL
    return f.of_key[key] if f.of_key[key] != NULL else metrics_make(f, key)

cdef inline void metrics_begin(RequestMetricsTable* f, Request* q) noexcept nogil:
    """Call it before a request is handled: it tells the request where to count its errors."""
    cdef RequestMetrics* found
    q.from_follower = False
    q.conversion_ns = q.conversion_bytes = 0
    found = metrics_of(f, q)
    q.errors = &found.errors[1] if found != NULL else NULL

cdef inline void metrics_handled(RequestMetricsTable* f, const Request* q, int64_t began_ns,
                                 int64_t parked_ns, int64_t done_ns, bint has_answer) noexcept nogil:
    """Call it when a request is done. `parked_ns`: when it parked; 0: it did not."""
    cdef RequestMetrics* found = metrics_of(f, q)
    cdef Answered* answered
    if found == NULL:
        return
    found.requests[q.api_version if 0 <= q.api_version < VERSIONS_MAX else VERSIONS_MAX - 1] += 1
    if q.conversion_ns:
        histogram_add(&found.times[TIME_CONVERSIONS], q.conversion_ns)
        histogram_add(&found.times[TEMPORARY_MEMORY], q.conversion_bytes * 1024)
    if began_ns > q.received_ns:
        histogram_add(&found.times[TIME_REQUEST_QUEUE], began_ns - q.received_ns)
    else:
        began_ns = q.received_ns
    if parked_ns:
        histogram_add(&found.times[TIME_REMOTE], done_ns - parked_ns)
        histogram_add(&found.times[TIME_LOCAL], parked_ns - began_ns)
    else:
        histogram_add(&found.times[TIME_LOCAL], done_ns - began_ns)
    if not has_answer:
        histogram_add(&found.times[TIME_TOTAL], done_ns - q.received_ns)
        return
    if f.answered_count == ANSWERED_MAX:
        metrics_sent(f, done_ns, done_ns)
    answered = &f.answered[f.answered_count]
    f.answered_count += 1
    answered.metrics = found
    answered.received_ns = q.received_ns
    answered.done_ns = done_ns

cdef inline void metrics_sent_one(const Answered* a, int64_t began_ns, int64_t sent_ns) noexcept nogil:
    if began_ns > a.done_ns:
        histogram_add(&a.metrics.times[TIME_RESPONSE_QUEUE], began_ns - a.done_ns)
    else:
        began_ns = a.done_ns
    sent_ns = max(sent_ns, began_ns)
    histogram_add(&a.metrics.times[TIME_RESPONSE_SEND], sent_ns - began_ns)
    histogram_add(&a.metrics.times[TIME_TOTAL], sent_ns - a.received_ns)

cdef inline void metrics_sent(RequestMetricsTable* f, int64_t began_ns, int64_t sent_ns) noexcept nogil:
    """Call it when all answers that were ready are sent."""
    cdef int32_t i
    for i in range(f.answered_count):
        metrics_sent_one(&f.answered[i], began_ns, sent_ns)
    f.answered_count = 0

cdef inline void metrics_unsent(RequestMetricsTable* f, Answered* kept) noexcept nogil:
    """Call it when the socket is full. The send time of the last answer continues until it is sent;
    the answers before it count as sent."""
    if f.answered_count:
        if kept.metrics != NULL:
            metrics_sent_one(kept, f.clock_ns, f.clock_ns)
        f.answered_count -= 1
        kept[0] = f.answered[f.answered_count]
        metrics_sent(f, f.clock_ns, f.clock_ns)
