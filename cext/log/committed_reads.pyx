"""Reads of a log for Python that also return the aborted transactions in the range.

Share groups with read_committed isolation leave out the batches of those transactions
(broker/coordinator/share). The native handler of Fetch serves consumers.
Next: cext/log/log_transactions.pyx.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libc.string cimport memset

from barnabas.cext.log.log cimport Log, LogSlice, log_read
from barnabas.cext.log.log_handle cimport LogHandle
from barnabas.cext.log.log_transactions cimport log_aborted_txns
from barnabas.cext.log.segment cimport segment_fd, segment_release
from barnabas.cext.log.txn_index cimport AbortedTxns, aborted_txns_free
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.sys cimport read_whole

from barnabas.cext.log.log_handle import LogError

cdef enum:
    STORAGE_ERROR = 56


def read_committed(LogHandle handle not None, int64_t offset, int64_t size_max, *,
                   int64_t limit_offset, bint whole_first=True):
    """Reads batches from the one that contains `offset` on, below `limit_offset`.

    `size_max`: bytes; with `whole_first` the first batch is returned whole even when it is larger.
    Returns (bytes, [(producer id, first offset) of each aborted transaction in that range]). Raises
    LogError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR."""
    cdef Log* log = handle.log
    cdef LogSlice slice
    cdef AbortedTxns aborted
    cdef bytes content = b""
    cdef int64_t i, got = 0
    cdef int status, slot
    if log == NULL:
        raise LogError(STORAGE_ERROR, f"{handle.directory} is closed")
    memset(&aborted, 0, sizeof(AbortedTxns))
    with nogil:
        slot = epoch_enter(log.epochs)
        status = log_read(log, offset, size_max, limit_offset, whole_first, &slice)
        if status == 0 and slice.segment != NULL and slice.size_bytes > 0:
            status = log_aborted_txns(log, offset, limit_offset, &slice, &aborted, NULL)
            if status != 0:
                segment_release(slice.segment)
        epoch_leave(log.epochs, slot)
    found = [
        (aborted.items[i].producer_id, aborted.items[i].first_offset)
        for i in range(aborted.count)
    ]
    aborted_txns_free(&aborted)
    if status == 0 and slice.segment != NULL:
        content = PyBytes_FromStringAndSize(NULL, slice.size_bytes)
        got = _copied(log, &slice, PyBytes_AS_STRING(content))
    if status != 0 or got < 0:
        raise LogError(status if status else STORAGE_ERROR,
                       f"{handle.directory}: cannot read at offset {offset}")
    return content[:got], found


cdef int64_t _copied(Log* log, LogSlice* slice, char* into):
    """Copies the slice's bytes to `into` and releases the slice. Returns the number of bytes, or
    -errno."""
    cdef int64_t got
    cdef int fd
    with nogil:
        fd = segment_fd(slice.segment, log.system)
        got = fd
        if fd >= 0:
            got = read_whole(log.system, fd, into, slice.size_bytes, slice.position)
        segment_release(slice.segment)
    return got
