"""The native handler of Produce, versions 0 to 13: it parses, checks and appends without the GIL.

    ProduceRequest   transactionalId (3+), acks, timeoutMs, [topic name | id from 13, [index, records]]
    ProduceResponse  [topic, [index, error, base offset, append time (2+), log start (5+),
                     record errors and message (8+), tag 0 current leader (10+)]], throttle time (1+)

The handler makes two passes over a request. The first pass finds damage (then it closes the
connection before any append), transactional records, and batches that only Python can decompress:
those become decode jobs, and the request waits. The second pass checks and appends, partition by
partition in the request's order, and writes the response. Partitions that then still wait
(acks=all, below the high watermark) have watches; if one fails, the handler patches only its error
code in the complete response, so a timed-out partition still has its base offset, as in Kafka.

Transactional records without a transactional id, or without the right to write with it, fail the
whole request with TRANSACTIONAL_ID_AUTHORIZATION_FAILED. The handler skips topics that the client
may not write to in all later steps (cext/network/permissions.pyx). A request that waits before its
append begins again when a rule has changed. At the first batch of a transaction in a partition, the
table of transactional ids confirms that the partition belongs to the transaction, or adds it
(cext/produce/transaction_check.pyx); the request waits while the id is busy. For later batches the
transaction is open in the log. The response names the current leader by id and epoch; nodeEndpoints
stays empty, because clients get the addresses from Metadata.

The handler never answers acks=0; an error in such a request closes the connection. The topic's
settings at the first pass decide whether a batch needs a decode job; if they have changed by the
second pass, or if the queue of jobs was full, the answer is REQUEST_TIMED_OUT, which producers
retry. The response has the error messages and record indexes of Kafka 4.3.1
(tests/oracle/produce.py has Kafka's answers).

Versions 0 to 2 carry messages of the formats 0 and 1, or a batch. As in Kafka an entry that is cut
off at the end is left out, and a partition without a whole entry succeeds without an append. The
broker stores format 2: this thread converts plain messages (cext/record/conversion.pyx), decode jobs
those that are compressed or that the topic compresses (docs/decisions/old-formats.md).

Limits: the remaining bytes bound every count; max.message.bytes; max.decompressed.bytes.
Next on the data path: cext/record/validate.pyx, cext/partition/partitions.pyx, cext/log/log.pyx.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_free, buffer_i32, buffer_i8, buffer_init,
)
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i16, cursor_i32, cursor_left, cursor_of, cursor_take, cursor_uvarint,
)
from barnabas.cext.codec.endian cimport be16_load
from barnabas.cext.codec.error_codes cimport (
    ERROR_NONE, ERROR_UNKNOWN_SERVER_ERROR, ERROR_CORRUPT_MESSAGE, ERROR_UNKNOWN_TOPIC_OR_PARTITION,
    ERROR_NOT_LEADER_OR_FOLLOWER, ERROR_REQUEST_TIMED_OUT, ERROR_MESSAGE_TOO_LARGE,
    ERROR_INVALID_TOPIC, ERROR_NOT_ENOUGH_REPLICAS, ERROR_INVALID_REQUIRED_ACKS,
    ERROR_OUT_OF_ORDER_SEQUENCE_NUMBER, ERROR_INVALID_PRODUCER_EPOCH, ERROR_INVALID_TXN_STATE,
    ERROR_INVALID_PRODUCER_ID_MAPPING, ERROR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ERROR_KAFKA_STORAGE_ERROR, ERROR_UNKNOWN_PRODUCER_ID, ERROR_UNSUPPORTED_COMPRESSION_TYPE,
    ERROR_INVALID_RECORD,
)
from barnabas.cext.codec.fields cimport write_count, write_string
from barnabas.cext.codec.inflate cimport (
    INFLATE_NO_MEMORY, INFLATE_OK, INFLATE_TOO_LARGE, Inflated, inflated_free, inflated_init,
    inflated_reset,
)
from barnabas.cext.coordinator.transaction_steps cimport Steps, TransactionSteps
from barnabas.cext.log.log cimport Appended, log_append, log_append_verified, log_start_offset
from barnabas.cext.log.log_transactions cimport log_knows_transaction
from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_load_i32, atomic_load_pointer, atomic_store_i32,
)
from barnabas.cext.memory.condition cimport monotonic_now_ns
from barnabas.cext.memory.counters cimport (
    COUNT_BYTES_REJECTED, COUNT_PRODUCE_CONVERSIONS, COUNT_PRODUCES, COUNT_PRODUCES_FAILED, counters_of,
    produce_error_is_expected, COUNT_BATCHES, COUNT_BYTES, COUNT_DUPLICATES, COUNT_MESSAGES,
    COUNT_REJECTED_CODEC, COUNT_REJECTED_CORRUPT, COUNT_REJECTED_INVALID, COUNT_REJECTED_OTHER,
    COUNT_REJECTED_SEQUENCE, COUNT_REJECTED_TOO_LARGE,
)
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.job_queue cimport Jobs
from barnabas.cext.memory.sys cimport System
from barnabas.cext.memory.waker cimport Waker
from barnabas.cext.network.handler cimport (
    HANDLER_CLOSE, HANDLER_DONE, HANDLER_PARKED, handler_parks, HANDLER_PYTHON, HANDLER_SILENT,
    NativeHandler, Parked, Request, request_error, Response, response_begin, response_end,
    response_free, response_init,
)
from barnabas.cext.network.permissions cimport (
    OPERATION_WRITE, permission_ask, PERMISSION_ALLOWED, permission_begin, PERMISSION_DENIED,
    permission_moved, PERMISSION_UNKNOWN, RESOURCE_TRANSACTIONAL_ID,
)
from barnabas.cext.network.topic_permission cimport topic_refusal
from barnabas.cext.partition.partitions cimport (
    LOCAL_THREAD, Partition, partition_appended, partition_error, partition_find, partition_find_id,
    partition_high_watermark, partition_isr_size_min, Table, table_bind_waker, table_epochs,
    table_local_wakes, table_of, table_system, table_wait_local,
)
from barnabas.cext.partition.topics cimport ProducePolicy
from barnabas.cext.produce.decode cimport (
    decode_abandon, decode_group_init, decode_pending, decode_result, decode_submit,
    decode_submit_old, DecodeGroup, DecodeQueue, DecodeWork,
)
from barnabas.cext.produce.delayed_produce cimport (
    PRODUCE_DECODING, PRODUCE_VERIFYING, PRODUCE_VISIBLE, State, state_free, state_settle,
    state_wait_for, Wait,
)
from barnabas.cext.produce.request cimport (
    VERSION_BATCHES, VERSION_FLEXIBLE, Walk, walk_begin, walk_partition, walk_tags, walk_topic,
)
from barnabas.cext.produce.response cimport Answer, produce_write
from barnabas.cext.produce.transaction_check cimport (
    VERIFY_ADDS_FROM, verify_ask_for, verify_deadline_ns, verify_drop, verify_new, verify_part,
    verify_settles, VerifyPart, VerifyWork,
)
from barnabas.cext.record.conversion cimport (
    MessageSet, batch_seal, message_set_accept, message_set_frame, message_set_up,
)
from barnabas.cext.record.record_walk cimport compressed_check
from barnabas.cext.record.records cimport (
    AT_ATTRIBUTES, AT_MAGIC, ATTR_CODEC_MASK, ATTR_TRANSACTIONAL, BATCH_OVERHEAD, RECORDS_OK,
    batch_header, batch_size, BatchHeader,
)
from barnabas.cext.record.validate cimport (
    batch_correct, batch_frame_error, batch_head_check, body_check, BodyRules, Verdict, verdict_of,
)

cdef enum:
    KEY_PRODUCE = 0
    VERSION_FIRST = 0
    VERSION_WITH_THROTTLE_TIME = 1
    VERSION_LAST = 13
    SCRATCHES = 64                  # network threads that keep memory for decompression
    SCRATCH_KEEP_BYTES = 1 << 20    # memory kept after an unusually large batch
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_ZSTD = 4
    ANY_CODEC = 7                   # a version of Produce in which batches may have every codec

cdef struct Core:                  # what one handler shares between its threads
    Table* table
    Jobs* jobs
    Steps* transactions   # NULL: this broker coordinates no transactions
    int32_t verifies                # atomic: transaction.partition.verification.enable
    Inflated scratch[SCRATCHES]

cdef struct Rights:                 # the rights of a client by the present rules
    int outcome                     # the largest of the answers of permission_ask
    int16_t refuse_all              # an error for every partition
    uint8_t* refused                # of topics, as in State

cdef struct Serving:                # the second pass
    Core* core
    Request* request
    Response* out
    State* state
    Inflated* scratch
    Verdict verdict
    int64_t now_ms
    int16_t refuse_all              # an error for every partition
    int64_t* counts                 # counters of the current topic; NULL: not counted
    Buffer converted                # the batch of a message set that this thread has converted
    bint failed


cdef inline bint _verifies(Core* core, int16_t version) noexcept nogil:
    """Returns whether transactions are verified. In versions that add partitions with the batch,
    they always are: the client sends no AddPartitionsToTxn."""
    return version >= VERIFY_ADDS_FROM or atomic_load_i32(&core.verifies)

cdef Partition* _find(Table* table, const Walk* w, int16_t* error) noexcept nogil:
    cdef Partition* p
    if w.by_id:
        return partition_find_id(table, w.topic_id, w.index, error)
    p = partition_find(table, w.topic, w.topic_bytes, w.index)
    error[0] = ERROR_UNKNOWN_TOPIC_OR_PARTITION if p == NULL else ERROR_NONE
    return p


# -------------------------------------------------------------------------------- checks of a batch

cdef inline bint _needs_job(const BatchHeader* h, const ProducePolicy* policy) noexcept nogil:
    cdef int codec = h.attributes & ATTR_CODEC_MASK
    return (codec == CODEC_GZIP or codec == CODEC_ZSTD or policy.produce_intercepted
            or (policy.codec >= 0 and policy.codec != codec))

cdef inline ProducePolicy* _policy(Partition* p) noexcept nogil:
    return <ProducePolicy*>atomic_load_pointer(<void**>&p.policy)

cdef inline BodyRules _rules(const ProducePolicy* policy, int64_t now_ms) noexcept nogil:
    cdef BodyRules rules
    rules.now_ms = now_ms
    rules.timestamp_before_max_ms = policy.timestamp_before_max_ms
    rules.timestamp_after_max_ms = policy.timestamp_after_max_ms
    rules.append_time = policy.append_time
    rules.requires_keys = policy.requires_keys
    return rules

cdef inline int _old_set(Walk* w, MessageSet* found) noexcept nogil:
    """Cuts the partition's records of Produce 0 to 2 to their whole entries, and returns the format
    of the first: 2 for batches, also in later versions; -1: there is none."""
    if w.version >= VERSION_BATCHES:
        return 2
    message_set_frame(w.records, w.records_bytes, found)
    if not found.is_damaged:
        w.records_bytes = found.size_bytes
    return found.magic

cdef inline int16_t _rules_version(const Walk* w) noexcept nogil:
    """Returns the version whose rules for codecs a batch must keep: versions 0 to 2 have none."""
    return w.version if w.version >= VERSION_BATCHES else ANY_CODEC

cdef inline int _codec_of_converted(const MessageSet* found, const ProducePolicy* policy) noexcept nogil:
    return policy.codec if policy.codec >= 0 else found.codec

cdef inline bint _old_needs_job(const MessageSet* found, const ProducePolicy* policy) noexcept nogil:
    return found.codec or policy.codec > 0 or policy.produce_intercepted

cdef void _open_check(Serving* s, const uint8_t* batch, const BatchHeader* h, const BodyRules* rules, int64_t size_max) noexcept nogil:
    """Checks the records of a batch that this thread can decompress itself."""
    cdef const uint8_t* body = batch + BATCH_OVERHEAD
    cdef int64_t size = batch_size(h) - BATCH_OVERHEAD
    cdef int codec = h.attributes & ATTR_CODEC_MASK
    cdef int status
    if codec == 0:
        body_check(body, size, h, rules, &s.verdict)
        return
    status = compressed_check(s.scratch, codec, body, size, size_max, h, rules, &s.verdict)
    if status == INFLATE_TOO_LARGE:
        verdict_of(&s.verdict, ERROR_MESSAGE_TOO_LARGE, COUNT_REJECTED_TOO_LARGE,
                   b"The batch inflates to more than max.decompressed.bytes")
    elif status == INFLATE_NO_MEMORY:
        verdict_of(&s.verdict, ERROR_UNKNOWN_SERVER_ERROR, COUNT_REJECTED_OTHER, NULL)
    elif status != INFLATE_OK:
        verdict_of(&s.verdict, ERROR_CORRUPT_MESSAGE, COUNT_REJECTED_CORRUPT, NULL)
    inflated_reset(s.scratch, SCRATCH_KEEP_BYTES)


# ----------------------------------------------------------------------------------- rights

cdef inline int16_t _refusal(const State* state, int64_t topic) noexcept nogil:
    """Returns the error code of all partitions of the request's topic; 0: none."""
    return ERROR_NONE if state == NULL or state.refused == NULL else state.refused[topic]

