"""What clients have used of their quotas, and followers of the throttles of replication, in Kafka's
windows: SampledStat, Rate, SimpleRate, QuotaUtils.

A sensor has one sample more than quota.window.num, each quota.window.size.seconds long, and forgets
a sample when its last event is older than all windows together. The rate is the sum over the time
since the oldest sample began, but at least over all windows but one (Kafka's Rate), or with
`is_simple` at least over one window (SimpleRate). When a use raises the rate
above the limit, the client waits:

    wait = (rate - limit) / limit * time

so that the rate after the wait is the limit. Clients with equal tags share a sensor: their
connections may be on several threads, so each sensor has a lock, which is held for some 50
instructions. A connection has a binding: the sensors of its client, found by Python
(broker/server/quota_enforcement.py) when the connection's first request arrives, when the client id
changes and when quotas change. Sensors belong to Python, which frees one only while no binding
points to it. Next: cext/network/connection.pyx.

The functions are inline, so that a broker without quotas imports no module for them.
"""
from libc.math cimport INFINITY, llround
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from barnabas.cext.memory.atomics cimport atomic_add_i64
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock

cdef enum:
    QUOTA_PRODUCE               # bytes of requests a second
    QUOTA_FETCH                 # bytes of answers a second
    QUOTA_REQUEST               # percent of a thread
    QUOTA_KINDS

cdef enum:
    WAIT_SAMPLES = 2                # Kafka averages throttle times over two windows of 30 s
    WAIT_WINDOW_MS = 30000

cdef struct Sample:
    int64_t began_ms
    int64_t last_ms             # of the last event in it
    int64_t count               # of events
    double sum

cdef struct Samples:            # Kafka's SampledStat
    Sample* items
    int32_t capacity            # one more than the number of windows
    int32_t made
    int32_t current
    int64_t window_ms
    bint is_simple

cdef struct QuotaSensor:        # of all clients with equal tags; its lock guards all but `refs`
    pthread_mutex_t lock
    double limit                # units a second; infinite: no limit
    int64_t wait_ms_max
    Samples used
    Samples waits
    int64_t used_ms             # the last use
    int64_t refs                # atomic: bindings that point here

cdef struct QuotaBinding:       # of one connection: the sensors of its client
    int64_t generation          # of the quotas by which they were found
    QuotaSensor* sensors[QUOTA_KINDS]   # NULL: no quota of this kind exists
    int64_t wait_ms             # the wait that the handler of the request in progress has found,
    QuotaSensor* exceeded       # and the sensor that it comes from
    int64_t client_id_bytes
    uint8_t client_id[1]        # the first of client_id_bytes

# ------------------------------------------------------------------ samples

cdef inline bint samples_init(Samples* s, int32_t count, int64_t window_ms) noexcept nogil:
    s.items = <Sample*>calloc(count + 1, sizeof(Sample))
    s.capacity = count + 1
    s.made = s.current = 0
    s.window_ms = window_ms
    s.is_simple = False
    return s.items != NULL

cdef inline void _begin(Sample* sample, int64_t now_ms) noexcept nogil:
    sample.began_ms = sample.last_ms = now_ms
    sample.count = 0
    sample.sum = 0

cdef inline void _add(Samples* s, double amount, int64_t now_ms) noexcept nogil:
    cdef Sample* sample
    if s.made == 0:
        s.made = 1
        _begin(&s.items[0], now_ms)
    sample = &s.items[s.current]
    if now_ms - sample.began_ms >= s.window_ms:
        s.current = (s.current + 1) % s.capacity
        s.made = max(s.made, s.current + 1)
        sample = &s.items[s.current]
        _begin(sample, now_ms)
    sample.sum += amount
    sample.count += 1
    sample.last_ms = now_ms

cdef inline void samples_sum(Samples* s, int64_t now_ms, double* total, int64_t* count, int64_t* span_ms) noexcept nogil:
    """Sums the samples that are not too old. `span_ms`: the time by which to divide for a rate."""
    cdef int64_t oldest_ms = now_ms
    cdef int64_t windows = s.capacity - 1
    cdef int64_t full
    cdef int32_t i
    total[0] = 0
    count[0] = 0
    for i in range(s.made):
        if now_ms - s.items[i].last_ms >= windows * s.window_ms:
            _begin(&s.items[i], now_ms)
        oldest_ms = min(oldest_ms, s.items[i].began_ms)
        total[0] += s.items[i].sum
        count[0] += s.items[i].count
    span_ms[0] = now_ms - oldest_ms
    if s.is_simple:
        span_ms[0] = max(span_ms[0], s.window_ms)
        return
    full = span_ms[0] // s.window_ms
    if full < windows - 1:
        span_ms[0] += (windows - 1 - full) * s.window_ms
    span_ms[0] = max(span_ms[0], <int64_t>1)

