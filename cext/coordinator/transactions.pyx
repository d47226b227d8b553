"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn of transactional ids that Python has lent to this lane.

Who has a transactional id, and everything that is an error, is Python's to say
(barnabas.coordinator.transactions.coordinator). Between two steps of its own it lends the id here; then
transactions are begun, grow and end on the network thread: records of __transaction_state, the logs
that are told to expect the transaction, the markers, the answer. Whoever in Python wants to know or
change anything of the id recalls it first, and gets what has become of it.

A request is answered here when the id is lent, producer id and epoch are its own, every partition
is led here and online, and what is appended counts at once (not with log.durability=fsync, nor when
another leader epoch has begun). All else goes to Python whole, with nothing changed; but for an end
that was decided and whose markers or Complete record could not be written: Python carries it out.
A transaction that ends here is complete when its end is answered. What producers of the second
version leave out, other lanes ask for with their batches (`transaction_adds`).

    AddPartitionsToTxnRequest   transactional id, producer id, epoch, [name, [index]]    0 to 3
    AddOffsetsToTxnRequest      transactional id, producer id, epoch, group              0 to 4
    EndTxnRequest               transactional id, producer id, epoch, committed          0 to 5
    answers                     throttle, [name, [index, error]] or error, producer id and epoch
                                (EndTxn 5); flexible from 3
    marker                      key int16 0, int16 0 abort or 1 commit; value int16 0, int32
                                coordinator epoch

From 4 on brokers ask to add partitions, in another form; EndTxn 5 bumps the epoch. Steps of an id are
under the lock of one shard, and so are lending and recalling: what `recall` gives, no later step
passes. A crash loses nothing that was answered: what is here is only a copy of what is in the log; one
between the decision and the Complete record leaves what Python finds when it loads. Limit: LENT_MAX ids.
Next on the data path: cext/coordinator/transaction_state.pyx; broker/coordinator/transactions/transactional_id.py lends.
"""
cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, intptr_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_free, buffer_i16, buffer_i32, buffer_i64, buffer_init,
)
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i16, cursor_i32, cursor_i64, cursor_i8, cursor_left, cursor_of,
)
from barnabas.cext.codec.error_codes cimport ERROR_NONE
from barnabas.cext.codec.fields cimport (
    read_count, read_no_tags, read_string, write_count, write_no_tags, write_string,
)
from barnabas.cext.coordinator.commit_entries cimport Entry, entry_free, entry_marker
from barnabas.cext.coordinator.coordinator_batch cimport (
    own_batch_append, own_batch_begin, own_batch_end, own_record_begin, own_record_end,
    own_record_value,
)
from barnabas.cext.coordinator.ended_transactions cimport (
    ended_append, ended_has_room, EndedTransactions,
)
from barnabas.cext.coordinator.transaction_state cimport (
    Connections, connections_add, Lent, lent_free, lent_key, lent_new, lent_takes_part, lent_value,
    lent_was_left_on, PARTITIONS_MAX, rows_add, rows_copy, rows_free, rows_have,
    STATE_COMPLETE_ABORT, STATE_COMPLETE_COMMIT, STATE_ONGOING, STATE_PREPARE_ABORT,
    STATE_PREPARE_COMMIT, TxnRow, TxnRows,
)
from barnabas.cext.log.log cimport BUMPING_MARKER, TRUSTED
from barnabas.cext.log.log_transactions cimport log_expect_transaction, log_renew_verification
from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_load_i32, atomic_load_i64, atomic_store_i32,
)
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.int64_map cimport (
    int64_map_free, int64_map_get, int64_map_init, int64_map_put, int64_map_remove,
)
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from barnabas.cext.memory.secret_hash cimport secret_hash, secret_init
from barnabas.cext.memory.sys cimport System
from barnabas.cext.network.handler cimport (
    LANE_CLOSE, LANE_DONE, LANE_PYTHON, lane_abandons_nothing, lane_of, lane_resumes_nothing,
    Parked, Request, request_error, Response, response_begin, response_end,
)
from barnabas.cext.partition.partitions cimport (
    Partition, partition_by_name, partition_high_watermark, Table, table_epochs, table_is_fsync,
    table_of, table_system,
)
from barnabas.cext.record.records cimport ATTR_CONTROL, ATTR_TRANSACTIONAL

cdef enum:
    KEY_ADD_PARTITIONS = 24
    KEY_ADD_OFFSETS = 25
    KEY_END = 26
    ADD_PARTITIONS_LAST = 3
    ADD_OFFSETS_LAST = 4
    END_LAST = 5
    END_BUMPS_FROM = 5
    BUMPS_EPOCH = 2                 # of transaction.version
    EPOCH_MAX = 32767               # Python takes a producer to its next id below it
    VERSION_FLEXIBLE = 3
    KEY_HEAD_BYTES = 4              # of a record's key: version, length of the id
    LENT_MAX = 65536                # ids; each takes some 300 bytes
    RENEWED_MAX = 3                 # times that a marker may come in between, before Python is asked
    MARKER_ABORT = 0
    MARKER_COMMIT = 1

cdef struct AskedRow:
    const uint8_t* topic
    int32_t topic_bytes
    int32_t index
    Partition* p                    # good inside the epoch

cdef struct Asked:                  # a request
    const uint8_t* name
    int32_t name_bytes
    int64_t producer_id
    int16_t producer_epoch
    uint64_t connection_id          # 0: any
    int16_t client_version          # of transaction.version
    AskedRow rows[ADDED_MAX]
    int32_t count
    bint committed                  # of an end

cdef struct Ending:                 # a partition of a transaction that ends
    Partition* p
    Entry* note                     # for the groups' coordinator; NULL: of another topic


# -------------------------------------------------------------------------------- ids

cdef inline int64_t _hash(const TransactionCore* core, const uint8_t* p, int64_t n) noexcept nogil:
    return secret_hash(&core.secret, p, n)

cdef inline Shard* _shard(TransactionCore* core, int64_t hashed) noexcept nogil:
    return &core.shards[hashed & (SHARDS - 1)]

cdef Lent* _find(Shard* shard, int64_t hashed, const uint8_t* name, int32_t name_bytes) noexcept nogil:
    """Under the shard's lock."""
    cdef Lent* lent = <Lent*><intptr_t>int64_map_get(&shard.ids, hashed, 0)
    if lent == NULL or lent.key_bytes - KEY_HEAD_BYTES != name_bytes or (
            memcmp(lent_key(lent) + KEY_HEAD_BYTES, name, name_bytes) != 0):
        return NULL
    return lent