cdef bint _check_topics(Core* core, Request* request, Walk* w, Rights* rights) noexcept nogil:
    """Returns False if memory ran out."""
    cdef int64_t topics = walk_begin(w, request), partitions, i, k
    cdef int16_t error
    for i in range(topics):
        partitions = walk_topic(w)
        error = topic_refusal(
            request, OPERATION_WRITE, core.table, w.by_id, w.topic_id, w.topic, w.topic_bytes,
            &rights.outcome)
        if error != ERROR_NONE:
            if rights.refused == NULL:
                rights.refused = <uint8_t*>calloc(topics, 1)
                if rights.refused == NULL:
                    return False
            rights.refused[i] = <uint8_t>error
        for k in range(partitions):
            walk_partition(w)
        walk_tags(w)
    return True

cdef bint _check_rights(Core* core, Request* request, Walk* w, bint transactional, Rights* rights) noexcept nogil:
    """Asks for all rights at once, in Kafka's order. Returns False if memory ran out."""
    cdef int answer = PERMISSION_ALLOWED
    cdef bint checked
    cdef int slot
    rights.outcome, rights.refuse_all, rights.refused = PERMISSION_ALLOWED, ERROR_NONE, NULL
    permission_begin(request)
    if transactional:
        answer = permission_ask(
            request, OPERATION_WRITE, RESOURCE_TRANSACTIONAL_ID, w.transactional_id,
            w.transactional_id_bytes)
        if answer == PERMISSION_DENIED:
            rights.refuse_all = ERROR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return True
    slot = epoch_enter(table_epochs(core.table))
    checked = _check_topics(core, request, w, rights)
    epoch_leave(table_epochs(core.table), slot)
    rights.outcome = max(rights.outcome, answer)
    return checked