# ------------------------------------------------------------------ a sensor

cdef inline int64_t _wait_ms(QuotaSensor* sensor, int64_t now_ms) noexcept nogil:
    cdef double total, rate, wait
    cdef int64_t count, span_ms
    samples_sum(&sensor.used, now_ms, &total, &count, &span_ms)
    rate = total * 1000 / span_ms
    if not rate > sensor.limit:
        return 0
    wait = (rate - sensor.limit) / sensor.limit * span_ms
    return min(sensor.wait_ms_max, llround(wait)) if wait < INT32_MAX else sensor.wait_ms_max

cdef inline void quota_note(QuotaSensor* sensor, double amount, int64_t now_ms) noexcept nogil:
    """Counts a use of `amount` units for which the client does not wait."""
    pthread_mutex_lock(&sensor.lock)
    sensor.used_ms = now_ms
    _add(&sensor.used, amount, now_ms)
    pthread_mutex_unlock(&sensor.lock)

cdef inline int64_t quota_use(
    QuotaSensor* sensor, double amount, int64_t now_ms, bint only_within=False
) noexcept nogil:
    """Counts a use of `amount` units. Returns how long the client must wait in ms: 0 while it is
    within its quota. `only_within`: it does not count a use that exceeds the quota."""
    cdef int64_t wait_ms
    pthread_mutex_lock(&sensor.lock)
    sensor.used_ms = now_ms
    _add(&sensor.used, amount, now_ms)
    wait_ms = _wait_ms(sensor, now_ms)
    if only_within and wait_ms:
        _add(&sensor.used, -amount, now_ms)
    pthread_mutex_unlock(&sensor.lock)
    return wait_ms

cdef inline bint quota_is_exceeded(QuotaSensor* sensor, int64_t now_ms) noexcept nogil:
    """Returns whether the rate is above the limit."""
    cdef double total, limit
    cdef int64_t count, span_ms
    pthread_mutex_lock(&sensor.lock)
    samples_sum(&sensor.used, now_ms, &total, &count, &span_ms)
    limit = sensor.limit
    pthread_mutex_unlock(&sensor.lock)
    return total * 1000 / span_ms > limit

cdef inline void quota_waits(QuotaSensor* sensor, int64_t wait_ms, int64_t now_ms) noexcept nogil:
    pthread_mutex_lock(&sensor.lock)
    _add(&sensor.waits, <double>wait_ms, now_ms)
    pthread_mutex_unlock(&sensor.lock)

cdef inline int64_t quota_largest(QuotaSensor* sensor) noexcept nogil:
    """Returns the largest amount that fits into all windows but one while nothing of it is used."""
    cdef double most
    pthread_mutex_lock(&sensor.lock)
    most = sensor.limit * (sensor.used.capacity - 2) * sensor.used.window_ms / 1000
    pthread_mutex_unlock(&sensor.lock)
    return <int64_t>most if most < INT32_MAX else INT32_MAX

# ------------------------------------------------------------------ a binding

cdef inline QuotaBinding* quota_bind(int64_t generation, const uint8_t* client_id, int64_t client_id_bytes,
                              QuotaSensor** sensors) noexcept nogil:
    """Makes a binding in one block of memory, with a reference to each sensor. NULL: no memory."""
    cdef QuotaBinding* binding = <QuotaBinding*>malloc(sizeof(QuotaBinding) + client_id_bytes)
    cdef int kind
    if binding == NULL:
        return NULL
    binding.generation = generation
    binding.wait_ms = 0
    binding.exceeded = NULL
    binding.client_id_bytes = client_id_bytes
    memcpy(binding.client_id, client_id, client_id_bytes)
    for kind in range(QUOTA_KINDS):
        binding.sensors[kind] = sensors[kind]
        if sensors[kind] != NULL:
            atomic_add_i64(&sensors[kind].refs, 1)
    return binding

cdef inline void sensors_release(QuotaSensor** sensors) noexcept nogil:
    cdef int kind
    for kind in range(QUOTA_KINDS):
        if sensors[kind] != NULL:
            atomic_add_i64(&sensors[kind].refs, -1)

cdef inline void quota_unbind(QuotaBinding* binding) noexcept nogil:
    if binding != NULL:
        sensors_release(binding.sensors)
        free(binding)

cdef inline bint quota_fits(const QuotaBinding* binding, int64_t generation, const uint8_t* client_id,
                            int64_t client_id_bytes) noexcept nogil:
    return (binding != NULL and binding.generation == generation
            and binding.client_id_bytes == client_id_bytes
            and (client_id_bytes == 0
                 or memcmp(binding.client_id, client_id, client_id_bytes) == 0))
