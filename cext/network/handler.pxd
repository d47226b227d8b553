"""The interface of the reactor and the native handlers that run on its threads.

The reactor cuts frames and owns connections; a native handler answers some requests on the network
thread without the GIL. Neither imports the other: both use these structures.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_free, buffer_i8, buffer_i32, buffer_init,
)
from barnabas.cext.codec.endian cimport be32_store
from barnabas.cext.log.log cimport LogSlice
from barnabas.cext.log.segment cimport segment_release
from barnabas.cext.memory.array cimport array_room
from barnabas.cext.memory.memory_limit cimport MemoryClaim
from barnabas.cext.memory.waker cimport Waker
from barnabas.cext.network.quotas cimport QuotaBinding, QuotaSensor

cdef enum:
    HANDLER_CLOSE = -1     # malformed: close the connection without an answer
    HANDLER_DONE = 0       # the response is complete
    HANDLER_SILENT = 1     # done, and there is no response (acks=0)
    HANDLER_PARKED = 2     # `parked` is filled; resume() is called after wake() or at the deadline
    HANDLER_PYTHON = 3     # this handler does not answer it: Python does

cdef struct Request:
    uint8_t* data               # the frame after its size prefix; does not move while parked; writable
    int64_t size_bytes
    int16_t api_key
    int16_t api_version
    int32_t correlation_id
    const uint8_t* client_id    # inside data; NULL when null
    int32_t client_id_bytes
    int64_t body_at             # where the body begins in data
    uint64_t connection_id      # never used again for another connection of this reactor
    int32_t thread_index
    int32_t listener_index
    const void* peer            # a net_peer, while its network thread handles it
    const uint8_t* principal    # User:NAME of its connection, likewise; NULL: User:ANONYMOUS
    int64_t principal_bytes
    void* permissions           # a Permissions, while its network thread handles it; NULL: no authorizer
    Buffer* questions           # rights that Python has to decide on (permissions.pxd)
    int64_t caller              # hash of principal and host; 0: not computed yet
    int64_t rules_epoch         # of the rules by which the request was checked last
    int64_t received_ns         # monotonic, when the frame was complete
    int64_t* errors             # answers by error code, for request_error(); NULL: not counted here
    bint from_follower          # a handler found that another broker sent it
    bint gated                  # Python sees it before its handler (Reactor.set_gate)
    bint unmetered              # Python finds the quotas of its client first,
    bint native                 # and then returns it to its native handler
    QuotaBinding* quota         # of its client, while its connection lives; NULL: no quotas exist
    int8_t asked_count          # how often Python has decided on rights for it
    int64_t conversion_ns       # time in which its records were converted between message formats
    int64_t conversion_bytes    # memory that this took for a time
    MemoryClaim* memory         # of its answer, until that is sent; NULL: none. Only resume() sets it

cdef struct ResponseSlice:
    int64_t after_byte          # it is sent after this number of bytes of `bytes`
    LogSlice slice              # owned: released when sent or dropped

cdef struct Response:
    Buffer bytes                # size prefix included
    ResponseSlice* slices
    int32_t slice_count
    int64_t slice_capacity
    int64_t slice_bytes

cdef struct Parked:
    int64_t deadline_ns         # monotonic
    void* state                 # the handler's own
    bint unfinished             # the request must be carried out even if its peer has closed its side

cdef inline int handler_parks(
    Parked* parked, void* state, int64_t deadline_ns, bint unfinished=False
) noexcept nogil:
    parked.state = state
    parked.deadline_ns = deadline_ns
    parked.unfinished = unfinished
    return HANDLER_PARKED

ctypedef int (*HandleRequest)(
    void* context, Request* request, Response* out, Parked* parked) noexcept nogil
# As HandleRequest; HANDLER_PARKED: it waits again. `expired`: the deadline has passed, answer now.
ctypedef int (*ResumeRequest)(
    void* context, Request* request, Response* out, Parked* parked, bint expired) noexcept nogil
# The connection has closed while the request waited: free the state.
ctypedef void (*AbandonRequest)(void* context, Parked* parked) noexcept nogil

cdef struct Handler:
    void* context
    HandleRequest handle
    ResumeRequest resume
    AbandonRequest abandon

cdef class NativeHandler:
    """Python's carrier of a native handler from the module that makes it to the reactor."""
    cdef Handler handler        # its context is NULL until declare()
    cdef readonly tuple apis    # of (API key, first version, last version)
    cdef object owner           # kept alive while the reactor runs
    cdef void declare(
        self, tuple apis, void* context, HandleRequest handle, ResumeRequest resume,
        AbandonRequest abandon)
    cdef void bind(self, Waker* waker)   # called once by the reactor before its threads start