# ----------------------------------------------------------------------------------- the first pass

cdef int _scan(Core* core, Request* request, Walk* w, State* state, bint* transactional) noexcept nogil:
    """Finds damage (HANDLER_CLOSE) before any append. With a state, it queues decode jobs in the
    state's group."""
    cdef int64_t topics, partitions, i, k
    cdef BatchHeader h
    cdef MessageSet found
    cdef int magic
    cdef bint wanted = False
    topics = walk_begin(w, request)
    for i in range(topics):
        if w.c.bad:
            break
        partitions = walk_topic(w)
        for k in range(partitions):
            walk_partition(w)
            if w.c.bad:
                break
            magic = _old_set(w, &found)
            if magic == 0 or magic == 1:
                if _refusal(state, i) == ERROR_NONE:
                    wanted |= _old_job(core, w, &found, NULL if state == NULL else &state.group)
            elif w.records_bytes > BATCH_OVERHEAD and w.records[AT_MAGIC] == 2:
                if be16_load(w.records + AT_ATTRIBUTES) & ATTR_TRANSACTIONAL:
                    transactional[0] = True
                if _refusal(state, i) == ERROR_NONE:
                    wanted |= _job(core, w, &h, NULL if state == NULL else &state.group)
        walk_tags(w)
    walk_tags(w)
    if w.c.bad or cursor_left(&w.c):
        return HANDLER_CLOSE
    return HANDLER_PARKED if wanted else HANDLER_DONE

cdef bint _job(Core* core, const Walk* w, BatchHeader* h, DecodeGroup* group) noexcept nogil:
    """Returns whether the batch needs a decode job; with a group, also queues the job."""
    cdef int16_t error
    cdef const char* message
    cdef const ProducePolicy* policy
    cdef Verdict verdict
    cdef BodyRules rules
    cdef System* system
    cdef Partition* p
    p = _find(core.table, w, &error)
    if p == NULL or partition_error(core.table, p) or batch_frame_error(
            w.records, w.records_bytes, _rules_version(w), h, &message):
        return False
    policy = _policy(p)
    if not _needs_job(h, policy):
        return False
    if group == NULL:
        return True
    if not batch_head_check(w.records, h, policy.message_bytes_max, &verdict):
        return False
    system = table_system(core.table)
    rules = _rules(policy, system.wall_ms(system))
    return decode_submit(
        core.jobs, group, w.records, h, &rules,
        policy.codec if policy.codec >= 0 and policy.codec != (h.attributes & ATTR_CODEC_MASK) else -1,
        policy, p if policy.produce_intercepted else NULL)

