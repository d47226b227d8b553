"""What the network threads share with each other, with the acceptor and with Python.

A Network belongs to one reactor. Lock order: none of its locks is held while another is taken.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from barnabas.cext.buffer cimport Buffer
from barnabas.cext.lane cimport Lane, Parked, Request, Response, Waker
from barnabas.cext.mutex cimport pthread_mutex_t
from barnabas.cext.sockets cimport epoll_event, net_peer, pthread_cond_t
from barnabas.cext.sys cimport System

cdef enum:
    LISTENERS_MAX = 16
    THREADS_MAX = 64
    LANES_MAX = 8
    SCRATCH_BYTES = 262144      # one receive buffer for all connections of a thread
    STAGE_BYTES = 65536         # small file pieces are read here before they are sent
    SPARE_SCRATCH_MAX = 8
    EPOLL_EVENTS_MAX = 256
    EVENTS_MAX = 1024           # protocol errors that wait for Python's logger
    EVENT_PEERS_MAX = 1024      # peers remembered for "one line a second"
    ADDRESS_BUCKETS = 1024

cdef enum:                      # index into Network.limits
    LIMIT_REQUEST_BYTES
    LIMIT_QUEUED_BYTES
    LIMIT_CONNECTIONS
    LIMIT_CONNECTIONS_PER_IP
    LIMIT_IDLE_MS
    LIMIT_RECEIVE_MS
    LIMIT_SEND_MS
    LIMIT_SEND_BUFFER_BYTES
    LIMIT_RECEIVE_BUFFER_BYTES
    LIMIT_COUNT

cdef enum:                      # why a connection was refused or closed
    WHY_PEER                    # the peer closed it, or the network did
    WHY_NEGATIVE_FRAME
    WHY_SHORT_FRAME
    WHY_LARGE_FRAME
    WHY_BAD_HEADER
    WHY_LANE                    # a lane found the request malformed
    WHY_HANDLER                 # Python closed it, or let the request fall
    WHY_IDLE
    WHY_RECEIVE_TIMEOUT
    WHY_SEND_TIMEOUT
    WHY_FILE                    # a slice could not be read, or its file was cut
    WHY_MEMORY
    WHY_MAX_CONNECTIONS
    WHY_MAX_CONNECTIONS_PER_IP
    WHY_ACCEPT_FAILED           # out of descriptors: the listeners rest for a moment
    WHY_STOP
    WHY_COUNT

cdef enum:                      # Network.state
    STATE_RUNNING
    STATE_DRAINING
    STATE_STOPPED

cdef enum:                      # what lies in an inbox
    MAIL_CONNECTION             # a new connection: fd, listener, peer
    MAIL_WAKE                   # a parked request may go on
    MAIL_REPLY                  # Python's answer: bytes
    MAIL_SILENT                 # Python is done and says nothing
    MAIL_CLOSE                  # Python wants the connection closed
    MAIL_LIMITS                 # a limit has changed: timers may be due earlier

cdef enum:                      # what a connection works on
    WORK_NONE
    WORK_PARKED
    WORK_PYTHON

cdef struct Connection:
    uint64_t id
    int32_t fd                  # -1: closed, freed at the end of the turn
    int32_t listener_index
    uint32_t armed              # what epoll watches
    int8_t work
    bint in_fired               # EPOLLIN came while we may not read: disarm it
    bint half_closed            # the peer will send no more, but what it sent is not read yet
    bint paused                 # waits for room in the budget of request bytes
    Lane* lane                  # who parked the request
    Request request             # the request in work
    Parked parked
    uint8_t* block              # owned copy of a small parked request
    int64_t block_bytes
    uint8_t* input              # owned only while a request is partial or parked
    int64_t input_at
    int64_t input_end
    int64_t input_capacity
    Response out                # what the socket would not take yet
    int64_t out_sent            # of out.bytes
    int32_t out_slice           # the slice that comes next
    int64_t out_slice_sent
    int64_t active_ns
    int64_t frame_began_ns      # first byte of a partial frame; 0: none
    int64_t progress_ns         # of the output
    int64_t timer_ns            # the time its heap entry stands for
    int64_t heap_index
    Connection* next_paused     # also the chain of the dead
    net_peer peer

cdef struct Mail:
    int8_t kind
    int32_t fd
    int32_t listener_index
    uint64_t connection_id
    Buffer bytes
    net_peer peer

cdef struct Inbox:
    pthread_mutex_t lock
    Mail* mails
    int64_t count
    int64_t capacity
    bint wake_all               # a wake was lost for want of memory: resume everything parked

cdef struct ThreadCounters:     # one writer, the thread itself
    int64_t requests
    int64_t python_requests
    int64_t parked              # at this moment
    int64_t bytes_in
    int64_t bytes_out
    int64_t idle_ns
    int64_t sleeping_since_ns   # 0 while awake
    int64_t started_ns
    int64_t closed[WHY_COUNT]
    int64_t connections[LISTENERS_MAX]

cdef struct NetThread:
    Network* network
    int32_t index
    int epoll_fd
    int event_fd
    int64_t now_ns
    int64_t connection_count    # atomic: those on their way through the inbox included
    Inbox inbox
    Mail* taken                 # the inbox' other half
    int64_t taken_capacity
    Connection** by_id          # open addressing, a power of two
    int64_t by_id_capacity
    int64_t by_id_count
    Connection** heap           # by timer_ns
    int64_t heap_count
    int64_t heap_capacity
    Connection* paused
    Connection* dead
    uint8_t* scratch
    uint8_t* spare_scratch[SPARE_SCRATCH_MAX]
    int32_t spare_scratch_count
    uint8_t* stage
    Response response           # what a lane fills
    Response gathered           # answers of one connection that go out together
    bint draining
    ThreadCounters counters
    epoll_event events[EPOLL_EVENTS_MAX]

cdef struct PyRequest:          # a request on its way to Python; the frame's bytes follow it
    PyRequest* next
    Request request
    net_peer peer

cdef struct PyQueue:
    pthread_mutex_t lock
    pthread_cond_t ready
    PyRequest* first
    PyRequest* last
    int64_t count
    int64_t waiting
    bint closed

cdef struct NetEvent:
    int8_t why
    int32_t listener_index
    int64_t detail              # the frame's size, the number of connections, an errno
    int64_t suppressed          # events of this peer that were not written before this one
    net_peer peer

cdef struct EventPeer:
    uint8_t address[16]
    int64_t until_ns
    int64_t suppressed

cdef struct EventRing:
    pthread_mutex_t lock
    NetEvent* events
    int64_t first
    int64_t count
    int64_t lost
    EventPeer* peers

cdef struct AddressCount:
    uint8_t address[16]
    int64_t count
    AddressCount* next

cdef struct Listener:
    int fd
    int64_t connections_total   # accepted, ever

cdef struct Network:
    System* system
    int64_t limits[LIMIT_COUNT]             # atomic
    int64_t state                           # atomic
    int64_t stop_deadline_ns
    int64_t last_connection_id              # atomic
    int64_t connection_count                # atomic
    int64_t held_bytes                      # atomic: request bytes partial, parked or in Python
    int64_t overdraft_id                    # atomic: the one connection that may go beyond the budget
    int64_t refused[WHY_COUNT]              # atomic: by the acceptor
    Lane* lanes[LANES_MAX]
    int32_t lane_count
    int16_t* flexible_from
    int32_t key_count
    NetThread* threads[THREADS_MAX]
    int32_t thread_count
    Listener listeners[LISTENERS_MAX]
    int64_t listener_count                  # atomic
    int acceptor_epoll_fd
    int acceptor_event_fd
    PyQueue queue
    EventRing ring
    pthread_mutex_t addresses_lock
    AddressCount* addresses[ADDRESS_BUCKETS]
    Waker waker

cdef Network* network_new(System* system) noexcept nogil
cdef void network_free(Network* network) noexcept nogil
# One more of the network's threads; its index or -errno.
cdef int network_add_thread(Network* network) noexcept nogil
# Takes over mail.bytes. False when memory ran out (the bytes are freed then).
cdef bint inbox_post(NetThread* thread, Mail* mail) noexcept nogil
cdef int64_t inbox_take(NetThread* thread, bint* wake_all) noexcept nogil
cdef void network_wake(void* network, int32_t thread_index, uint64_t connection_id) noexcept nogil

cdef bint queue_push(Network* network, const Request* request, const net_peer* peer) noexcept nogil
cdef PyRequest* queue_pop(Network* network, int64_t timeout_ms) noexcept nogil
cdef void queue_close(Network* network) noexcept nogil

# Whether `wanted` more bytes may be held; a connection over the budget gets them when nobody else is over it.
cdef bint budget_take(Network* network, uint64_t connection_id, int64_t wanted) noexcept nogil
cdef void budget_force(Network* network, int64_t held_bytes) noexcept nogil
cdef void budget_give(Network* network, int64_t held_bytes) noexcept nogil

cdef void ring_note(Network* network, int why, int32_t listener_index, const net_peer* peer,
                    int64_t detail, int64_t now_ns) noexcept nogil
cdef bint ring_take(Network* network, NetEvent* out) noexcept nogil

# False when the address has `most` connections already.
cdef bint address_enter(Network* network, const net_peer* peer, int64_t most) noexcept nogil
cdef void address_leave(Network* network, const net_peer* peer) noexcept nogil