# -------------------------------------------------------------------------------- the request

cdef bint _read_partitions(Cursor* c, Asked* asked, bint flexible) noexcept nogil:
    cdef int32_t topics = read_count(c, flexible)
    cdef int32_t partitions, topic_bytes, i, k
    cdef const uint8_t* topic
    cdef AskedRow* row
    for i in range(topics):
        topic = read_string(c, flexible, False, &topic_bytes)
        partitions = read_count(c, flexible)
        if c.bad or asked.count + partitions > ADDED_MAX:
            return False
        for k in range(partitions):
            row = &asked.rows[asked.count]
            row.topic, row.topic_bytes, row.index = topic, topic_bytes, cursor_i32(c)
            asked.count += 1
        read_no_tags(c, flexible)
    return True

cdef int32_t _java_hash(const uint8_t* p, int32_t n) noexcept nogil:
    """String.hashCode of ASCII text, made positive as Kafka's Utils.abs does; -1: not ASCII."""
    cdef uint32_t found = 0
    cdef int32_t i
    for i in range(n):
        if p[i] >= 0x80:
            return -1
        found = 31 * found + p[i]
    if found >= 0x80000000u:
        found = 0 - found
    return 0 if found == 0x80000000u else <int32_t>found

cdef int32_t _offsets_index(TransactionCore* core, const uint8_t* group, int32_t group_bytes) noexcept nogil:
    """The partition of a group's offsets; -1: Python is to say."""
    cdef int32_t count = atomic_load_i32(&core.offsets_partitions)
    cdef int32_t hashed = _java_hash(group, group_bytes)
    return hashed % count if count > 0 and hashed >= 0 else -1

