"""The native Fetch handler for the reactor and for Python: FetchHandler is a NativeHandler."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from barnabas.cext.fetch.cold_reads cimport ColdReads, ColdWait
from barnabas.cext.fetch.down_conversion cimport DownConversionQueue
from barnabas.cext.fetch.interception cimport RewriteQueue, Rewrites
from barnabas.cext.fetch.request cimport FetchRequest
from barnabas.cext.fetch.sessions cimport SessionCache, SessionUse
from barnabas.cext.memory.memory_limit cimport MemoryClaim
from barnabas.cext.memory.waker cimport Waker
from barnabas.cext.network.handler cimport NativeHandler, Response
from barnabas.cext.network.quotas cimport QuotaSensor
from barnabas.cext.partition.partitions cimport Table, Watch

cdef struct FetchCore:
    Table* table
    SessionCache* sessions
    ColdReads* cold
    Rewrites* rewrites          # ranges that plugins intercept
    Rewrites* conversions       # ranges that old fetches get in an older message format
    int32_t fetch_bytes_max     # fetch.max.bytes; live
    bint selects_by_rack        # replica.selector.class
    QuotaSensor* leader_throttle    # leader.replication.throttled.rate; NULL on a single node
    int64_t requests            # counters: atomic
    int64_t bytes_out           # of records
    int64_t waits               # requests that had to wait for records
    int64_t expired             # of those, requests that were answered at their deadline
    int64_t cold_waits

cdef struct FetchWait:          # the state of a Fetch request (Parked.state)
    FetchRequest r
    SessionUse use
    Watch* watches              # one for each partition; NULL until the request must wait
    int32_t watch_count
    ColdWait* cold              # not NULL: it waits for the disk, and its slices no longer change
    bint rewrites               # it waits for plugins or conversions, after the wait for the disk
    bint converts               # its conversions were asked for, or wait for memory
    MemoryClaim* memory         # for them; it passes to the request with the answer
    int64_t deadline_ns
    bint looks_again            # it waits for `cold`, or for the queue, and then repeats its lookups
    int cold_lookups            # how often they have waited for the disk
    int64_t cold_deadline_ns    # of these waits; 0: none yet

cdef class FetchHandler(NativeHandler):
    cdef FetchCore core
    cdef object table_owner
    cdef object sessions_owner
    cdef object throttle_owner
    cdef readonly RewriteQueue rewrites
    cdef readonly DownConversionQueue conversions
    cdef list threads
    cdef void bind(self, Waker* waker)
    cdef object answer_of(self, int status, Response* out)
