"""A request that waits until its record of a coordinator's log is durable.

The request's state begins with a DurableWait, whose watch wakes its connection when the high
watermark of the partition moves.
"""
from libc.stdint cimport int16_t, int32_t, int64_t

from barnabas.cext.network.handler cimport Request
from barnabas.cext.partition.partitions cimport Partition, Table, Watch

cdef enum:
    ANY_EPOCH = -1              # in place of a leader epoch

cdef struct DurableWait:
    Watch watch
    int64_t required            # the high watermark that answers the request
    int32_t leader_epoch        # of the append; this node must have led since then; or ANY_EPOCH

# Sets the connection to wake.
cdef void durable_wait_by(DurableWait* wait, const Request* r) noexcept nogil
# Sets the partition and the high watermark that it must reach.
cdef void durable_wait_on(
    DurableWait* wait, const Partition* p, int64_t required, int32_t leader_epoch) noexcept nogil
# Returns whether the request still waits. Else `code` is the error code of its answer: 0, or
# NOT_COORDINATOR (another broker has led since the append, another log, or one that is offline), or
# COORDINATOR_NOT_AVAILABLE (`expired`: its time is over). The caller is outside an epoch.
cdef bint durable_wait_lasts(
    Table* table, DurableWait* wait, bint expired, int16_t* code) noexcept nogil
# Ends the watch; call it before the memory is freed.
cdef void durable_wait_end(Table* table, DurableWait* wait) noexcept nogil
