"""A leader's checks of the content of a producer's batch, and their verdict. Native code and the
decode threads use it."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t, uint8_t

from barnabas.cext.record.records cimport BatchHeader

cdef enum:  # Kafka's codes
    ERROR_INVALID_TIMESTAMP = 32
    ERROR_INVALID_RECORD = 87

cdef enum:
    REJECTED_RECORDS_MAX = 100      # records of a bad batch that an answer names at most

cdef struct BodyRules:
    int64_t now_ms
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms
    bint append_time                # the producer's timestamps are ignored
    bint requires_keys

cdef struct Verdict:
    int16_t error                   # a Kafka error code
    int32_t reason                  # COUNT_REJECTED_... of partitions.pxd
    const char* message             # for the client; NULL: none
    int64_t max_timestamp           # of the records; -1 with append time
    int32_t rejected_count          # of `rejected`
    int32_t rejected[REJECTED_RECORDS_MAX]      # indexes of records in the batch
    bint no_key                     # the rejected records have no key; else their timestamps are wrong

cdef inline bint timestamp_refused(int64_t timestamp, const BodyRules* rules) noexcept nogil:
    """Returns whether the topic refuses the timestamp (ms). -1 means none and is always allowed."""
    if timestamp == -1:
        return False
    if timestamp < rules.now_ms:
        return <uint64_t>rules.now_ms - <uint64_t>timestamp > <uint64_t>rules.timestamp_before_max_ms
    return <uint64_t>timestamp - <uint64_t>rules.now_ms > <uint64_t>rules.timestamp_after_max_ms

cdef void verdict_of(Verdict* out, int16_t error, int32_t reason, const char* message) noexcept nogil
# Checks uncompressed records (`body`) and sets the verdict; the header was checked before.
cdef void body_check(const uint8_t* body, int64_t size, const BatchHeader* h, const BodyRules* rules, Verdict* out) noexcept nogil
# Corrects header fields as a leader: append time, or the true largest timestamp, and then the CRC.
cdef void batch_correct(uint8_t* batch, BatchHeader* h, const BodyRules* rules, int64_t max_timestamp) noexcept nogil
# Makes the checks that Kafka makes before it checks the leader. Returns 0, and h is the header of
# exactly one batch v2, or an error code and its message.
cdef int16_t batch_frame_error(const uint8_t* records, int64_t size, int16_t version, BatchHeader* h, const char** message) noexcept nogil
# Checks size, checksum and the fields of the header. Returns False and sets the verdict on an
# error.
cdef bint batch_head_check(const uint8_t* batch, const BatchHeader* h, int64_t bytes_max, Verdict* out) noexcept nogil
