"""A request that waits until its record of a coordinator's log is durable: see durable_wait.pxd.

Next on the data path: cext/partition/partitions.pyx, which fires the watches.
"""
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memcpy

from barnabas.cext.codec.error_codes cimport (
    ERROR_COORDINATOR_NOT_AVAILABLE, ERROR_NONE, ERROR_NOT_COORDINATOR,
)
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.partition.partitions cimport (
    partition_again, partition_error, partition_high_watermark, partition_is_led_since,
    partition_unwatch, partition_watch, table_epochs, watch_waits,
)


cdef void durable_wait_by(DurableWait* wait, const Request* r) noexcept nogil:
    wait.watch.thread_index = r.thread_index
    wait.watch.connection_id = r.connection_id


cdef void durable_wait_on(
    DurableWait* wait, const Partition* p, int64_t required, int32_t leader_epoch,
) noexcept nogil:
    memcpy(wait.watch.topic_id, p.topic_id, 16)
    wait.watch.index = p.index
    wait.watch.generation = p.generation
    wait.required, wait.leader_epoch = required, leader_epoch


cdef bint durable_wait_lasts(
    Table* table, DurableWait* wait, bint expired, int16_t* code,
) noexcept nogil:
    cdef int slot = epoch_enter(table_epochs(table))
    cdef Partition* p = partition_again(
        table, wait.watch.topic_id, wait.watch.index, wait.watch.generation)
    cdef bint lasts = False
    code[0] = ERROR_NONE
    if p != NULL and not expired and not watch_waits(&wait.watch):
        partition_watch(table, p, &wait.watch)      # before the check of the high watermark
    if p == NULL or (wait.leader_epoch != ANY_EPOCH and (
            not partition_is_led_since(table, p, wait.leader_epoch))):
        code[0] = ERROR_NOT_COORDINATOR
    elif partition_high_watermark(p) < wait.required:
        if partition_error(table, p) != ERROR_NONE:
            code[0] = ERROR_NOT_COORDINATOR
        elif expired:
            code[0] = ERROR_COORDINATOR_NOT_AVAILABLE
        else:
            lasts = True
    epoch_leave(table_epochs(table), slot)
    return lasts


cdef void durable_wait_end(Table* table, DurableWait* wait) noexcept nogil:
    if watch_waits(&wait.watch):
        partition_unwatch(table, &wait.watch)
