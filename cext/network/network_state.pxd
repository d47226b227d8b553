"""The state that network threads share with each other, with the acceptor and with Python.

A Network belongs to one reactor. Lock order: no thread takes one of its locks while it holds
another.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.memory.mutex cimport pthread_mutex_t
from barnabas.cext.memory.sys cimport System
from barnabas.cext.memory.waker cimport Waker
from barnabas.cext.network.closed_connections cimport ClosedConnections, CloseMark
from barnabas.cext.network.handler cimport Handler, Parked, Request, Response
from barnabas.cext.network.request_metrics cimport Answered, RequestMetricsTable
from barnabas.cext.network.sockets cimport epoll_event, net_peer, pthread_cond_t, pthread_t
from barnabas.cext.network.transport cimport TransportCalls

cdef enum:
    LISTENERS_MAX = 16
    THREADS_MAX = 1000
    SPARE_THREADS_MAX = 16      # beside them (spare_threads.pyx)
    SCRATCH_BYTES = 262144      # one receive buffer for all connections of a thread
    STAGE_BYTES = 65536         # small file pieces are read here before they are sent
    SPARE_SCRATCH_MAX = 8
    EPOLL_EVENTS_MAX = 256
    EVENTS_MAX = 1024           # protocol errors that wait for Python's logger
    EVENT_PEERS_MAX = 1024      # peers remembered for "one line a second"
    ADDRESS_BUCKETS = 1024
    ADDRESS_PACES_MAX = 65536   # addresses whose rate of connections is remembered
    DELAYED_CLOSES_MAX = 1024   # connections that wait for their close
    API_KEYS_MAX = 128          # API keys that fit into Network.gate and Network.routes
    LARGE_BUFFER_BYTES = 1048576    # request buffers above this leave a reserve for smaller ones

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
    LIMIT_QUEUED_REQUESTS
    LIMIT_CONNECTION_RATE       # accepted a second
    LIMIT_HANDSHAKES            # in progress at the same time
    LIMIT_COUNT

cdef enum:                      # why a connection was refused or closed
    WHY_PEER                    # the peer closed it, or the network did
    WHY_NEGATIVE_FRAME
    WHY_SHORT_FRAME
    WHY_LARGE_FRAME
    WHY_TLS_CLIENT              # a frame too large, whose first bytes begin a TLS handshake
    WHY_HTTP_CLIENT             # likewise, with a method of HTTP
    WHY_PLAINTEXT_CLIENT        # the first bytes of a connection of a TLS listener are no handshake
    WHY_TLS                     # the handshake failed, or a record is malformed
    WHY_HANDSHAKE_TIMEOUT
    WHY_HANDSHAKES              # too many handshakes in progress, of which this was the oldest
    WHY_BAD_HEADER
    WHY_NATIVE                  # a native handler found the request malformed
    WHY_NO_LOGIN                # a request that is not answered before a login
    WHY_LOGIN_EXPIRED           # the login has ended, and the client did not log in again
    WHY_HANDLER                 # Python closed it, or dropped the request without an answer
    WHY_IDLE
    WHY_RECEIVE_TIMEOUT
    WHY_SEND_TIMEOUT
    WHY_SLOW_REQUEST            # a slow partial request, while others waited for its memory
    WHY_FILE                    # a slice could not be read, or its file was cut
    WHY_MEMORY
    WHY_MAX_CONNECTIONS_PER_IP
    WHY_ADDRESS_RATE            # too many a second from its address
    WHY_ACCEPT_FAILED           # out of descriptors: the listeners accept nothing for a short time
    WHY_STOP
    WHY_COUNT

cdef enum:                      # Network.state
    STATE_RUNNING
    STATE_DRAINING
    STATE_STOPPED

cdef enum:                      # NetThread.state
    THREAD_RUNNING
    THREAD_RETIRING             # no longer needed: ends when its requests are answered
    THREAD_ENDED                # its place is kept: late wakes still find it

cdef enum:                      # kinds of Mail in an inbox
    MAIL_CONNECTION             # a new connection: fd, listener, peer
    MAIL_WAKE                   # a parked request may go on
    MAIL_REPLY                  # Python's answer: bytes
    MAIL_SILENT                 # Python is done and sends no answer
    MAIL_CLOSE                  # Python wants the connection closed
    MAIL_LIMITS                 # a limit or the clock has changed: timers may be due earlier
    MAIL_PROCEED                # Python passes a gated request to its native handler: its frame
    MAIL_PROCEED_MUFFLED        # the same, and its answer is dropped
    MAIL_CLOSE_MARK             # Python waits for the close: a CloseMark as bytes
    MAIL_LOGIN                  # a step of a login: its new state as fd, the session as bytes
    MAIL_PRINCIPAL              # the principal that logged in as bytes
    MAIL_QUOTAS                 # the quotas of its client: a QuotaBinding as bytes
    MAIL_MOVED                  # a connection of another thread: connection

cdef enum:                      # Connection.login: which requests the connection may send
    LOGIN_OPEN                  # everything: it has logged in, or its listener asks for no login
    LOGIN_EXPIRING              # everything until login_ends_ns; SaslHandshake always
    LOGIN_NEEDED                # ApiVersions and SaslHandshake
    LOGIN_TOKENS                # SaslAuthenticate, after SaslHandshake version 1
    LOGIN_RAW_TOKENS            # each frame is a token without a header, after version 0
    LOGIN_CERTIFICATE           # nothing yet: Python names the principal of its certificate
    LOGIN_FAILED                # nothing: it closes when its answer is sent
    LOGIN_LEGACY07              # each frame is a request of Kafka 0.7, which Python answers

cdef enum:
    LEGACY07_KEY = -7           # in place of an API key; the version is the type of the request

cdef enum:                      # what a connection works on
    WORK_NONE
    WORK_PARKED
    WORK_PYTHON
    WORK_HANDSHAKE              # of its transport: no request is read before it is over
    WORK_MUTED                  # its client is over a quota: no request is read before muted_until_ns
    WORK_MOVING                 # to another thread, at the end of the turn

cdef enum:                      # the chains of a thread's connections (connection_chains.pxd)
    CHAIN_HANDSHAKES            # those whose handshake can go on
    CHAIN_STARTED               # handshakes in progress, the oldest first
    CHAIN_BUFFERED              # those whose transport has bytes that epoll does not see
    CHAIN_MOVING                # those that go to another thread
    CHAIN_COUNT

cdef struct Connection:
    uint64_t id
    int32_t fd                  # -1: closed, freed at the end of the turn
    int32_t listener_index
    uint32_t armed              # what epoll watches
    int8_t work                 # WORK_...
    int8_t login                # LOGIN_...
    bint in_fired               # EPOLLIN came while we may not read: disarm it
    bint half_closed            # the peer has closed its side, and bytes of it are not read yet
    bint muffled                # closes where the answer to the request in work would be sent
    bint paused                 # reads nothing: waits for memory, or for the queue to Python
    bint starved                # paused for memory: counted in Network.starved_count
    bint overdrawn              # may hold overdraft_id of the network or of its address
    int64_t wanted_bytes        # of the budget, while paused
    AddressCount* address       # of its peer
    Handler* handler            # the handler of the waiting request
    Request request             # the request in work
    Parked parked
    int64_t began_ns            # when a handler began the request in progress
    int64_t parked_ns           # when it parked; 0: not so far
    int64_t muted_until_ns
    int64_t held_up_ns          # when a request last held up its thread; 0: none has, for a time
    int64_t sending_ns          # when the sending of its answer began
    Answered unsent             # an answer that is partly sent
    uint8_t* block              # owned copy of a small parked request
    int64_t block_bytes
    uint8_t* input              # owned only while a request is partial or parked
    int64_t input_at
    int64_t input_end
    int64_t input_capacity
    Response out                # bytes that the socket has not accepted yet
    int64_t out_sent            # of out.bytes
    int32_t out_slice           # the slice that comes next
    int64_t out_slice_sent
    int64_t active_ns
    int64_t frame_began_ns      # when the first byte of a partial frame came; 0: none
    int64_t pace_began_ns       # the present second of a partial frame: its start,
    int64_t pace_bytes          # the bytes received in it,
    int64_t pace_slow_count     # and the slow seconds before it
    int64_t progress_ns         # of the output
    int32_t narrow_stalls       # how often the socket was full because the peer's window was small
    int64_t timer_ns            # the deadline of its heap entry
    int64_t heap_index
    Connection* next_paused     # also links the closed connections (NetThread.dead)
    CloseMark* close_mark       # NULL: Python does not wait for its close
    int64_t login_ends_ns       # of a login that expires
    Buffer session              # state of a login, for Python
    Buffer principal            # User:NAME, whose bytes request.principal shows; empty: anonymous
    const TransportCalls* transport     # NULL: the socket itself
    void* tls                   # the transport's session; NULL before the first bytes
    bint handshake_writes       # the handshake waits until the socket takes bytes
    bint chained[CHAIN_COUNT]
    Connection* chain_next[CHAIN_COUNT]
    Connection* chain_before[CHAIN_COUNT]
    net_peer peer

cdef struct Mail:
    int8_t kind
    int32_t fd
    int32_t listener_index
    uint64_t connection_id
    Connection* connection      # that has moved
    Buffer bytes
    int64_t login_ends_ns       # of a login that expires
    int64_t dequeued_ns         # of a reply: when Python took the request,
    int64_t parked_ns           # when its handler left it to another thread (0: it did not),
    int64_t answered_ns         # and when it was answered
    int64_t throttle_ms         # of a reply: how long the client must wait
    net_peer peer

cdef struct Inbox:
    pthread_mutex_t lock
    Mail* mails
    int64_t count
    int64_t capacity
    bint wake_all               # memory ran out and a wake was lost: resume every parked request

cdef struct ThreadCounters:     # only the thread itself writes them
    int64_t requests
    int64_t python_requests
    int64_t parked              # at this moment
    int64_t bytes_in
    int64_t bytes_out
    int64_t idle_ns
    int64_t sleeping_since_ns   # 0 while awake
    int64_t wakeups
    int64_t started_ns
    int64_t closed[WHY_COUNT]
    int64_t connections[LISTENERS_MAX]

cdef struct NetThread:
    Network* network
    int32_t index
    int epoll_fd
    int event_fd
    int64_t state               # atomic: running, retiring or ended
    int64_t watched_until_ns    # after a request that took long
    bint is_spare               # takes no new connections, only those that move to it
    pthread_t spare_thread
    int64_t retire_deadline_ns
    int64_t now_ns
    int64_t connection_count    # atomic: includes connections that are still in the inbox
    Inbox inbox
    Mail* taken                 # the mails that the thread has taken out of the inbox
    int64_t taken_capacity
    Connection** by_id          # open addressing, a power of two
    int64_t by_id_capacity
    int64_t by_id_count
    Connection** heap           # by timer_ns
    int64_t heap_count
    int64_t heap_capacity
    Connection* paused          # a list; the first has waited longest
    Connection* paused_last
    int64_t waits_for_room      # atomic: 1 while it sleeps until room_came_free wakes it
    Connection* dead            # closed connections, freed at the end of the turn
    Connection* chain_first[CHAIN_COUNT]
    Connection* chain_last[CHAIN_COUNT]
    uint8_t* scratch
    uint8_t* spare_scratch[SPARE_SCRATCH_MAX]
    int32_t spare_scratch_count
    uint8_t* stage
    Response response           # a handler writes its answer here
    Response gathered           # answers of one connection that are sent together
    Buffer questions            # of the request in work, for Python's authorizer
    bint draining
    ThreadCounters counters
    RequestMetricsTable metrics
    epoll_event events[EPOLL_EVENTS_MAX]

cdef struct PyRequest:          # a request on its way to Python; its bytes follow it
    PyRequest* next
    Request request
    net_peer peer
    int64_t principal_bytes     # of its connection, behind the frame,
    int64_t session_bytes       # and behind the principal,
    int64_t questions_bytes     # and behind the session
    int64_t held_bytes          # all four: its part of the budget
    int8_t login

cdef struct PyQueue:
    pthread_mutex_t lock
    pthread_cond_t ready
    PyRequest* first
    PyRequest* last
    int64_t count
    int64_t running             # atomic: requests that handlers have taken and still work on
    int64_t taken               # requests taken since the start
    int64_t let_go              # number of takers that will get NULL (queue_let_go)
    bint watched                # a thread checks every WATCH_NS whether the running ones make progress
    int64_t waiting             # threads that wait for a request
    int64_t waiting_since_ns    # the sum of the times when their waits began
    int64_t waited_ns           # the total of finished waits
    bint closed

cdef struct NetEvent:
    int8_t why
    int32_t listener_index
    int64_t detail              # the frame's size, the number of connections, an errno
    int64_t suppressed          # events of this peer before this one that were not logged
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
    int64_t large_bytes         # atomic: large buffers of partial and parked requests
    int64_t small_bytes         # atomic: their other buffers
    int64_t overdraft_id        # atomic: the one connection that may exceed the address's share
    AddressCount* next

cdef struct AddressLimit:       # max.connections.per.ip.overrides
    uint8_t address[16]
    int64_t most

cdef struct AddressPace:        # only the acceptor uses it
    uint8_t address[16]
    int64_t paid_ns             # as Network.rate_due_ns, for the connections of the address
    AddressPace* next

cdef struct DelayedClose:
    int fd
    int64_t close_ns

cdef enum:                      # Listener.removed
    LISTENER_OPEN
    LISTENER_REMOVED            # the acceptor is to close it
    LISTENER_CLOSED             # its place is free when all its connections are closed

cdef struct Listener:
    int fd                      # only the acceptor uses it, once it runs
    int64_t removed             # atomic
    int64_t connections_total   # accepted since the start
    int64_t connection_count    # atomic: open now
    int64_t connections_max     # atomic: its own max.connections
    int64_t connection_rate     # atomic: its own max.connection.creation.rate
    int8_t login                # of new connections: LOGIN_OPEN, LOGIN_NEEDED or LOGIN_LEGACY07
    int64_t login_bytes_max     # of a frame before its connection has logged in
    const TransportCalls* transport     # of new connections; NULL: no TLS
    void* transport_context
    int64_t rate_due_ns         # the acceptor's, as Network.rate_due_ns
    int64_t closed_since_ns     # the acceptor's: 0 while it accepts
    int64_t blocked_ns          # how long it did not accept
    # How often, and for how long, a rate delayed connections of this listener: the rate of the
    # broker or the listener, and the rate of an address. Only the acceptor writes them.
    int64_t throttle_count
    int64_t throttle_ns
    int64_t address_throttle_count
    int64_t address_throttle_ns

ctypedef void (*ThreadLoop)(NetThread*) noexcept nogil

cdef struct Route:              # the native handler of one API key
    Handler* handler            # NULL: Python answers
    int16_t version_min
    int16_t version_max


cdef struct Network:
    System* system
    int64_t limits[LIMIT_COUNT]             # atomic
    int64_t state                           # atomic
    int64_t stop_deadline_ns
    int64_t gate[2]                         # atomic: a bit for each API key that Python sees first
    int64_t quota_generation                # atomic: changes with the quotas; 0: there are none
    int16_t throttle_from[API_KEYS_MAX]     # the first version with a throttle time; -1: none has
    int64_t last_connection_id              # atomic
    int64_t connection_count                # atomic
    int64_t held_bytes                      # atomic: bytes of partial and parked requests, and in Python
    int64_t large_bytes                     # atomic: the part of held_bytes in large buffers
    int64_t starved_count                   # atomic: connections that wait for memory
    int64_t handshake_count                 # atomic: in progress
    int64_t overdraft_id                    # atomic: the one connection that may exceed the budget
    pthread_mutex_t budget_lock             # a growing buffer compares and takes under it
    int64_t refused[WHY_COUNT]              # atomic: by the acceptor
    Route routes[API_KEYS_MAX]  # by API key
    void* permissions           # atomic: a Permissions for its requests; NULL: no authorizer
    int16_t* flexible_from
    int32_t key_count
    NetThread* threads[THREADS_MAX + SPARE_THREADS_MAX]     # all, written once, never moved
    int32_t made_count                      # atomic: of these, ended ones too
    NetThread* takers[THREADS_MAX]          # those that take new connections, by their number
    int32_t taker_count                     # of these, ended ones too
    int32_t thread_count                    # the first of them, which run; under accept_lock
    NetThread* spares[SPARE_THREADS_MAX]    # under accept_lock
    int32_t spare_count                     # likewise: all of them run
    NetThread* unused_spare                 # likewise: made, and the system allowed it no thread
    ThreadLoop loop                         # what a spare thread does
    pthread_mutex_t accept_lock             # the choice of a thread, and the start of a stop
    int64_t room_waiters                    # atomic: threads with waits_for_room
    int64_t acceptor_waits                  # atomic: 1 while a listener waits until a connection closes
    int64_t rate_due_ns                     # the acceptor's: up to when accepted connections use the rate
    int64_t rest_until_ns                   # the acceptor's: out of descriptors or memory until then
    Listener listeners[LISTENERS_MAX]
    int64_t listener_count                  # atomic
    int acceptor_epoll_fd
    int acceptor_event_fd
    PyQueue queue
    ClosedConnections closed_connections
    EventRing ring
    pthread_mutex_t addresses_lock
    AddressCount* addresses[ADDRESS_BUCKETS]
    AddressLimit* address_limits            # under addresses_lock
    int64_t address_limit_count
    AddressLimit* address_rates             # under addresses_lock: connections a second
    int64_t address_rate_count
    int64_t address_rate_default            # of addresses without an own rate
    int64_t has_address_rates               # atomic
    AddressPace* paces[ADDRESS_BUCKETS]     # the acceptor's
    int64_t pace_count
    int64_t paces_swept_ns
    DelayedClose delayed[DELAYED_CLOSES_MAX]    # the acceptor's, a ring
    int64_t delayed_first
    int64_t delayed_count
    Waker waker

cdef Network* network_new(System* system) noexcept nogil
cdef void network_free(Network* network) noexcept nogil
# Makes the state of one more network thread, which takes no connections yet: a taker, or a spare one.
# Returns NULL when there is no memory or descriptor, or when there are THREADS_MAX takers.
cdef NetThread* network_add_taker(Network* network) noexcept nogil
cdef NetThread* network_add_spare(Network* network) noexcept nogil
# Returns the one of `count` threads that has the fewest connections. The caller holds accept_lock.
cdef NetThread* network_fewest(NetThread** threads, int32_t count) noexcept nogil
# Posts a mail to the thread and takes over mail.bytes. Returns False when memory ran out (the bytes
# are freed then).
cdef bint inbox_post(NetThread* thread, Mail* mail) noexcept nogil
cdef int64_t inbox_take(NetThread* thread, bint* wake_all) noexcept nogil
cdef void network_wake(void* network, int32_t thread_index, uint64_t connection_id) noexcept nogil

# Queues a copy of the connection's request in work, with its questions, for Python.
cdef bint queue_push(Network* network, const Connection* connection) noexcept nogil
cdef PyRequest* queue_pop(Network* network, int64_t timeout_ms) noexcept nogil
cdef PyRequest* queue_pop_now(Network* network) noexcept nogil
cdef void queue_close(Network* network) noexcept nogil
# Makes `count` waiting takers return NULL when there is no request for them: each then checks
# whether it is still needed.
cdef void queue_let_go(Network* network, int64_t count) noexcept nogil

# Returns whether the connection's input buffer may grow to `capacity` bytes, or may be made with
# that size if the connection has none.
cdef bint budget_allows(Network* network, Connection* connection, int64_t capacity) noexcept nogil
# Reserves the overdraft that the growth needs; returns False when another connection has it.
cdef bint budget_reserve(Network* network, Connection* connection, int64_t capacity) noexcept nogil
# Takes from the budget the bytes by which the input buffer grows. Returns False if it may not grow.
cdef bint budget_grow(Network* network, Connection* connection, int64_t capacity) noexcept nogil
# Take a block of `block_bytes` from the budget even if that exceeds it, and give it back.
cdef void budget_force(Network* network, int64_t block_bytes) noexcept nogil
cdef void budget_give(Network* network, int64_t block_bytes) noexcept nogil
# The same for the connection's input buffer of input_capacity bytes.
cdef void budget_force_input(Network* network, Connection* connection) noexcept nogil
cdef void budget_give_input(Network* network, Connection* connection) noexcept nogil
cdef void budget_end_overdraft(Network* network, Connection* connection) noexcept nogil
# Wakes the threads that sleep while their connections wait for memory of the budget.
cdef void room_came_free(Network* network) noexcept nogil
cdef bint queue_is_full(Network* network) noexcept nogil
# Call it when a connection has closed: it wakes the acceptor if that waits for one to close.
cdef void slot_came_free(Network* network) noexcept nogil

cdef void ring_note(Network* network, int why, int32_t listener_index, const net_peer* peer,
                    int64_t detail, int64_t now_ns) noexcept nogil
cdef bint ring_take(Network* network, NetEvent* out) noexcept nogil

# Counts a new connection of the peer's address. Returns False when the address has `most`
# connections already, or as many as its own limit allows.
cdef bint address_enter(Network* network, const net_peer* peer, int64_t most) noexcept nogil
cdef void address_leave(Network* network, const net_peer* peer) noexcept nogil
cdef uint64_t address_hash(const uint8_t* address) noexcept nogil
# Returns the entry of a peer's address after address_enter; it does not move until the last
# connection of the address leaves.
cdef AddressCount* address_find(Network* network, const net_peer* peer) noexcept nogil
