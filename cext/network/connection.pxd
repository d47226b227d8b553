"""One connection on its network thread: bytes in, requests to the native handlers, answers out."""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.network.network_state cimport Connection, Mail, NetThread
from barnabas.cext.network.sockets cimport net_peer

# Takes over the descriptor, also when it fails.
cdef void conn_open(NetThread* t, int fd, int32_t listener_index, uint64_t connection_id,
                    const net_peer* peer) noexcept nogil
cdef void conn_close(NetThread* t, Connection* c, int why, int64_t detail) noexcept nogil
cdef void conn_event(NetThread* t, Connection* c, uint32_t events) noexcept nogil
# Handles the deadline of the connection's timer.
cdef void conn_timer(NetThread* t, Connection* c) noexcept nogil
cdef void conn_resume(NetThread* t, Connection* c, bint expired) noexcept nogil
# Handles Python's answer, whose bytes it takes over, or MAIL_SILENT when there is none.
cdef void conn_replied(NetThread* t, Connection* c, Mail* mail) noexcept nogil
# Passes a gated request to its native handler. Takes over the frame. `muffled`: the handler carries
# the request out, and the connection closes in place of the answer.
cdef void conn_proceed(NetThread* t, Connection* c, Buffer* frame, bint muffled) noexcept nogil
# Sets the state and session of a login after its next step, or its principal. Takes over the bytes.
cdef void conn_login(NetThread* t, Connection* c, Mail* mail) noexcept nogil
# Sets the quotas of the request's client; takes over their binding. c NULL: the connection has
# closed.
cdef void conn_quotas(NetThread* t, Connection* c, Mail* mail) noexcept nogil
# Continues one of the thread's handshakes.
cdef void conn_handshake(NetThread* t) noexcept nogil
# Reads the bytes that transports of the thread's connections have buffered (CHAIN_BUFFERED).
cdef void conn_buffered(NetThread* t) noexcept nogil
# Reads again, because the budget has free memory for request bytes.
cdef void conn_unpause(NetThread* t, Connection* c) noexcept nogil
# Takes the connection, which has no request in work and no output, from its thread.
cdef void conn_leave(NetThread* t, Connection* c) noexcept nogil
# Gives a connection that has left a thread to this one.
cdef void conn_arrive(NetThread* t, Connection* c) noexcept nogil
# Goes on with a connection that was to move.
cdef void conn_stay(NetThread* t, Connection* c) noexcept nogil
# Arms epoll and the timer for what the connection waits for now; closes it when draining and done.
cdef void conn_settle(NetThread* t, Connection* c) noexcept nogil
