"""Verifies the first batch of a transaction in a partition with the transaction coordinator.

The network thread begins a verification in the partition's log (log_transactions.pyx), then asks
the table of transactional ids (transaction_steps.pyx). From version 12 of Produce on, the table
adds the partitions to the transaction (KIP-890, second part); while the id is busy, or the step
waits for its flush, the request waits and asks again. Before version 12 clients add partitions
themselves, and the question is whether a partition belongs to the transaction. The network thread
asks it only when the log does not expect the transaction: after a restart, or when the log expects
too many.

A client with transaction.version 2 writes on as soon as the end of its last transaction is decided;
its partition is added when that transaction is complete. The marker of that transaction may reach
the partition in between; `transaction_adds` then adds the partition again.

If another broker coordinates the id, the request asks that broker (AddPartitionsToTxn), and waits
for the answer until its own deadline. The producer gets an error code that its version of Produce
knows. Next on the data path: cext/coordinator/transaction_steps.pyx.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from barnabas.cext.codec.buffer cimport buffer_bytes, buffer_free, buffer_init
from barnabas.cext.codec.error_codes cimport (
    ERROR_CONCURRENT_TRANSACTIONS, ERROR_COORDINATOR_LOAD_IN_PROGRESS,
    ERROR_COORDINATOR_NOT_AVAILABLE, ERROR_INVALID_PRODUCER_EPOCH, ERROR_INVALID_TXN_STATE,
    ERROR_NETWORK_EXCEPTION, ERROR_NONE, ERROR_NOT_COORDINATOR, ERROR_NOT_ENOUGH_REPLICAS,
    ERROR_PRODUCER_FENCED, ERROR_TRANSACTION_ABORTABLE, ERROR_UNKNOWN_SERVER_ERROR, ERROR_UNKNOWN_TOPIC_OR_PARTITION,
)
from barnabas.cext.coordinator.durable_wait cimport durable_wait_by, durable_wait_end
from barnabas.cext.coordinator.remote_verification cimport remote_drop
from barnabas.cext.coordinator.transaction_state cimport Asked, AskedRow
from barnabas.cext.coordinator.transaction_steps cimport (
    asked_begin, Steps, transaction_adds, transaction_has,
)
from barnabas.cext.coordinator.transactional_ids cimport STEP_SETTLES
from barnabas.cext.log.log_transactions cimport (
    log_begin_verification, log_end_verification,
)
from barnabas.cext.memory.array cimport array_room
from barnabas.cext.memory.atomics cimport atomic_load_i64
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.partition.partitions cimport partition_again, table_epochs, watch_waits

cdef enum:
    NS_PER_MS = 1000000
    VERIFY_ABORTABLE_FROM = 11      # clients that know TRANSACTION_ABORTABLE


cdef VerifyWork* verify_new(
    Table* table, const Request* request, const uint8_t* transactional_id, int32_t id_bytes,
) noexcept nogil:
    cdef VerifyWork* work = <VerifyWork*>calloc(1, sizeof(VerifyWork))
    if work == NULL:
        return NULL
    work.table = table
    durable_wait_by(&work.wait, request)
    work.api_version = request.api_version
    work.id_bytes = id_bytes
    buffer_init(&work.names)
    buffer_bytes(&work.names, transactional_id, id_bytes)
    return work


cdef bint verify_ask_for(VerifyWork* work, Partition* partition, const uint8_t* records) noexcept nogil:
    cdef VerifyPart* part
    if not array_room(&work.parts, &work.part_capacity, work.part_count + 1, sizeof(VerifyPart)):
        return False
    part = &work.parts[work.part_count]
    memset(part, 0, sizeof(VerifyPart))
    part.records = records
    memcpy(part.topic_id, partition.topic_id, 16)
    part.index = partition.index
    part.generation = partition.generation
    part.name_at = work.names.size
    part.name_bytes = partition.topic_bytes
    buffer_bytes(&work.names, partition.topic, partition.topic_bytes)
    part.verification = log_begin_verification(
        partition.log, work.producer_id, work.api_version >= VERIFY_ADDS_FROM)
    if part.verification == 0:
        return False
    work.part_count += 1
    return not work.names.failed


cdef int16_t _for_client(int code, int16_t api_version) noexcept nogil:
    """Returns the error code that a producer receives, by the version of its Produce request."""
    if code == ERROR_PRODUCER_FENCED:
        return ERROR_INVALID_PRODUCER_EPOCH
    if code == ERROR_TRANSACTION_ABORTABLE and api_version < VERIFY_ABORTABLE_FROM:
        return ERROR_INVALID_TXN_STATE
    if code in (ERROR_CONCURRENT_TRANSACTIONS, ERROR_COORDINATOR_LOAD_IN_PROGRESS,
                ERROR_COORDINATOR_NOT_AVAILABLE, ERROR_NETWORK_EXCEPTION, ERROR_NOT_COORDINATOR):
        return ERROR_NOT_ENOUGH_REPLICAS    # clients send the batch again without new metadata
    return <int16_t>code


cdef struct Question:               # the arrays of a question, with one entry for each part
    AskedRow* rows
    Partition** partitions
    int64_t* verifications
    int16_t* codes

cdef bint _question(Question* question, int32_t count) noexcept nogil:
    """Allocates the arrays as one block, which begins at `partitions`. Returns False without memory."""
    cdef uint8_t* at = <uint8_t*>malloc(count * (
        sizeof(Partition*) + sizeof(AskedRow) + sizeof(int64_t) + sizeof(int16_t)))
    if at == NULL:
        return False
    question.partitions = <Partition**>at
    at += count * sizeof(Partition*)
    question.rows = <AskedRow*>at
    at += count * sizeof(AskedRow)
    question.verifications = <int64_t*>at
    question.codes = <int16_t*>(at + count * sizeof(int64_t))
    return True


cdef int _fill(VerifyWork* work, Question* question) noexcept nogil:
    """Finds each partition, inside an epoch. Returns 0 or an error code."""
    cdef VerifyPart* part
    cdef Partition* p
    cdef int32_t i
    for i in range(work.part_count):
        part = &work.parts[i]
        p = partition_again(work.table, part.topic_id, part.index, part.generation)
        if p == NULL or p.log == NULL:
            return ERROR_UNKNOWN_TOPIC_OR_PARTITION
        question.partitions[i], question.verifications[i] = p, part.verification
        question.rows[i].topic = work.names.data + part.name_at
        question.rows[i].topic_bytes, question.rows[i].index = part.name_bytes, part.index
        question.codes[i] = ERROR_NONE
    return ERROR_NONE


cdef int _ask(VerifyWork* work, Steps* transactions, Question* question) noexcept nogil:
    """Returns 0 and sets the codes, or an error code for all parts, or STEP_SETTLES."""
    cdef Asked asked
    cdef int slot = epoch_enter(table_epochs(work.table))
    cdef int code = _fill(work, question)
    if code == ERROR_NONE:
        asked_begin(
            &asked, work.names.data, work.id_bytes, work.producer_id, <int16_t>work.producer_epoch)
        asked.rows, asked.count = question.rows, work.part_count
        if work.api_version >= VERIFY_ADDS_FROM:
            code = transaction_adds(
                transactions, &asked, question.partitions, question.verifications, &work.wait,
                &work.remote)
        else:
            code = transaction_has(
                transactions, &asked, question.codes, &work.wait, &work.remote)
    epoch_leave(table_epochs(work.table), slot)
    return code


cdef bint verify_settles(VerifyWork* work, Steps* transactions, bint expired) noexcept nogil:
    cdef Question question
    cdef int code = ERROR_UNKNOWN_SERVER_ERROR
    cdef bint has_arrays = _question(&question, work.part_count)
    cdef int32_t i
    if has_arrays:
        code = _ask(work, transactions, &question)
    if code == STEP_SETTLES and not expired:
        free(question.partitions)
        return False
    if code == STEP_SETTLES:
        code = ERROR_CONCURRENT_TRANSACTIONS
    for i in range(work.part_count):
        work.parts[i].error = _for_client(
            question.codes[i] if code == ERROR_NONE else code, work.api_version)
    if has_arrays:
        free(question.partitions)
    return True


cdef int64_t verify_deadline_ns(VerifyWork* work, Steps* transactions, const Request* request, int64_t deadline_ns) noexcept nogil:
    if work.remote != NULL or watch_waits(&work.wait.watch):
        return deadline_ns
    return min(
        deadline_ns,
        request.received_ns + atomic_load_i64(&transactions.retry_max_ms) * NS_PER_MS)


cdef VerifyPart* verify_part(VerifyWork* work, const uint8_t* records) noexcept nogil:
    cdef int32_t i
    if work != NULL:
        for i in range(work.part_count):
            if work.parts[i].records == records:
                return &work.parts[i]
    return NULL


cdef void verify_drop(VerifyWork* work) noexcept nogil:
    cdef VerifyPart* part
    cdef Partition* p
    cdef int32_t i
    cdef int slot
    if work == NULL:
        return
    durable_wait_end(work.table, &work.wait)
    remote_drop(work.remote)
    slot = epoch_enter(table_epochs(work.table))
    for i in range(work.part_count):
        part = &work.parts[i]
        p = partition_again(work.table, part.topic_id, part.index, part.generation)
        if p != NULL and p.log != NULL:
            log_end_verification(p.log, part.verification)
    epoch_leave(table_epochs(work.table), slot)
    free(work.parts)
    buffer_free(&work.names)
    free(work)
