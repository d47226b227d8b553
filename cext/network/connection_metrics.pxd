"""Updates of the request metrics from connection.pyx: one call for each stage of a request."""
from barnabas.cext.network.network_state cimport MAIL_SILENT, Connection, Mail, NetThread
from barnabas.cext.network.request_metrics cimport (
    RequestFigures, figures_begin, figures_handled, figures_of, figures_sent, figures_sent_one,
    figures_unsent,
)

cdef inline void read_clock(NetThread* t) noexcept nogil:
    t.figures.clock_ns = t.network.system.monotonic_ns(t.network.system)

cdef inline void work_begins(NetThread* t) noexcept nogil:
    """Before bytes are received or sent: the next idle time must not begin with an old reading."""
    t.figures.clock_is_fresh = False

cdef inline void request_begins(NetThread* t, Connection* c) noexcept nogil:
    figures_begin(&t.figures, &c.request)
    c.began_ns = t.figures.clock_ns
    c.parked_ns = 0

cdef inline void request_done(NetThread* t, Connection* c, bint has_answer) noexcept nogil:
    figures_handled(&t.figures, &c.request, c.began_ns, c.parked_ns, t.figures.clock_ns, has_answer)

cdef inline void request_done_by_python(NetThread* t, Connection* c, const Mail* mail) noexcept nogil:
    figures_handled(&t.figures, &c.request, mail.dequeued_ns, mail.parked_ns, mail.answered_ns,
                    mail.kind != MAIL_SILENT)

cdef inline void count_parked(NetThread* t, Connection* c, int change) noexcept nogil:
    cdef RequestFigures* figures = figures_of(&t.figures, &c.request)
    t.counters.parked += change
    if figures != NULL:
        figures.parked += change

cdef inline void request_parks(NetThread* t, Connection* c) noexcept nogil:
    if c.parked_ns == 0:
        c.parked_ns = t.figures.clock_ns
    count_parked(t, c, 1)

cdef inline void answers_sent(NetThread* t, Connection* c) noexcept nogil:
    read_clock(t)
    t.figures.clock_is_fresh = True
    figures_sent(&t.figures, c.sending_ns, t.figures.clock_ns)
    if c.unsent.figures != NULL:
        figures_sent_one(&c.unsent, c.sending_ns, t.figures.clock_ns)
        c.unsent.figures = NULL

cdef inline void answers_left(NetThread* t, Connection* c) noexcept nogil:
    """After an attempt to send: what is not out by now is timed with the connection."""
    figures_unsent(&t.figures, &c.unsent)

cdef inline void answers_dropped(NetThread* t) noexcept nogil:
    t.figures.answered_count = 0
