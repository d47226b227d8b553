"""Delayed produce: a request waits for decode jobs, the coordinator, or visibility (acks=all).

A wait for visibility is a watch of a partition: the request registers its watches, then reads the
high watermarks again, then waits. It ends with NOT_LEADER_OR_FOLLOWER in another leader epoch than
that of the append, because the log may have lost the records meanwhile; and with
NOT_ENOUGH_REPLICAS_AFTER_APPEND when the ISR, with the followers that are joining it, has become
smaller than min.insync.replicas. Kafka: DelayedProduce, Partition.checkEnoughReplicasReachOffset.
Next on the data path: cext/partition/partitions.pyx.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from barnabas.cext.codec.buffer cimport buffer_free
from barnabas.cext.codec.endian cimport be16_store
from barnabas.cext.codec.error_codes cimport (
    ERROR_NONE, ERROR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, ERROR_NOT_LEADER_OR_FOLLOWER,
    ERROR_REQUEST_TIMED_OUT, ERROR_UNKNOWN_TOPIC_OR_PARTITION,
)
from barnabas.cext.memory.array cimport array_room
from barnabas.cext.memory.atomics cimport atomic_load_i32
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.network.handler cimport request_error
from barnabas.cext.partition.partitions cimport (
    partition_again, partition_error, partition_high_watermark, partition_is_led_since,
    partition_isr_size_max, partition_isr_size_min, partition_unwatch, partition_watch, table_epochs,
)
from barnabas.cext.produce.decode cimport decode_abandon
from barnabas.cext.produce.transaction_check cimport verify_drop


cdef Wait* state_wait_for(
    State* state, const Request* request, const Partition* p, int64_t required,
    int32_t leader_epoch,
) noexcept nogil:
    cdef Wait* wait
    if not array_room(&state.waits, &state.wait_capacity, state.wait_count + 1, sizeof(Wait)):
        return NULL
    wait = &state.waits[state.wait_count]
    state.wait_count += 1
    memcpy(wait.watch.topic_id, p.topic_id, 16)
    wait.watch.index = p.index
    wait.watch.generation = p.generation
    wait.watch.thread_index = request.thread_index
    wait.watch.connection_id = request.connection_id
    wait.watch.linked = False
    wait.required = required
    wait.leader_epoch = leader_epoch
    wait.error_at = -1
    wait.settled = False
    return wait


cdef void state_free(
    State* state, Table* table, Jobs* decode,
) noexcept nogil:
    cdef int32_t i
    if state == NULL:
        return
    for i in range(state.wait_count):
        if atomic_load_i32(<int32_t*>&state.waits[i].watch.linked):
            partition_unwatch(table, &state.waits[i].watch)
    decode_abandon(decode, &state.group)
    verify_drop(state.verify)
    free(state.waits)
    free(state.refused)
    buffer_free(&state.response)
    free(state)


cdef int16_t _outcome(Table* table, Partition* p, const Wait* wait, bint expired, bint* settled) noexcept nogil:
    """Returns an error; without one, *settled is whether the records are visible. A later epoch of
    the same leader, as when a follower dies, is no error: the records stay in its log."""
    cdef int16_t error
    settled[0] = False
    if not partition_is_led_since(table, p, wait.leader_epoch):
        return ERROR_NOT_LEADER_OR_FOLLOWER
    if partition_high_watermark(p) < wait.required:
        error = partition_error(table, p)
        return ERROR_REQUEST_TIMED_OUT if error == ERROR_NONE and expired else error
    if partition_isr_size_max(p) < partition_isr_size_min(p):
        return ERROR_NOT_ENOUGH_REPLICAS_AFTER_APPEND
    settled[0] = True
    return ERROR_NONE


cdef bint state_settle(State* state, const Request* request, Table* table, bint expired) noexcept nogil:
    cdef int32_t i
    cdef int slot = epoch_enter(table_epochs(table))
    cdef bint left = False
    cdef Wait* wait
    cdef Partition* p
    cdef int16_t error
    for i in range(state.wait_count):
        wait = &state.waits[i]
        if wait.settled:
            continue
        p = partition_again(
            table, wait.watch.topic_id, wait.watch.index, wait.watch.generation)
        if p != NULL and not expired and (
                not atomic_load_i32(<int32_t*>&wait.watch.linked)):
            partition_watch(table, p, &wait.watch)    # before the check, not after it
        error = ERROR_UNKNOWN_TOPIC_OR_PARTITION if p == NULL else _outcome(
            table, p, wait, expired, &wait.settled)
        wait.settled = wait.settled or error != ERROR_NONE
        if error and not state.response.failed:
            be16_store(state.response.data + wait.error_at, <uint32_t>error)
        if wait.settled:
            request_error(request, error)
        left |= not wait.settled
    epoch_leave(table_epochs(table), slot)
    return not left