cdef bint _old_job(Core* core, const Walk* w, const MessageSet* found, DecodeGroup* group) noexcept nogil:
    """The same for a message set of format 0 or 1."""
    cdef int16_t error
    cdef const ProducePolicy* policy
    cdef Verdict verdict
    cdef BodyRules rules
    cdef System* system
    cdef Partition* p = _find(core.table, w, &error)
    if p == NULL or partition_error(core.table, p):
        return False
    policy = _policy(p)
    if policy.internal or not _old_needs_job(found, policy):
        return False
    if group == NULL:
        return True
    if not message_set_accept(w.records, found, policy.message_bytes_max, &verdict):
        return False
    system = table_system(core.table)
    rules = _rules(policy, system.wall_ms(system))
    return decode_submit_old(
        core.jobs, group, w.records, found, &rules, _codec_of_converted(found, policy),
        policy, p if policy.produce_intercepted else NULL)


# ---------------------------------------------------------------------------------- the second pass

cdef inline void _count(Serving* s, int what, int64_t n) noexcept nogil:
    if s.counts != NULL:
        atomic_add_i64(&s.counts[what], n)

cdef bint _wait_for(Serving* s, Partition* p, int64_t required, int32_t leader_epoch) noexcept nogil:
    """Adds a wait for a partition that is not visible yet; _write sets its error_at."""
    if s.state == NULL:
        s.state = <State*>calloc(1, sizeof(State))
    return s.state != NULL and state_wait_for(
        s.state, s.request, p, required, leader_epoch) != NULL

cdef inline int32_t _append_reason(int error) noexcept nogil:
    if (error == ERROR_OUT_OF_ORDER_SEQUENCE_NUMBER or error == ERROR_INVALID_PRODUCER_EPOCH
            or error == ERROR_UNKNOWN_PRODUCER_ID or error == ERROR_INVALID_TXN_STATE):
        return COUNT_REJECTED_SEQUENCE
    return COUNT_REJECTED_OTHER

cdef bint _accept(Serving* s, Walk* w, Partition* p, uint8_t** batch, BatchHeader* h) noexcept nogil:
    """Makes all checks of a leader. True: append *batch, which is corrected; False: s.verdict has
    the error."""
    cdef const ProducePolicy* policy = _policy(p)
    cdef BodyRules rules = _rules(policy, s.now_ms)
    cdef int64_t made_bytes = 0
    if not _is_open(s, policy):
        return False
    if not batch_head_check(w.records, h, policy.message_bytes_max, &s.verdict):
        return False
    if not _needs_job(h, policy):
        _open_check(s, batch[0], h, &rules, policy.decompressed_bytes_max)
    elif _take_result(s, w, policy, batch, &made_bytes) and made_bytes > policy.message_bytes_max:
        verdict_of(&s.verdict, ERROR_MESSAGE_TOO_LARGE, COUNT_REJECTED_TOO_LARGE, NULL)
    if s.verdict.error != ERROR_NONE:
        return False
    if made_bytes:
        batch_header(batch[0], made_bytes, h)
    batch_correct(batch[0], h, &rules, s.verdict.max_timestamp)
    return True

cdef bint _is_open(Serving* s, const ProducePolicy* policy) noexcept nogil:
    """Returns whether clients may write to the topic; if not, s.verdict has the error."""
    if policy.internal:
        verdict_of(&s.verdict, ERROR_INVALID_TOPIC, COUNT_REJECTED_OTHER,
                   b"Clients do not write to an internal topic")
    return not policy.internal

cdef bint _take_result(Serving* s, const Walk* w, const ProducePolicy* policy, uint8_t** batch, int64_t* made_bytes) noexcept nogil:
    """Takes the verdict of the decode job, and the batch that it made, if it made one."""
    cdef DecodeWork* work = NULL if s.state == NULL else decode_result(&s.state.group, w.records)
    if work == NULL:
        verdict_of(&s.verdict, ERROR_REQUEST_TIMED_OUT, COUNT_REJECTED_OTHER,
                   b"The batch waits to be opened; try again")
        return False
    s.verdict = work.verdict
    s.request.conversion_ns += work.conversion_ns
    s.request.conversion_bytes += work.conversion_bytes
    if s.verdict.error == ERROR_NONE and work.made != NULL:
        batch[0] = work.made
        made_bytes[0] = work.made_bytes
    return s.verdict.error == ERROR_NONE

cdef bint _convert(Serving* s, const Walk* w, const MessageSet* found, const BodyRules* rules) noexcept nogil:
    """Converts plain messages into s.converted and checks their records."""
    cdef BatchHeader h
    cdef int64_t began_ns = monotonic_now_ns()
    s.converted.size = 0
    if not message_set_up(
            &s.converted, w.records, found.size_bytes, found.magic, NULL, rules, &s.verdict):
        return False
    batch_seal(s.converted.data, s.converted.size)
    s.request.conversion_ns += max(monotonic_now_ns() - began_ns, 1)
    s.request.conversion_bytes += s.converted.size
    batch_header(s.converted.data, s.converted.size, &h)
    body_check(
        s.converted.data + BATCH_OVERHEAD, s.converted.size - BATCH_OVERHEAD, &h, rules, &s.verdict)
    return s.verdict.error == ERROR_NONE

cdef bint _accept_old(Serving* s, const Walk* w, Partition* p, const MessageSet* found, uint8_t** batch, BatchHeader* h) noexcept nogil:
    """Does what _accept does, for a message set of format 0 or 1: *batch is what it becomes."""
    cdef const ProducePolicy* policy = _policy(p)
    cdef BodyRules rules = _rules(policy, s.now_ms)
    cdef int64_t made_bytes = 0
    if not _is_open(s, policy) or not message_set_accept(
            w.records, found, policy.message_bytes_max, &s.verdict):
        return False
    if _old_needs_job(found, policy):
        if not _take_result(s, w, policy, batch, &made_bytes):
            return False
    else:
        if not _convert(s, w, found, &rules):
            return False
        batch[0] = s.converted.data
        made_bytes = s.converted.size
    if made_bytes > policy.message_bytes_max:
        verdict_of(&s.verdict, ERROR_MESSAGE_TOO_LARGE, COUNT_REJECTED_TOO_LARGE, NULL)
        return False
    batch_header(batch[0], made_bytes, h)
    batch_correct(batch[0], h, &rules, s.verdict.max_timestamp)
    _count(s, COUNT_PRODUCE_CONVERSIONS, h.record_count)
    return True

