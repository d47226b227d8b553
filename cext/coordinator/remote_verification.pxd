"""Questions to the transaction coordinator on another broker: a queue from network threads to
Python.

A request whose first batch of a transaction is for a partition that this node leads, while another
broker coordinates the transactional id, asks that broker (AddPartitionsToTxn). The request owns its
question until remote_drop, and is woken when the answer is there.
"""
from libc.stdint cimport int16_t, int32_t, uint64_t

from barnabas.cext.coordinator.transaction_state cimport Asked
from barnabas.cext.memory.job_queue cimport Job, JobQueue, Jobs
from barnabas.cext.partition.partitions cimport Table, Watch

cdef struct Remote:                 # one allocation: rows, codes and texts follow
    Job job                         # first: what the queue links
    Jobs* jobs
    Table* table
    int32_t thread_index            # of the request, as the connection
    uint64_t connection_id
    bint is_dropped                 # the request has ended: the answer frees the question
    bint adds                       # adds partitions to the transaction; otherwise it only verifies
    Asked asked
    int16_t* codes                  # the error code of each row, once the question is answered

# Asks with a copy of `asked`; `by` has the connection to wake. NULL: no memory, or the queue is
# full or closed.
cdef Remote* remote_ask(Jobs* jobs, Table* table, const Asked* asked, bint adds, const Watch* by) noexcept nogil
cdef bint remote_is_answered(const Remote* remote) noexcept nogil
# Frees the question, in any state. NULL is allowed.
cdef void remote_drop(Remote* remote) noexcept nogil

cdef class RemoteVerifications(JobQueue):
    """The queue of one broker; `next` is for Python threads."""
