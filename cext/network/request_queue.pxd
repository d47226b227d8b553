"""A request on its way through Python (see request_queue.pyx)."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t

from barnabas.cext.network.network_state cimport Mail, Network, PyRequest
from barnabas.cext.network.sockets cimport net_peer

cdef class PendingRequest:
    cdef object _owner              # keeps the network's memory
    cdef Network* _network
    cdef net_peer _peer
    cdef int32_t _thread_index
    cdef int64_t _held_bytes
    cdef int64_t _dequeued_ns
    cdef int64_t _parked_ns
    cdef bint _answered
    cdef bint _ran                  # the handler has finished its part
    cdef bint _muffled
    cdef readonly int16_t api_key
    cdef readonly int16_t api_version
    cdef readonly int32_t correlation_id
    cdef readonly object client_id
    cdef readonly bytes data
    cdef readonly int64_t body_at
    cdef readonly str listener
    cdef readonly int32_t listener_index
    cdef readonly uint64_t connection_id
    cdef readonly int64_t received_ns
    cdef readonly bint gated
    cdef readonly bint unmetered    # the quotas of its client are not known: quota_sensors.bind()
    cdef readonly bint native       # a native handler takes it: call proceed(again=True)
    cdef int64_t client_id_bytes    # as sent
    cdef int64_t _throttle_ms
    cdef readonly int login
    cdef readonly bytes principal
    cdef readonly bytes session
    cdef bytes _questions
    cdef void _runs_no_more(self) noexcept
    cdef int _set(self, int kind, int login, bytes value, int64_t ends_ns) except -1
    cdef int _start(self, Mail* mail, int kind) except -1
    cdef int _post(self, Mail* mail) except -1

cdef object pending_request(object owner, Network* network, list listener_names, PyRequest* request)
cdef tuple peer_of(const void* peer)