cdef void _append(Serving* s, Walk* w, Partition* p, BatchHeader* h, const MessageSet* old, Answer* a) noexcept nogil:
    """Checks and appends. `old`: the message set in place of the batch h; NULL: there is none."""
    cdef uint8_t* batch = <uint8_t*>w.records
    cdef Appended appended
    cdef VerifyPart* asked = NULL
    cdef int64_t verification = 0
    cdef int32_t leader_epoch = atomic_load_i32(&p.leader_epoch)
    cdef int error
    cdef bint accepted
    if old == NULL and h.attributes & ATTR_TRANSACTIONAL and s.state != NULL:
        asked = verify_part(s.state.verify, w.records)
    if asked != NULL:
        verification = asked.verification
        if asked.error != ERROR_NONE:
            a.error = asked.error
            _count(s, COUNT_REJECTED_SEQUENCE, 1)
            return
    if old == NULL:
        accepted = _accept(s, w, p, &batch, h)
    else:
        accepted = _accept_old(s, w, p, old, &batch, h)
    if not accepted:
        a.error = s.verdict.error
        if a.error != ERROR_CORRUPT_MESSAGE and a.error != ERROR_MESSAGE_TOO_LARGE:
            a.log_start = log_start_offset(p.log)       # as in Kafka
        _count(s, s.verdict.reason, 1)
        if s.verdict.reason == COUNT_REJECTED_TOO_LARGE:
            _count(s, COUNT_BYTES_REJECTED, w.records_bytes)
        return
    if _verifies(s.core, w.version):
        error = log_append_verified(
            p.log, batch, batch_size(h), h, leader_epoch, verification, &appended)
    else:
        error = log_append(p.log, batch, batch_size(h), h, leader_epoch, &appended)
    if error:
        a.error = <int16_t>error
        _count(s, _append_reason(error), 1)
        return
    a.base_offset = appended.first_offset
    a.log_start = appended.log_start_offset
    if appended.duplicate:
        _count(s, COUNT_DUPLICATES, 1)
    else:
        if _policy(p).append_time:
            a.append_time_ms = s.now_ms
        _count(s, COUNT_BATCHES, 1)
        _count(s, COUNT_MESSAGES, h.record_count)
        _count(s, COUNT_BYTES, batch_size(h))
    partition_appended(s.core.table, p, w.acks == -1)
    if w.acks == -1 and partition_high_watermark(p) <= appended.last_offset:
        if not _wait_for(s, p, appended.last_offset + 1, leader_epoch):
            s.failed = True

cdef void _produce(Serving* s, Walk* w, Answer* a) noexcept nogil:
    """Handles one partition of the request."""
    cdef BatchHeader h
    cdef MessageSet found
    cdef const char* message = NULL
    cdef bint old
    cdef Partition* p = _find(s.core.table, w, &a.error)
    if p == NULL:
        return
    s.counts = counters_of(p.counters, s.request.thread_index)
    _count(s, COUNT_PRODUCES, 1)
    old = w.version < VERSION_BATCHES and w.records != NULL and (
        _old_set(w, &found) != 2 or found.is_damaged or found.entry_count > 1)
    if not old:
        a.error = batch_frame_error(
            w.records, w.records_bytes, _rules_version(w), &h, &message)
    if a.error:
        s.verdict.message = message
        _count(s, (
            COUNT_REJECTED_CODEC if a.error == ERROR_UNSUPPORTED_COMPRESSION_TYPE
            else COUNT_REJECTED_CORRUPT if a.error == ERROR_CORRUPT_MESSAGE
            else COUNT_REJECTED_INVALID), 1)
        return
    if w.acks < -1 or w.acks > 1:
        a.error = ERROR_INVALID_REQUIRED_ACKS
        return
    a.error = partition_error(s.core.table, p)
    if a.error == ERROR_NOT_LEADER_OR_FOLLOWER:
        a.leader_id = atomic_load_i32(&p.leader_id)
        a.leader_epoch = atomic_load_i32(&p.leader_epoch)
    elif a.error == ERROR_NONE and w.acks == -1 and (
            atomic_load_i32(&p.isr_count) < partition_isr_size_min(p)):
        a.error = ERROR_NOT_ENOUGH_REPLICAS
    if a.error:
        _count(s, COUNT_REJECTED_OTHER, 1)
        return
    if old and found.entry_count == 0 and not found.is_damaged:
        return                      # as in Kafka
    _append(s, w, p, &h, &found if old else NULL, a)

cdef void _write(Serving* s, const Walk* w, const Answer* a) noexcept nogil:
    cdef int64_t error_at = produce_write(&s.out.bytes, w, a, &s.verdict)
    cdef Wait* wait
    cdef bint waits = False         # then its error is counted later, when it is known
    if s.state != NULL and s.state.wait_count:
        wait = &s.state.waits[s.state.wait_count - 1]
        if wait.error_at < 0:
            wait.error_at = error_at
            waits = True
    if not waits:
        request_error(s.request, a.error)

