"""Ranges of records that become messages of format 0 or 1 for old fetches; see down_conversion.pyx."""
from libc.stdint cimport int64_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.fetch.interception cimport Rewrite, Rewrites
from barnabas.cext.memory.job_queue cimport JobQueue
from barnabas.cext.record.conversion cimport Down

cdef enum:
    # Of stored records that one Fetch of version 0 to 3 gets; what is left, the next fetch gets.
    DOWN_CONVERSION_BYTES_MAX = 16 << 20
    # Of ranges and results in memory. Above it a range gives no more than its first batch.
    DOWN_CONVERSION_HELD_BYTES_MAX = 128 << 20

cdef class DownConversionQueue(JobQueue):
    """Bounded queue of ranges to convert; `next` is for Python threads."""
    cdef Rewrites rewrites
    cdef object table_owner
    cdef public int64_t held_bytes_max
    cdef int64_t held_bytes     # atomic: of the jobs that are being carried out
    cdef Rewrites* serve(self, table) except NULL
