"""Updates of the request metrics from connection.pyx: one call for each stage of a request."""
from barnabas.cext.network.network_state cimport MAIL_SILENT, Connection, Mail, NetThread
from barnabas.cext.network.request_metrics cimport (
    RequestMetrics, metrics_begin, metrics_handled, metrics_of, metrics_sent, metrics_sent_one,
    metrics_unsent,
)

cdef inline void read_clock(NetThread* t) noexcept nogil:
    t.metrics.clock_ns = t.network.system.monotonic_ns(t.network.system)

cdef inline void work_begins(NetThread* t) noexcept nogil:
    """Call it before receiving or sending bytes, so that the next idle time does not begin with an
    old reading of the clock."""
    t.metrics.clock_is_fresh = False

cdef inline void request_begins(NetThread* t, Connection* c) noexcept nogil:
    metrics_begin(&t.metrics, &c.request)
    c.began_ns = t.metrics.clock_ns
    c.parked_ns = 0

cdef inline void request_done(NetThread* t, Connection* c, bint has_answer) noexcept nogil:
    metrics_handled(&t.metrics, &c.request, c.began_ns, c.parked_ns, t.metrics.clock_ns, has_answer)

cdef inline void request_done_by_python(NetThread* t, Connection* c, const Mail* mail) noexcept nogil:
    metrics_handled(&t.metrics, &c.request, mail.dequeued_ns, mail.parked_ns, mail.answered_ns,
                    mail.kind != MAIL_SILENT)

cdef inline void count_parked(NetThread* t, Connection* c, int change) noexcept nogil:
    cdef RequestMetrics* metrics = metrics_of(&t.metrics, &c.request)
    t.counters.parked += change
    if metrics != NULL:
        metrics.parked += change

cdef inline void request_parks(NetThread* t, Connection* c) noexcept nogil:
    if c.parked_ns == 0:
        c.parked_ns = t.metrics.clock_ns
    count_parked(t, c, 1)

cdef inline void answers_sent(NetThread* t, Connection* c) noexcept nogil:
    read_clock(t)
    t.metrics.clock_is_fresh = True
    metrics_sent(&t.metrics, c.sending_ns, t.metrics.clock_ns)
    if c.unsent.metrics != NULL:
        metrics_sent_one(&c.unsent, c.sending_ns, t.metrics.clock_ns)
        c.unsent.metrics = NULL

cdef inline void answers_left(NetThread* t, Connection* c) noexcept nogil:
    """Call it after an attempt to send: the time of an answer that is not sent yet is measured with
    the connection."""
    metrics_unsent(&t.metrics, &c.unsent)

cdef inline void answers_dropped(NetThread* t) noexcept nogil:
    t.metrics.answered_count = 0