cdef bint _serve(Serving* s, Walk* w) noexcept nogil:
    """Appends and writes the response; returns whether any partition has an error."""
    cdef int64_t topics, partitions, i, k
    cdef Answer a
    cdef Buffer* b = &s.out.bytes
    cdef bint wrong = False
    cdef System* system = table_system(s.core.table)
    cdef int slot = epoch_enter(table_epochs(s.core.table))
    s.now_ms = system.wall_ms(system)
    topics = walk_begin(w, s.request)
    response_begin(s.out, s.request.correlation_id, w.flexible)
    write_count(b, w.flexible, topics)
    for i in range(topics):
        partitions = walk_topic(w)
        if w.by_id:
            buffer_bytes(b, w.topic_id, 16)
        else:
            write_string(b, w.flexible, w.topic, w.topic_bytes)
        write_count(b, w.flexible, partitions)
        for k in range(partitions):
            walk_partition(w)
            a.error = s.refuse_all
            a.base_offset = a.append_time_ms = a.log_start = -1
            a.leader_id = a.leader_epoch = -1
            if a.error == ERROR_NONE:
                a.error = _refusal(s.state, i)
            verdict_of(&s.verdict, ERROR_NONE, 0, NULL)
            s.counts = NULL
            if a.error == ERROR_NONE:
                _produce(s, w, &a)
                if a.error and not produce_error_is_expected(a.error):
                    _count(s, COUNT_PRODUCES_FAILED, 1)
            wrong |= a.error != ERROR_NONE
            _write(s, w, &a)
        walk_tags(w)
        if w.flexible:
            buffer_i8(b, 0)
    if w.version >= VERSION_WITH_THROTTLE_TIME:
        buffer_i32(b, 0)            # throttle time
    if w.flexible:
        buffer_i8(b, 0)
    epoch_leave(table_epochs(s.core.table), slot)
    return wrong


# ------------------------------------------------------------------ waiting, the native handler

cdef State* _state(int64_t deadline_ns) noexcept nogil:
    cdef State* state = <State*>calloc(1, sizeof(State))
    if state != NULL:
        state.deadline_ns = deadline_ns
    return state

cdef void _drop(Core* core, State* state) noexcept nogil:
    state_free(state, core.table, core.jobs)

cdef int _finish(Core* core, Response* out, State* state) noexcept nogil:
    """Finishes a request whose response is complete, in `out` or in the state."""
    if state != NULL and state.response.data != NULL:
        buffer_free(&out.bytes)
        out.bytes = state.response
        buffer_init(&state.response)
    _drop(core, state)
    if out.bytes.failed:
        return HANDLER_CLOSE
    response_end(out)
    return HANDLER_DONE

cdef int _go_on(Core* core, Request* request, Response* out, Parked* parked, State* state, int16_t refuse_all, int64_t deadline_ns) noexcept nogil:
    """Makes the second pass, then answers or waits; takes over the state."""
    cdef Serving s
    cdef Walk w
    cdef Inflated own
    cdef bint wrong
    s.core = core
    s.request = request
    s.out = out
    s.state = state
    s.refuse_all = refuse_all
    s.failed = False
    buffer_init(&s.converted)
    if 0 <= request.thread_index < SCRATCHES:
        s.scratch = &core.scratch[request.thread_index]
    else:
        inflated_init(&own)
        s.scratch = &own
    wrong = _serve(&s, &w)
    if s.scratch == &own:
        inflated_free(&own)
    if s.converted.data != NULL:
        buffer_free(&s.converted)
    state = s.state
    if state != NULL:
        verify_drop(state.verify)     # its batches are appended or refused
        state.verify = NULL
    if s.failed:
        _drop(core, state)
        return HANDLER_CLOSE
    if w.acks == 0:
        _drop(core, state)
        return HANDLER_CLOSE if wrong else HANDLER_SILENT
    if state == NULL or state.wait_count == 0 or out.bytes.failed:
        return _finish(core, out, state)
    decode_abandon(core.jobs, &state.group)
    state.phase = PRODUCE_VISIBLE
    state.response = out.bytes
    buffer_init(&out.bytes)
    state.deadline_ns = deadline_ns
    if state_settle(state, request, core.table, False):
        return _finish(core, out, state)
    return handler_parks(parked, state, deadline_ns)

cdef bint _ask(Core* core, const Request* request, Walk* w, State* state, int16_t* refuse_all) noexcept nogil:
    """Adds a question for each transactional batch whose partition does not have its transaction.
    All batches of a request have one producer. Returns False if memory ran out."""
    cdef int64_t topics, partitions, i, k
    cdef BatchHeader h
    cdef MessageSet found
    cdef Partition* p
    cdef VerifyWork* work = state.verify
    cdef int16_t error
    topics = walk_begin(w, request)
    for i in range(topics):
        partitions = walk_topic(w)
        for k in range(partitions):
            walk_partition(w)
            _old_set(w, &found)
            if _refusal(state, i) != ERROR_NONE or (
                    w.records_bytes <= BATCH_OVERHEAD) or w.records[AT_MAGIC] != 2 or (
                    batch_header(w.records, w.records_bytes, &h) != RECORDS_OK) or (
                    not h.attributes & ATTR_TRANSACTIONAL) or h.producer_id < 0:
                continue
            if work == NULL:
                work = state.verify = verify_new(
                    core.table, request, w.transactional_id, w.transactional_id_bytes)
                if work == NULL:
                    return False
                work.producer_id = h.producer_id
                work.producer_epoch = h.producer_epoch
            elif work.producer_id != h.producer_id or work.producer_epoch != h.producer_epoch:
                refuse_all[0] = ERROR_INVALID_PRODUCER_ID_MAPPING
                return True
            p = _find(core.table, w, &error)
            if p != NULL and partition_error(core.table, p) == ERROR_NONE and (
                    not log_knows_transaction(p.log, &h)) and not verify_ask_for(work, p, w.records):
                return False
        walk_tags(w)
    return True

cdef int _verify(Core* core, Request* request, Response* out, Parked* parked, Walk* w, State* state) noexcept nogil:
    """Handles a request with transactional records; it waits while its transactional id is busy.
    Takes over the state."""
    cdef int16_t refuse_all = ERROR_NONE
    cdef bint asked
    cdef int slot = epoch_enter(table_epochs(core.table))
    asked = _ask(core, request, w, state, &refuse_all)
    epoch_leave(table_epochs(core.table), slot)
    if not asked:
        _drop(core, state)
        return HANDLER_CLOSE
    if refuse_all:
        return _go_on(core, request, out, parked, state, refuse_all, state.deadline_ns)
    return _confirm(core, request, out, parked, w, state, False)

