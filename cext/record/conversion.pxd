"""Records between the message formats 0, 1 and 2, without the GIL; described in conversion.pyx."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.record.messageset cimport MessageView
from barnabas.cext.record.records cimport BatchHeader
from barnabas.cext.record.validate cimport BodyRules, Verdict

cdef struct MessageSet:         # what Produce 0 to 2 carries for one partition
    int magic                   # of its first entry; -1: no entry is whole
    int64_t size_bytes          # of its whole entries, without a tail that is cut off
    int32_t entry_count
    int codec                   # of its last compressed entry; 0: none is compressed
    bint is_mixed               # an entry has another magic than the first one
    bint is_damaged             # after `size_bytes` comes what no entry begins with

cdef struct Down:               # the records of one batch in an older format
    int magic                   # 0 or 1
    int codec                   # of the batch
    int64_t first_offset        # of the fetch: earlier records of a plain batch are left out
    bint append_time
    int32_t count
    int64_t base_offset         # of the first record, when count > 0
    int64_t last_offset
    int64_t timestamp           # the largest; with append_time that of all records

# Finds the whole entries, as Kafka does: a tail that is cut off does not count.
cdef void message_set_frame(const uint8_t* p, int64_t size, MessageSet* out) noexcept nogil
# Checks sizes, checksums and codecs of the whole entries. Returns False and sets the verdict on an
# error.
cdef bint message_set_accept(const uint8_t* p, const MessageSet* found, int64_t bytes_max, Verdict* out) noexcept nogil
# Appends one uncompressed batch of format 2 (header and records, not sealed) to the empty `into`.
# `outer`: the wrapper whose decompressed content `p` is; NULL: `p` is a plain set that
# message_set_accept has accepted. Returns False and sets the verdict on an error.
cdef bint message_set_up(Buffer* into, const uint8_t* p, int64_t size, int magic, const MessageView* outer, const BodyRules* rules, Verdict* out) noexcept nogil
# Writes length and CRC of a batch whose other bytes are final.
cdef void batch_seal(uint8_t* batch, int64_t size) noexcept nogil

# Appends the records of a batch's decompressed body to `into` as messages; `down` says how, and has
# the results. Returns a RecordsStatus, also without memory (into.failed).
cdef int batch_down(Buffer* into, const uint8_t* body, int64_t size, const BatchHeader* h, Down* down) noexcept nogil
# The same for a message of format 1 (`outer`), or the decompressed messages in that wrapper.
cdef int messages_down(Buffer* into, const uint8_t* body, int64_t size, const MessageView* outer, Down* down) noexcept nogil
# Appends the wrapper of converted messages, which were compressed into `packed`.
cdef void wrapper_put(Buffer* into, const uint8_t* packed, int64_t size, const Down* down) noexcept nogil