cdef bint _read_group(TransactionCore* core, Cursor* c, Asked* asked, bint flexible) noexcept nogil:
    cdef int32_t group_bytes
    cdef const uint8_t* group = read_string(c, flexible, False, &group_bytes)
    if c.bad:
        return False
    asked.rows[0].topic, asked.rows[0].topic_bytes = core.offsets_topic, core.offsets_topic_bytes
    asked.rows[0].index = _offsets_index(core, group, group_bytes)
    asked.count = 1
    return asked.rows[0].index >= 0

cdef bint _read(TransactionCore* core, const Request* r, Asked* asked) noexcept nogil:
    cdef Cursor c = cursor_of(r.data + r.body_at, r.size_bytes - r.body_at)
    cdef bint flexible = r.api_version >= VERSION_FLEXIBLE
    asked.name = read_string(&c, flexible, False, &asked.name_bytes)
    asked.producer_id = cursor_i64(&c)
    asked.producer_epoch = cursor_i16(&c)
    asked.connection_id = r.connection_id
    asked.client_version = 0
    asked.count = 0
    if r.api_key == KEY_END:
        if r.api_version >= END_BUMPS_FROM:
            asked.client_version = BUMPS_EPOCH
        asked.committed = cursor_i8(&c) != 0
        read_no_tags(&c, flexible)
        return not c.bad and cursor_left(&c) == 0
    if r.api_key == KEY_ADD_OFFSETS:
        if not _read_group(core, &c, asked, flexible):
            return False
    elif not _read_partitions(&c, asked, flexible):
        return False
    read_no_tags(&c, flexible)
    return not c.bad and cursor_left(&c) == 0 and asked.count > 0