cdef int _confirm(Core* core, Request* request, Response* out, Parked* parked, Walk* w, State* state, bint expired) noexcept nogil:
    """Asks the transaction coordinator; takes over the state."""
    if state.verify == NULL or state.verify.part_count == 0 or verify_settles(
            state.verify, core.transactions, expired):
        return _decode(core, request, out, parked, w, state)
    state.phase = PRODUCE_VERIFYING
    return handler_parks(
        parked, state,
        verify_deadline_ns(state.verify, core.transactions, request, state.deadline_ns), True)

cdef int _decode(Core* core, Request* request, Response* out, Parked* parked, Walk* w, State* state) noexcept nogil:
    """Waits while Python decompresses batches, if it must; takes over the state."""
    cdef bint transactional = False
    cdef int slot
    decode_group_init(&state.group, core.table, request.thread_index, request.connection_id)
    slot = epoch_enter(table_epochs(core.table))
    _scan(core, request, w, state, &transactional)
    epoch_leave(table_epochs(core.table), slot)
    if state.group.first == NULL:
        return _go_on(core, request, out, parked, state, ERROR_NONE, state.deadline_ns)
    state.phase = PRODUCE_DECODING
    return handler_parks(parked, state, state.deadline_ns, True)

cdef int _handle(void* context, Request* request, Response* out, Parked* parked) noexcept nogil:
    cdef Core* core = <Core*>context
    cdef Walk w
    cdef Rights rights
    cdef State* state = NULL
    cdef bint transactional = False
    cdef int64_t deadline_ns
    cdef int slot = epoch_enter(table_epochs(core.table))
    cdef int found = _scan(core, request, &w, NULL, &transactional)
    epoch_leave(table_epochs(core.table), slot)
    if found == HANDLER_CLOSE:
        return HANDLER_CLOSE
    deadline_ns = request.received_ns + (
        <int64_t>w.timeout_ms * 1000000 if w.timeout_ms > 0 else 0)
    if transactional and w.transactional_id == NULL:
        return _go_on(core, request, out, parked, NULL,
                      ERROR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, deadline_ns)
    if request.permissions != NULL:
        if not _check_rights(core, request, &w, transactional, &rights):
            return HANDLER_CLOSE
        if rights.outcome == PERMISSION_UNKNOWN:
            free(rights.refused)
            return HANDLER_PYTHON
        if rights.refuse_all != ERROR_NONE:
            return _go_on(core, request, out, parked, NULL, rights.refuse_all, deadline_ns)
        if rights.refused != NULL:
            state = _state(deadline_ns)
            if state == NULL:
                free(rights.refused)
                return HANDLER_CLOSE
            state.refused = rights.refused
    if w.acks < -1 or w.acks > 1:
        return _go_on(core, request, out, parked, state, ERROR_NONE, deadline_ns)
    transactional = transactional and core.transactions != NULL and (
        _verifies(core, request.api_version))
    if found == HANDLER_DONE and not transactional:
        return _go_on(core, request, out, parked, state, ERROR_NONE, deadline_ns)
    if state == NULL:
        state = _state(deadline_ns)
        if state == NULL:
            return HANDLER_CLOSE
    if transactional:
        return _verify(core, request, out, parked, &w, state)
    return _decode(core, request, out, parked, &w, state)

cdef int _resume(void* context, Request* request, Response* out, Parked* parked, bint expired) noexcept nogil:
    cdef Core* core = <Core*>context
    cdef State* state = <State*>parked.state
    cdef Walk w
    parked.state = NULL
    if state.phase != PRODUCE_VISIBLE and permission_moved(request):
        _drop(core, state)              # nothing is appended yet
        return _handle(context, request, out, parked)
    if state.phase == PRODUCE_VISIBLE:
        if state_settle(state, request, core.table, expired):
            return _finish(core, out, state)
    elif state.phase == PRODUCE_VERIFYING:
        return _confirm(core, request, out, parked, &w, state, expired)
    else:
        if decode_pending(core.jobs, &state.group) == 0:
            return _go_on(core, request, out, parked, state, ERROR_NONE, state.deadline_ns)
        if expired:
            return _go_on(core, request, out, parked, state, ERROR_REQUEST_TIMED_OUT, state.deadline_ns)
    return handler_parks(parked, state, state.deadline_ns, state.phase != PRODUCE_VISIBLE)

cdef void _abandon(void* context, Parked* parked) noexcept nogil:
    _drop(<Core*>context, <State*>parked.state)
    parked.state = NULL


# ---------------------------------------------------------------------------- the interface to
# Python

