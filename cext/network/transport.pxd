"""The calls by which a network thread sends and receives on a TLS listener.

A connection whose `transport` is NULL uses the socket itself. tls.pyx fills the table; no other
module refers to it, so that a broker without a TLS listener does not load OpenSSL.
"""
from libc.stdint cimport int64_t, uint8_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.memory.sys cimport iovec

cdef enum:                      # what handshake() returns
    HANDSHAKE_FAILED = -1       # reason() says why
    HANDSHAKE_READS = 0         # it goes on when the socket has bytes
    HANDSHAKE_WRITES = 1        # it goes on when the socket takes bytes
    HANDSHAKE_DONE = 2
    HANDSHAKE_CUT = 3           # the peer closed the connection

cdef enum:                      # bits of what waits_for() returns
    TRANSPORT_BUFFERED = 1      # receive() has bytes that the socket does not show any more
    TRANSPORT_WRITES = 2        # receive() goes on when the socket takes bytes

cdef enum:                      # what reason() returns in place of an error code of the library
    REASON_PLAINTEXT = -1       # the first bytes are not a TLS record
    REASON_TOO_LARGE = -2       # the peer sent more bytes than a handshake may have

cdef struct TransportCalls:
    # Makes the session of a new connection; NULL: no memory.
    void* (*open)(void* context, int fd) noexcept nogil
    int (*handshake)(void* session) noexcept nogil
    # Like net_recv and net_send. After -EAGAIN, the next send() must begin with the same bytes.
    ssize_t (*receive)(void* session, uint8_t* into, size_t size_bytes) noexcept nogil
    ssize_t (*send)(void* session, const iovec* parts, int count, int more) noexcept nogil
    int (*waits_for)(void* session) noexcept nogil
    int64_t (*reason)(void* session) noexcept nogil
    # Returns the smallest number of bytes on the socket that can carry `plain_bytes` of a request.
    int64_t (*record_bytes_min)(void* session, int64_t plain_bytes) noexcept nogil
    # Appends the peer's certificate as DER; nothing if the peer sent none. Returns False without
    # memory, or if the certificate was not verified.
    bint (*peer_certificate)(void* session, Buffer* into) noexcept nogil
    # Ends the session before its socket is closed.
    void (*close)(void* session) noexcept nogil

cdef class Transport:
    """Python's carrier of a transport from the module that makes it to the reactor."""
    cdef const TransportCalls* calls    # NULL until declare()
    cdef void* context
    cdef void declare(self, const TransportCalls* calls, void* context)
