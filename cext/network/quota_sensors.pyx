"""Sensors of client quotas and of the throttles of replication, which Python owns, and the bindings
of those of clients to connections.

quotas.pxd describes them, and how network threads use them.
"""
from libc.math cimport INFINITY, isfinite
from libc.stdint cimport INT32_MAX, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset

from barnabas.cext.memory.atomics cimport atomic_load_i64
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from barnabas.cext.network.handler cimport SensorCarrier
from barnabas.cext.network.network_state cimport MAIL_QUOTAS, Mail, inbox_post
from barnabas.cext.network.quotas cimport (
    QUOTA_KINDS, WAIT_SAMPLES, WAIT_WINDOW_MS, QuotaBinding, QuotaSensor, Samples, quota_bind,
    quota_is_exceeded, quota_note, quota_use, samples_init, samples_sum, sensors_release,
)
from barnabas.cext.network.request_queue cimport PendingRequest

cdef enum:
    SAMPLES_MAX = 100000
    CLIENT_ID_AT = 10               # in a request: behind key, version, correlation id and its length


cdef class Sensor(SensorCarrier):
    """The use of one quota by the clients with equal tags, or of a throttle by replicas.

    `samples`: the number of windows; `window_ms`: the length of a window; `wait_ms_max`: the longest
    wait; `is_simple`: the rate is taken over one window at least (Kafka's SimpleRate), not over all
    but one. Raises ValueError and MemoryError."""
    cdef QuotaSensor quota

    def __cinit__(self, *, int samples, int64_t window_ms, int64_t wait_ms_max=INT32_MAX,
                  bint is_simple=False):
        if not (1 <= samples <= SAMPLES_MAX and window_ms >= 1 and 1 <= wait_ms_max <= INT32_MAX):
            raise ValueError(f"{samples} windows of {window_ms} ms, {wait_ms_max} ms at most")
        pthread_mutex_init(&self.quota.lock, NULL)
        self.quota.limit = INFINITY
        self.quota.wait_ms_max = wait_ms_max
        if not (samples_init(&self.quota.used, samples, window_ms)
                and samples_init(&self.quota.waits, WAIT_SAMPLES, WAIT_WINDOW_MS)):
            raise MemoryError("no memory for a quota")
        self.quota.used.is_simple = is_simple
        self.sensor = &self.quota

    def __dealloc__(self):
        pthread_mutex_destroy(&self.quota.lock)
        free(self.quota.used.items)
        free(self.quota.waits.items)

    @property
    def limit(self):
        """The quota in units a second; None: no limit."""
        return self.quota.limit if isfinite(self.quota.limit) else None

    @limit.setter
    def limit(self, value):
        cdef double limit = INFINITY if value is None else value
        if not limit > 0 and not (limit == 0 and self.quota.used.is_simple):
            raise ValueError(f"{value} is no quota")
        pthread_mutex_lock(&self.quota.lock)
        self.quota.limit = limit
        pthread_mutex_unlock(&self.quota.lock)

    @property
    def is_bound(self):
        """Whether a connection uses the sensor."""
        return atomic_load_i64(&self.quota.refs) != 0

    @property
    def used_ms(self):
        """The time of the last use in ms, by the broker's monotonic clock; 0: never."""
        return self.quota.used_ms

    def note(self, double amount, int64_t now_ms):
        """Counts a use that nothing waits for."""
        quota_note(&self.quota, amount, now_ms)

    def is_exceeded(self, int64_t now_ms):
        """Whether the rate is above the limit."""
        return bool(quota_is_exceeded(&self.quota, now_ms))

    def use(self, double amount, int64_t now_ms):
        """Counts a use of `amount` units. Returns how long the client must wait in ms."""
        return quota_use(&self.quota, amount, now_ms)

    def use_within(self, double amount, int64_t now_ms):
        """Does what use() does, but does not count a use that exceeds the quota."""
        return quota_use(&self.quota, amount, now_ms, True)

    def rate(self, int64_t now_ms):
        """Returns the present rate in units a second."""
        return self._measured(&self.quota.used, now_ms)[0]

    def mean_wait_ms(self, int64_t now_ms):
        """Returns the mean wait of the last minute in ms; None without any wait."""
        total, count = self._measured(&self.quota.waits, now_ms)[1:]
        return total / count if count else None

    cdef tuple _measured(self, Samples* samples, int64_t now_ms):
        cdef double total
        cdef int64_t count, span_ms
        pthread_mutex_lock(&self.quota.lock)
        samples_sum(samples, now_ms, &total, &count, &span_ms)
        pthread_mutex_unlock(&self.quota.lock)
        return total * 1000 / span_ms, total, count


def bind(PendingRequest pending not None, int64_t generation, sensors not None):
    """Sets the quotas of a request's client on its connection: for each kind a Sensor, or None.
    `generation`: of the quotas from which the sensors come (Reactor.set_quotas). The caller keeps
    each sensor while it `is_bound`. Raises MemoryError."""
    cdef QuotaSensor* found[QUOTA_KINDS]
    cdef const uint8_t* frame = pending.data
    cdef Mail mail
    cdef int kind
    for kind in range(QUOTA_KINDS):
        found[kind] = NULL if sensors[kind] is None else &(<Sensor?>sensors[kind]).quota
    memset(&mail, 0, sizeof(Mail))
    mail.kind = MAIL_QUOTAS
    mail.connection_id = pending.connection_id
    mail.bytes.data = <uint8_t*>quota_bind(
        generation, frame + CLIENT_ID_AT, pending.client_id_bytes, found)
    if mail.bytes.data == NULL:
        raise MemoryError("no memory for the quotas of a connection")
    if not inbox_post(pending._network.threads[pending._thread_index], &mail):
        sensors_release(found)          # the binding is freed
        raise MemoryError("no memory for the quotas of a connection")
