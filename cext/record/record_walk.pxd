"""Checks the records of a batch that arrive in pieces, and keeps none of them.

body_check (validate.pyx) makes the same check when all bytes are in memory. Both agree on every
body, however it is divided into pieces.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t, uint8_t

from barnabas.cext.codec.inflate cimport Inflated
from barnabas.cext.record.records cimport BatchHeader
from barnabas.cext.record.validate cimport REJECTED_RECORDS_MAX, BodyRules, Verdict

cdef struct RecordWalk:
    int status                  # RECORDS_OK, or the status of the first error
    bint names_only             # a record has no key: the rest is only searched for more such records
    int64_t bytes               # bytes read so far
    int32_t count               # records found whole
    int64_t max_timestamp
    int32_t last_offset_delta
    int32_t late_count          # of `late`
    int32_t late[REJECTED_RECORDS_MAX]          # records whose timestamp the topic does not allow
    int32_t keyless_count
    int32_t keyless[REJECTED_RECORDS_MAX]
    # the record in which a piece ended
    int field                   # which of its fields is read next, or is partly read
    int64_t left                # its bytes that have not arrived yet
    int64_t to_skip             # bytes of the field that are still to skip
    uint64_t number             # a varint of which only a part has arrived
    int number_bytes
    int64_t timestamp_delta
    int32_t offset_delta
    bint has_key
    int32_t headers_left

cdef void walk_begin(RecordWalk* w) noexcept nogil
cdef void walk_piece(RecordWalk* w, const uint8_t* piece, int64_t size, const BatchHeader* h, const BodyRules* rules) noexcept nogil
cdef void walk_end(RecordWalk* w, const BatchHeader* h, const BodyRules* rules, Verdict* out) noexcept nogil
# Decompresses an lz4 or snappy body (codec 3 or 2) into `scratch` and checks its records at the
# same time. Returns an InflateStatus; after INFLATE_OK the verdict is in `out`.
cdef int compressed_check(Inflated* scratch, int codec, const uint8_t* body, int64_t size, int64_t size_max, const BatchHeader* h, const BodyRules* rules, Verdict* out) noexcept nogil