cdef class PermissionTable:
    """Python's carrier of the permissions from the module that makes them to the reactor."""
    cdef void* permissions      # a Permissions (permissions.pxd); NULL until that module sets it

cdef class SensorCarrier:
    """Python's carrier of a sensor from the module that makes it to those that count with it."""
    cdef QuotaSensor* sensor    # valid while the object lives

# The functions of a handler whose requests never wait.
cdef int handler_resumes_nothing(
    void* context, Request* request, Response* out, Parked* parked, bint expired) noexcept nogil
cdef void handler_abandons_nothing(void* context, Parked* parked) noexcept nogil

cdef enum:
    ERROR_CODES_MAX = 160       # above Kafka's highest code
    KEPT_BUFFER_BYTES = 65536   # an emptied response frees its memory above this size

cdef inline void request_error(const Request* request, int error) noexcept nogil:
    """Counts one answer (for example of a partition) with this error code; 0 counts too."""
    if request.errors != NULL and -1 <= error < ERROR_CODES_MAX:
        request.errors[error] += 1

cdef inline void response_init(Response* r) noexcept nogil:
    buffer_init(&r.bytes)
    r.slices = NULL
    r.slice_count = 0
    r.slice_capacity = 0
    r.slice_bytes = 0

cdef inline void response_begin(Response* r, int32_t correlation_id, bint flexible) noexcept nogil:
    """Writes the size prefix (response_end sets it), the correlation id and, if flexible, an empty
    section of tagged fields."""
    buffer_i32(&r.bytes, 0)
    buffer_i32(&r.bytes, correlation_id)
    if flexible:
        buffer_i8(&r.bytes, 0)

cdef inline bint response_add_slice(Response* r, LogSlice* slice) noexcept nogil:
    """Adds a slice and takes over its reference. Returns False when memory ran out (the slice is
    released then)."""
    if not array_room(&r.slices, &r.slice_capacity, r.slice_count + 1, sizeof(ResponseSlice)):
        segment_release(slice.segment)
        r.bytes.failed = True
        return False
    r.slices[r.slice_count].after_byte = r.bytes.size
    r.slices[r.slice_count].slice = slice[0]
    r.slice_count += 1
    r.slice_bytes += slice.size_bytes
    return True

cdef inline void response_end(Response* r) noexcept nogil:
    if not r.bytes.failed:
        be32_store(r.bytes.data, <int32_t>(r.bytes.size - 4 + r.slice_bytes))

cdef inline void response_free(Response* r) noexcept nogil:
    cdef int32_t i
    for i in range(r.slice_count):
        if r.slices[i].slice.segment != NULL:
            segment_release(r.slices[i].slice.segment)
    free(r.slices)
    buffer_free(&r.bytes)
    response_init(r)

cdef inline void response_reset(Response* r) noexcept nogil:
    """Empties a response and keeps its memory for the next, unless it has grown large."""
    cdef uint8_t* data = r.bytes.data
    cdef int64_t capacity = r.bytes.capacity
    r.bytes.data = NULL
    response_free(r)
    if capacity > KEPT_BUFFER_BYTES:
        free(data)
    else:
        r.bytes.data = data
        r.bytes.capacity = capacity

cdef inline bint response_append(Response* to, Response* more) noexcept nogil:
    """Moves the content of `more` to the end of `to`; `more` is empty afterwards. Returns False
    when memory ran out."""
    cdef Response swap
    cdef int64_t shift = to.bytes.size
    cdef int32_t i
    cdef bint added
    if shift == 0:
        swap = to[0]
        to[0] = more[0]
        more[0] = swap
        return True
    buffer_bytes(&to.bytes, more.bytes.data, more.bytes.size)
    added = not to.bytes.failed
    for i in range(more.slice_count):
        if not added:
            break
        added = response_add_slice(to, &more.slices[i].slice)
        more.slices[i].slice.segment = NULL         # the other response's, or released
        if added:
            to.slices[to.slice_count - 1].after_byte = shift + more.slices[i].after_byte
    response_reset(more)
    return added