cdef inline Partition* _led(TransactionCore* core, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil:
    """Inside an epoch: a partition that is led here and online, else NULL."""
    cdef int16_t error
    cdef Partition* p = partition_by_name(core.table, topic, topic_bytes, index, &error)
    return p if p != NULL and error == ERROR_NONE and p.log != NULL else NULL

cdef bint _is_led_here(TransactionCore* core, Asked* asked) noexcept nogil:
    """Inside an epoch: finds every partition."""
    cdef AskedRow* row
    cdef int32_t i
    for i in range(asked.count):
        row = &asked.rows[i]
        row.p = _led(core, row.topic, row.topic_bytes, row.index)
        if row.p == NULL:
            return False
    return True


# -------------------------------------------------------------------------------- what grows

cdef inline bint _is_prepared(const Lent* lent) noexcept nogil:
    """An end that could not be carried out."""
    return lent.state in (STATE_PREPARE_COMMIT, STATE_PREPARE_ABORT)

cdef bint _has_all(const Lent* lent, const Asked* asked) noexcept nogil:
    cdef const AskedRow* row
    cdef int32_t i
    if lent.state != STATE_ONGOING:
        return False
    for i in range(asked.count):
        row = &asked.rows[i]
        if not rows_have(&lent.rows, row.topic, row.topic_bytes, row.index):
            return False
    return True

cdef bint _merge(Shard* shard, const Lent* lent, const Asked* asked) noexcept nogil:
    """The rows as they will be."""
    cdef const AskedRow* row
    cdef int32_t i
    shard.rows.count = 0
    shard.rows.names.size = 0
    if lent.state == STATE_ONGOING and not rows_copy(&shard.rows, &lent.rows):
        return False
    for i in range(asked.count):
        row = &asked.rows[i]
        if not rows_add(&shard.rows, row.topic, row.topic_bytes, row.index):
            return False
    return True

cdef bint _append(TransactionCore* core, Shard* shard, const Lent* lent, int8_t state, const TxnRows* rows, int64_t start_ms, int64_t now_ms) noexcept nogil:
    """Whether the record is in the log, and counts."""
    cdef int64_t offset
    cdef Buffer* b = &shard.batch
    cdef Partition* p = _led(core, core.topic, core.topic_bytes, lent.partition)
    if p == NULL or atomic_load_i32(&p.leader_epoch) != lent.leader_epoch:
        return False
    shard.value.size = 0
    lent_value(&shard.value, lent, state, rows, start_ms, now_ms)
    own_batch_begin(b)
    own_record_begin(b, 0, lent.key_bytes, <int32_t>shard.value.size)
    buffer_bytes(b, lent_key(lent), lent.key_bytes)
    own_record_value(b, <int32_t>shard.value.size)
    buffer_bytes(b, shard.value.data, shard.value.size)
    own_record_end(b)
    if shard.value.failed or b.failed:
        buffer_free(&shard.value)
        buffer_free(b)
        return False
    own_batch_end(b, 1, now_ms)
    if own_batch_append(core.table, p, b, lent.leader_epoch, &offset) != ERROR_NONE:
        return False
    return partition_high_watermark(p) > offset

cdef bint _grow(TransactionCore* core, Shard* shard, Lent* lent, const Asked* asked) noexcept nogil:
    """Under the shard's lock and inside an epoch. False: Python is to do it. Who leaves the adding
    to us has begun a verification, and needs no other."""
    cdef System* system = table_system(core.table)
    cdef int64_t now_ms = system.wall_ms(system)
    cdef int64_t start_ms = lent.start_ms if lent.state == STATE_ONGOING else now_ms
    cdef TxnRows before = lent.rows
    cdef int16_t version_before = lent.client_version
    cdef int32_t i
    lent.client_version = asked.client_version
    if not _merge(shard, lent, asked) or not _append(
            core, shard, lent, STATE_ONGOING, &shard.rows, start_ms, now_ms):
        lent.client_version = version_before
        return False
    lent.rows, shard.rows = shard.rows, before
    lent_takes_part(lent, asked.connection_id)
    lent.state, lent.changed = STATE_ONGOING, True
    lent.start_ms, lent.update_ms = start_ms, now_ms
    for i in range(asked.count if asked.client_version < BUMPS_EPOCH else 0):
        log_expect_transaction(asked.rows[i].p.log, asked.producer_id, asked.producer_epoch)
    return True

cdef bint _add(TransactionCore* core, Shard* shard, Lent* lent, const Asked* asked) noexcept nogil:
    if not _has_all(lent, asked):
        return _grow(core, shard, lent, asked)
    lent_takes_part(lent, asked.connection_id)
    return True


# -------------------------------------------------------------------------------- the end

cdef bint _find_endings(TransactionCore* core, const Lent* lent, bint committed, Ending* endings, int32_t* found) noexcept nogil:
    """Every partition, and a note for each that groups' offsets are in. `found` of them are there
    also when it gives False."""
    cdef const TxnRow* row
    cdef const uint8_t* topic
    cdef Ending* at
    cdef int32_t i
    for i in range(lent.rows.count):
        row = &lent.rows.at[i]
        topic = lent.rows.names.data + row.name_at
        at = &endings[i]
        at.note = NULL
        at.p = _led(core, topic, row.name_bytes, row.index)
        if at.p == NULL:
            return False
        if row.name_bytes == core.offsets_topic_bytes and (
                memcmp(topic, core.offsets_topic, row.name_bytes) == 0):
            at.note = entry_marker(row.index, lent.producer_id, committed)
            if at.note == NULL:
                return False
        found[0] = i + 1
    return True

cdef bint _write_markers(TransactionCore* core, Shard* shard, const Lent* lent, bint committed, Ending* endings, int64_t now_ms) noexcept nogil:
    """Takes over the notes. Whether all are written."""
    cdef Buffer* b = &shard.batch
    cdef bint all_written = True
    cdef int64_t verification = BUMPING_MARKER if lent.client_version >= BUMPS_EPOCH else TRUSTED
    cdef int64_t offset
    cdef int32_t epoch, i
    own_batch_begin(b)
    own_record_begin(b, 0, 4, 6)
    buffer_i16(b, 0)
    buffer_i16(b, MARKER_COMMIT if committed else MARKER_ABORT)
    own_record_value(b, 6)
    buffer_i16(b, 0)
    buffer_i32(b, lent.leader_epoch)
    own_record_end(b)
    if b.failed:
        buffer_free(b)
        all_written = False
    for i in range(lent.rows.count):
        if not all_written:
            entry_free(endings[i].note)
            continue
        own_batch_end(
            b, 1, now_ms, ATTR_TRANSACTIONAL | ATTR_CONTROL, lent.producer_id, lent.producer_epoch)
        if endings[i].note != NULL:
            all_written = ended_append(
                core.ended, core.table, endings[i].p, b, endings[i].note, verification) == 0
        else:
            epoch = atomic_load_i32(&endings[i].p.leader_epoch)
            all_written = own_batch_append(
                core.table, endings[i].p, b, epoch, &offset, verification) == 0
    return all_written

cdef bint _decide(TransactionCore* core, Shard* shard, Lent* lent, const Asked* asked, int64_t now_ms) noexcept nogil:
    """The Prepare record. False: it is as it was."""
    cdef Lent before = lent[0]
    if asked.client_version >= BUMPS_EPOCH:
        lent.last_epoch = lent.producer_epoch
        lent.producer_epoch += 1
    lent.client_version = asked.client_version
    lent.state = STATE_PREPARE_COMMIT if asked.committed else STATE_PREPARE_ABORT
    if not _append(core, shard, lent, lent.state, &lent.rows, lent.start_ms, now_ms):
        lent[0] = before
        return False
    lent.update_ms, lent.changed = now_ms, True
    return True

cdef inline bint _may_end(TransactionCore* core, const Lent* lent, const Asked* asked) noexcept nogil:
    if lent.state != STATE_ONGOING or core.ended == NULL or not ended_has_room(core.ended):
        return False
    if asked.client_version >= BUMPS_EPOCH:
        return lent.producer_epoch < EPOCH_MAX - 1
    return not lent_was_left_on(lent, asked.connection_id)

cdef bint _end(TransactionCore* core, Shard* shard, Lent* lent, Asked* asked) noexcept nogil:
    """Under the shard's lock and inside an epoch; the epoch to go on with is in `asked`. False: Python
    is to do it, or to carry it out when the id is prepared."""
    cdef System* system = table_system(core.table)
    cdef int64_t now_ms = system.wall_ms(system)
    cdef bint committed = asked.committed
    cdef Ending endings[PARTITIONS_MAX]
    cdef int32_t found = 0, i
    if not _may_end(core, lent, asked):
        return False
    if not _find_endings(core, lent, committed, endings, &found) or not _decide(
            core, shard, lent, asked, now_ms):
        for i in range(found):
            entry_free(endings[i].note)
        return False
    if not _write_markers(core, shard, lent, committed, endings, now_ms):
        return False
    shard.rows.count = 0
    now_ms = system.wall_ms(system)
    if not _append(
            core, shard, lent, STATE_COMPLETE_COMMIT if committed else STATE_COMPLETE_ABORT,
            &shard.rows, lent.start_ms, now_ms):
        return False
    lent.state = STATE_COMPLETE_COMMIT if committed else STATE_COMPLETE_ABORT
    lent.rows.count, lent.rows.names.size = 0, 0
    lent.update_ms = now_ms
    asked.producer_epoch = lent.producer_epoch
    return True

cdef bint _carry_out(TransactionCore* core, Asked* asked, bint ends) noexcept nogil:
    """Inside an epoch. False: Python is to do it."""
    cdef int64_t hashed = _hash(core, asked.name, asked.name_bytes)
    cdef Shard* shard = _shard(core, hashed)
    cdef Lent* lent
    cdef bint done = False
    pthread_mutex_lock(&shard.lock)
    lent = _find(shard, hashed, asked.name, asked.name_bytes)
    if lent != NULL and lent.producer_id == asked.producer_id and (
            lent.producer_epoch == asked.producer_epoch) and not _is_prepared(lent):
        if ends:
            done = _end(core, shard, lent, asked)
        else:
            done = _add(core, shard, lent, asked)
    pthread_mutex_unlock(&shard.lock)
    return done


cdef bint _are_overtaken(Partition** partitions, const int64_t* verifications, int32_t count) noexcept nogil:
    """Whether a marker came meanwhile; they are as if they were begun now."""
    cdef bint overtaken = False
    cdef int32_t i
    for i in range(count):
        if log_renew_verification(partitions[i].log, verifications[i]):
            overtaken = True
    return overtaken


cdef bint transaction_adds(TransactionCore* core, const uint8_t* name, int32_t name_bytes, int64_t producer_id, int16_t producer_epoch, Partition** partitions, const int64_t* verifications, int32_t count) noexcept nogil:
    cdef Asked asked
    cdef AskedRow* row
    cdef int32_t i
    if atomic_load_i64(&core.lent_count) == 0 or table_is_fsync(core.table) or (
            count > ADDED_MAX or name_bytes <= 0):
        return False
    asked.name, asked.name_bytes = name, name_bytes
    asked.producer_id, asked.producer_epoch = producer_id, producer_epoch
    asked.connection_id, asked.client_version = 0, BUMPS_EPOCH
    asked.count = count
    for i in range(count):
        row = &asked.rows[i]
        row.p, row.index = partitions[i], partitions[i].index
        row.topic = <const uint8_t*>partitions[i].topic
        row.topic_bytes = partitions[i].topic_bytes
    for i in range(RENEWED_MAX):
        if not _carry_out(core, &asked, False):
            return False
        if not _are_overtaken(partitions, verifications, count):
            return True
    return False


cdef Partition* transaction_offsets_of(TransactionCore* core, const uint8_t* group, int32_t group_bytes) noexcept nogil:
    cdef int32_t index = _offsets_index(core, group, group_bytes)
    if index < 0:
        return NULL
    return _led(core, core.offsets_topic, core.offsets_topic_bytes, index)


# -------------------------------------------------------------------------------- the lane

cdef void _write_partitions(Buffer* b, Request* r, bint flexible) noexcept nogil:
    """The request's topics once more, each partition with its code."""
    cdef Cursor c = cursor_of(r.data + r.body_at, r.size_bytes - r.body_at)
    cdef int32_t topics, partitions, size_bytes, i, k
    cdef const uint8_t* topic
    read_string(&c, flexible, False, &size_bytes)
    cursor_i64(&c)
    cursor_i16(&c)
    topics = read_count(&c, flexible)
    write_count(b, flexible, topics)
    for i in range(topics):
        topic = read_string(&c, flexible, False, &size_bytes)
        partitions = read_count(&c, flexible)
        write_string(b, flexible, topic, size_bytes)
        write_count(b, flexible, partitions)
        for k in range(partitions):
            buffer_i32(b, cursor_i32(&c))
            buffer_i16(b, ERROR_NONE)
            write_no_tags(b, flexible)
            request_error(r, ERROR_NONE)
        read_no_tags(&c, flexible)
        write_no_tags(b, flexible)

cdef int _answer(Request* r, Response* out, const Asked* asked) noexcept nogil:
    cdef Buffer* b = &out.bytes
    cdef bint flexible = r.api_version >= VERSION_FLEXIBLE
    response_begin(out, r.correlation_id, flexible)
    buffer_i32(b, 0)                    # nobody is throttled
    if r.api_key == KEY_ADD_PARTITIONS:
        _write_partitions(b, r, flexible)
    else:
        buffer_i16(b, ERROR_NONE)
        request_error(r, ERROR_NONE)
    if asked.client_version >= BUMPS_EPOCH:
        buffer_i64(b, asked.producer_id)
        buffer_i16(b, asked.producer_epoch)
    write_no_tags(b, flexible)
    if b.failed:
        return LANE_CLOSE
    response_end(out)
    return LANE_DONE

cdef bint _takes(void* context, int16_t api_key, int16_t api_version) noexcept nogil:
    if api_key == KEY_ADD_PARTITIONS:
        return 0 <= api_version <= ADD_PARTITIONS_LAST
    if api_key == KEY_END:
        return 0 <= api_version <= END_LAST
    return api_key == KEY_ADD_OFFSETS and 0 <= api_version <= ADD_OFFSETS_LAST

cdef int _handle(void* context, Request* r, Response* out, Parked* parked) noexcept nogil:
    cdef TransactionCore* core = <TransactionCore*>context
    cdef Asked asked
    cdef bint done
    cdef int slot
    if atomic_load_i64(&core.lent_count) == 0 or table_is_fsync(core.table):
        return LANE_PYTHON
    if not _read(core, r, &asked):
        return LANE_PYTHON
    slot = epoch_enter(table_epochs(core.table))
    done = _is_led_here(core, &asked) and _carry_out(core, &asked, r.api_key == KEY_END)
    epoch_leave(table_epochs(core.table), slot)
    if not done:
        return LANE_PYTHON
    atomic_add_i64(&core.served, 1)
    return _answer(r, out, &asked)


# -------------------------------------------------------------------------------- Python's side

cdef list _partitions(const TxnRows* rows):
    cdef const TxnRow* row
    cdef int32_t i
    found = []
    for i in range(rows.count):
        row = &rows.at[i]
        found.append((
            PyUnicode_DecodeUTF8(<char*>rows.names.data + row.name_at, row.name_bytes, NULL),
            row.index,
        ))
    return found

cdef list _ids(const Connections* connections):
    cdef int32_t i
    return [connections.at[i] for i in range(connections.count)]


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class TransactionLane(LaneHandle):
    """The lane of one broker. `topic`: of the coordinator's log; `offsets_topic`: of groups', whose
    coordinator hears of transactions by `ended`; None: ends are Python's."""

    def __cinit__(
        self, table, str topic not None, str offsets_topic not None, EndedTransactions ended,
    ):
        cdef Shard* shard
        cdef int i
        self.topic, self.offsets_topic = topic.encode(), offsets_topic.encode()
        self.ended = ended
        self.core = <TransactionCore*>calloc(1, sizeof(TransactionCore))
        if self.core == NULL:
            raise MemoryError
        self.core.table = table_of(table)
        self.core.ended = &ended.ended if ended is not None else NULL
        self.core.topic = <const uint8_t*><const char*>self.topic
        self.core.topic_bytes = <int32_t>len(self.topic)
        self.core.offsets_topic = <const uint8_t*><const char*>self.offsets_topic
        self.core.offsets_topic_bytes = <int32_t>len(self.offsets_topic)
        secret_init(&self.core.secret)
        for i in range(SHARDS):
            shard = &self.core.shards[i]
            pthread_mutex_init(&shard.lock, NULL)
            int64_map_init(&shard.ids)
            buffer_init(&shard.rows.names)
            buffer_init(&shard.value)
            buffer_init(&shard.batch)
        self.core.lane = lane_of(
            self.core, _takes, _handle, lane_resumes_nothing, lane_abandons_nothing)
        self.lane = &self.core.lane
        self.owner = table

    def __init__(self, table, topic, offsets_topic, ended):
        pass

    def __dealloc__(self):
        cdef Shard* shard
        cdef int i
        cdef int64_t k
        if self.core == NULL:
            return
        for i in range(SHARDS):
            shard = &self.core.shards[i]
            for k in range(shard.ids.capacity):
                if shard.ids.used[k]:
                    lent_free(<Lent*><intptr_t>shard.ids.values[k])
            int64_map_free(&shard.ids)
            rows_free(&shard.rows)
            buffer_free(&shard.value)
            buffer_free(&shard.batch)
            pthread_mutex_destroy(&shard.lock)
        free(self.core)

    def lend(
        self, bytes key not None, int32_t partition, int32_t leader_epoch, int64_t producer_id,
        int16_t producer_epoch, int16_t last_epoch, int16_t client_version, int32_t timeout_ms,
        int8_t state, partitions, int64_t start_ms, int64_t update_ms, int64_t previous_producer_id,
        int16_t value_version, connections, begun_by,
    ) -> bool:
        """From now on steps of this id are taken here, until `recall`. `key`: of its records.
        `state`: Kafka's number of an idle one, or of Ongoing. False: there is no room, or it has too
        many partitions; then it stays with Python."""
        cdef Lent* lent = lent_new(<const uint8_t*><const char*>key, <int32_t>len(key))
        cdef bytes name
        cdef Shard* shard
        cdef bint taken
        if lent == NULL:
            raise MemoryError
        for topic, index in partitions:
            name = topic.encode()
            if not rows_add(
                    &lent.rows, <const uint8_t*><const char*>name, <int32_t>len(name), index):
                lent_free(lent)
                return False
        for connection_id in connections:
            connections_add(&lent.connections, connection_id)
        for connection_id in begun_by:
            connections_add(&lent.begun_by, connection_id)
        lent.partition, lent.leader_epoch = partition, leader_epoch
        lent.producer_id, lent.producer_epoch = producer_id, producer_epoch
        lent.last_epoch, lent.client_version = last_epoch, client_version
        lent.previous_producer_id = previous_producer_id
        lent.timeout_ms, lent.value_version = timeout_ms, value_version
        lent.state, lent.start_ms, lent.update_ms = state, start_ms, update_ms
        lent.hashed = _hash(
            self.core, lent_key(lent) + KEY_HEAD_BYTES, lent.key_bytes - KEY_HEAD_BYTES)
        shard = _shard(self.core, lent.hashed)
        with nogil:
            pthread_mutex_lock(&shard.lock)
            taken = atomic_load_i64(&self.core.lent_count) < LENT_MAX and (
                int64_map_get(&shard.ids, lent.hashed, 0) == 0) and (
                int64_map_put(&shard.ids, lent.hashed, <int64_t><intptr_t>lent))
            if taken:
                atomic_add_i64(&self.core.lent_count, 1)
            pthread_mutex_unlock(&shard.lock)
            if not taken:
                lent_free(lent)
        return taken

    def recall(self, bytes key not None):
        """The id is Python's again. None: it was not lent. Else (its state, partitions, start ms,
        update ms, (producer epoch, epoch before, client's transaction.version), connections with a
        part in the newest transaction, those that began earlier ones); partitions None: nothing has
        changed but the connections."""
        cdef const uint8_t* name = <const uint8_t*><const char*>key + KEY_HEAD_BYTES
        cdef int32_t name_bytes = <int32_t>len(key) - KEY_HEAD_BYTES
        cdef int64_t hashed = _hash(self.core, name, name_bytes)
        cdef Shard* shard = _shard(self.core, hashed)
        cdef Lent* lent
        with nogil:
            pthread_mutex_lock(&shard.lock)
            lent = _find(shard, hashed, name, name_bytes)
            if lent != NULL:
                int64_map_remove(&shard.ids, hashed)
                atomic_add_i64(&self.core.lent_count, -1)
            pthread_mutex_unlock(&shard.lock)
        if lent == NULL:
            return None
        try:
            partitions = _partitions(&lent.rows) if lent.changed else None
            return (
                lent.state, partitions, lent.start_ms, lent.update_ms,
                (lent.producer_epoch, lent.last_epoch, lent.client_version),
                _ids(&lent.connections), _ids(&lent.begun_by),
            )
        finally:
            lent_free(lent)

    @property
    def offsets_partitions(self) -> int:
        """Of the groups' topic; 0: it is not there."""
        return atomic_load_i32(&self.core.offsets_partitions)

    @offsets_partitions.setter
    def offsets_partitions(self, int32_t count):
        atomic_store_i32(&self.core.offsets_partitions, count)

    @property
    def lent(self) -> int:
        """How many ids are here."""
        return atomic_load_i64(&self.core.lent_count)

    @property
    def served(self) -> int:
        """How many requests were answered here."""
        return atomic_load_i64(&self.core.served)