class MalformedProduce(ValueError):
    """The reactor would close the connection: damage, or an error in a request with acks=0."""


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class ProduceHandler(NativeHandler):
    """The native Produce handler of one broker's PartitionTable. `transactions`: the rules of
    transactions; None: this broker coordinates none. `decodes`: the queue of the batches that
    Python processes (gzip, zstd, intercepted ones). Raises TypeError for another table, and
    MemoryError.

    handle_frame does the same for callers without a connection, such as tests.
    """

    cdef readonly DecodeQueue decodes

    def __cinit__(self, table, TransactionSteps transactions=None):
        cdef Core* core
        cdef int i
        cdef DecodeQueue queue = DecodeQueue()
        cdef Table* found = table_of(table)
        core = <Core*>calloc(1, sizeof(Core))
        if core == NULL:
            raise MemoryError
        core.table = found
        core.jobs = queue.jobs
        core.transactions = NULL if transactions is None else &transactions.steps
        core.verifies = 1
        for i in range(SCRATCHES):
            inflated_init(&core.scratch[i])
        self.declare(
            ((KEY_PRODUCE, VERSION_FIRST, VERSION_LAST),), core, _handle, _resume, _abandon)
        self.decodes = queue
        self.owner = (table, queue, transactions)

    def __init__(self, table, transactions=None):
        pass

    @property
    def verifies(self):
        """transaction.partition.verification.enable: transactional batches need a transaction."""
        return bool(atomic_load_i32(&(<Core*>self.handler.context).verifies))

    @verifies.setter
    def verifies(self, bint value):
        atomic_store_i32(&(<Core*>self.handler.context).verifies, value)

    cdef void bind(self, Waker* waker):
        table_bind_waker((<Core*>self.handler.context).table, waker)

    def __dealloc__(self):
        cdef Core* core
        cdef int i
        core = <Core*>self.handler.context
        if core != NULL:
            for i in range(SCRATCHES):
                inflated_free(&core.scratch[i])
            free(core)

    def handle_frame(self, bytes frame not None):
        """Handles a request without its size prefix. Returns the response with its size prefix,
        None (acks=0), or a ParkedProduce that waits. Raises MalformedProduce where the reactor
        would close the connection."""
        cdef ParkedProduce call = ParkedProduce.__new__(ParkedProduce)
        call.handler = self
        call.take(frame)
        with nogil:
            call.outcome = _handle(self.handler.context, &call.request, &call.response, &call.parked)
        return call.outcome_object()

    def repeat(self, bytes frame not None, int64_t count):
        """Handles one frame `count` times without the GIL, to measure the cost of a request.
        Returns how many requests got their answer at once."""
        cdef ParkedProduce call = ParkedProduce.__new__(ParkedProduce)
        cdef int64_t i, answered = 0
        cdef const uint8_t* source = <const uint8_t*>PyBytes_AS_STRING(frame)
        call.handler = self
        call.take(frame)
        with nogil:
            for i in range(count):
                memcpy(call.request.data, source, call.request.size_bytes)
                call.outcome = _handle(
                    self.handler.context, &call.request, &call.response, &call.parked)
                answered += call.outcome == HANDLER_DONE or call.outcome == HANDLER_SILENT
                if call.outcome == HANDLER_PARKED:
                    _abandon(self.handler.context, &call.parked)
                call.response.bytes.size = 0
        return answered


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class ParkedProduce:
    """A delayed request of handle_frame. Call resume() until it returns the answer, or drop the object."""
    cdef ProduceHandler handler
    cdef Request request
    cdef Response response
    cdef Parked parked
    cdef int outcome

    def __cinit__(self):
        response_init(&self.response)

    def __dealloc__(self):
        if self.parked.state != NULL:
            _abandon(self.handler.handler.context, &self.parked)
        response_free(&self.response)
        free(self.request.data)

    cdef int take(self, bytes frame) except -1:
        """Copies the frame, because the handler writes to it, and parses the request's header."""
        cdef System* system = table_system((<Core*>self.handler.handler.context).table)
        cdef Request* r = &self.request
        cdef Cursor c
        cdef int32_t i
        r.size_bytes = len(frame)
        r.data = <uint8_t*>malloc(r.size_bytes + 1)
        if r.data == NULL:
            raise MemoryError
        memcpy(r.data, PyBytes_AS_STRING(frame), r.size_bytes)
        c = cursor_of(r.data, r.size_bytes)
        r.api_key = cursor_i16(&c)
        r.api_version = cursor_i16(&c)
        r.correlation_id = cursor_i32(&c)
        r.client_id_bytes = cursor_i16(&c)
        if r.client_id_bytes >= 0:
            r.client_id = cursor_take(&c, r.client_id_bytes)
        if r.api_version >= VERSION_FLEXIBLE:
            for i in range(<int32_t>cursor_uvarint(&c, 5)):
                cursor_uvarint(&c, 5)
                cursor_take(&c, <int64_t>cursor_uvarint(&c, 5))
                if c.bad:
                    break
        if c.bad or r.api_key != KEY_PRODUCE or not VERSION_FIRST <= r.api_version <= VERSION_LAST:
            raise MalformedProduce("not the header of a Produce request that this handler takes")
        r.body_at = c.p - r.data
        r.thread_index = LOCAL_THREAD
        r.received_ns = system.monotonic_ns(system)
        return 0

    cdef object outcome_object(self):
        if self.outcome == HANDLER_PARKED:
            return self
        if self.outcome == HANDLER_SILENT:
            return None
        if self.outcome != HANDLER_DONE:
            raise MalformedProduce("the connection is closed")
        return PyBytes_FromStringAndSize(
            <const char*>self.response.bytes.data, self.response.bytes.size)

    @property
    def deadline_ns(self):
        """The deadline in nanoseconds of the broker's monotonic clock."""
        return self.parked.deadline_ns

    def resume(self, wait_ms=None):
        """Returns the answer as handle_frame does, or self if it still waits after wait_ms (None:
        waits for the answer, which comes at the request's own deadline at the latest)."""
        cdef int64_t wakes, now_ns, until_ns = 0
        cdef bint bounded = wait_ms is not None
        cdef bint expired = False
        cdef System* system = table_system((<Core*>self.handler.handler.context).table)
        cdef Table* table = (<Core*>self.handler.handler.context).table
        if bounded:
            until_ns = monotonic_now_ns() + <int64_t>wait_ms * 1000000
        if self.parked.state == NULL:
            raise RuntimeError("this request was answered already")
        with nogil:
            while True:
                wakes = table_local_wakes(table)
                expired = system.monotonic_ns(system) >= self.parked.deadline_ns
                self.outcome = _resume(
                    self.handler.handler.context, &self.request, &self.response, &self.parked, expired)
                now_ns = monotonic_now_ns()
                if self.outcome != HANDLER_PARKED or (bounded and now_ns >= until_ns):
                    break
                table_wait_local(table, wakes, _earlier(
                    now_ns + self.parked.deadline_ns - system.monotonic_ns(system),
                    until_ns if bounded else INT64_MAX))
        return self.outcome_object()


cdef inline int64_t _earlier(int64_t a, int64_t b) noexcept nogil:
    return a if a < b else b
