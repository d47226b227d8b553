"""The partitions that a node follows from one leader broker; described in fetches.pyx."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.partition.partitions cimport Watch
from barnabas.cext.replica.fetch_messages cimport WantedPartition

cdef enum FollowState:
    FOLLOW_FETCHES = 0
    FOLLOW_WAITS = 1            # it waits for Python, which has the reason

cdef struct Follow:             # one partition
    Follow* same_hash           # the next one in the map
    Follow* next_forgotten
    int64_t hash
    int64_t place               # in Follows.items
    WantedPartition wanted      # `topic` is owned; the other fields are as last sent to the leader
    int32_t leader_epoch
    int state
    int64_t delayed_until_ns
    int64_t not_yet_ns          # the last delay because the leader did not know that it leads; 0: none
    int64_t read_from           # the least offset to fetch, -1: the log's end
    bint in_session             # the leader's session has it
    bint replaced               # forgotten, but a topic with the same name is followed now
    int64_t lag                 # records behind the leader's high watermark, -1: not known
    bint flushing               # a flush was requested, and `watch` reports it
    Watch watch
