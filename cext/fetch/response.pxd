"""The bytes of a Fetch answer."""
from libc.stdint cimport int16_t, int32_t

from barnabas.cext.fetch.request cimport FetchRequest
from barnabas.cext.network.handler cimport Response

# Writes each partition that is `in_answer`, in Kafka's order, and takes over its slice. Returns
# False without memory.
cdef bint fetch_answer(FetchRequest* r, int32_t correlation_id, int16_t error, int32_t session_id, Response* out) noexcept nogil
# Returns the answer's largest size in bytes without the records.
cdef long long fetch_answer_frame_bytes(const FetchRequest* r) noexcept nogil
