"""Ranges of records that become messages of format 0 or 1 for old fetches; see down_conversion.pyx."""
from libc.stdint cimport int64_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.fetch.interception cimport RangeQueue, Rewrite
from barnabas.cext.memory.memory_limit cimport MemoryLimit
from barnabas.cext.record.conversion cimport Down

cdef enum:
    # Of stored records that one Fetch of version 0 to 3 gets; what is left, the next fetch gets.
    DOWN_CONVERSION_BYTES_MAX = 16 << 20
    # Of ranges, results and answers that are not sent yet, of all clients together.
    DOWN_CONVERSION_MEMORY_BYTES_MAX = 128 << 20
    # For each byte of a range: the range and its result, or the answer in its growing buffer.
    DOWN_CONVERSION_FACTOR = 2
    # What a fetch may claim even if less than four times as much is free.
    DOWN_CONVERSION_SHARE_BYTES_MIN = 128 << 10

cdef class DownConversionQueue(RangeQueue):
    cdef MemoryLimit memory
