"""The throttle time of an answer, written after the answer was made.

Handlers write a throttle time of 0. When the client must wait, its network thread puts the time in
its place, so that no handler, no cached answer and no parked request needs to know of quotas:

    Produce, delegation tokens   at the end, before the tagged fields, of which this broker sends none
    ApiVersions                  behind the array of keys
    OffsetDelete                 behind the error code
    others                       the first field
"""
from libc.stdint cimport int16_t, int32_t, int64_t

from barnabas.cext.codec.cursor cimport Cursor, cursor_i32, cursor_of, cursor_take, cursor_uvarint
from barnabas.cext.codec.endian cimport be32_store
from barnabas.cext.network.handler cimport Request, Response

cdef enum:
    THROTTLED_PRODUCE = 0
    THROTTLED_API_VERSIONS = 18
    THROTTLED_FIRST_TOKEN = 38      # CreateDelegationToken
    THROTTLED_LAST_TOKEN = 41       # DescribeDelegationToken
    THROTTLED_OFFSET_DELETE = 47
    ANSWER_HEADER_BYTES = 8         # size and correlation id

cdef inline int64_t _behind_the_keys(const Response* answer, bint flexible) noexcept nogil:
    """Returns the position behind the array of an ApiVersions answer, whose header has no tagged
    fields; -1: the answer is malformed."""
    cdef Cursor c = cursor_of(answer.bytes.data, answer.bytes.size)
    cdef int64_t count
    cursor_take(&c, ANSWER_HEADER_BYTES + 2)
    count = <int64_t>cursor_uvarint(&c, 5) - 1 if flexible else cursor_i32(&c)
    cursor_take(&c, count * (7 if flexible else 6))
    return -1 if c.bad else c.p - answer.bytes.data

cdef inline void throttle_write(const Request* q, Response* answer, int16_t first_version,
                                bint flexible, int32_t throttle_ms) noexcept nogil:
    """Writes the throttle time into a finished answer. `first_version`: the first version of the
    API key that has a throttle time; -1: none has."""
    cdef int64_t at
    if first_version < 0 or q.api_version < first_version:
        return
    if (q.api_key == THROTTLED_PRODUCE
            or THROTTLED_FIRST_TOKEN <= q.api_key <= THROTTLED_LAST_TOKEN):
        at = answer.bytes.size - (5 if flexible else 4)
    elif q.api_key == THROTTLED_API_VERSIONS:
        at = _behind_the_keys(answer, flexible)
    elif q.api_key == THROTTLED_OFFSET_DELETE:
        at = ANSWER_HEADER_BYTES + 2
    else:
        at = ANSWER_HEADER_BYTES + flexible
    if ANSWER_HEADER_BYTES <= at <= answer.bytes.size - 4:
        be32_store(answer.bytes.data + at, throttle_ms)
