"""Truncates a follower's log to the common end with its leader's log, when a Fetch response shows a
divergence.

Besides appends, only these functions change a follower's log. They run on the fetcher thread, while
the partition
is not fetched. Kafka: AbstractFetcherThread.getOffsetTruncationState and fetchOffsetAndTruncate.
"""

import logging

from barnabas.cext.log.log_handle import LogHandle

log = logging.getLogger("barnabas.replicas")


def truncate_to_epoch(
    name: str, own: LogHandle, high_watermark: int, leader_epoch: int, leader_end: int
) -> int:
    """Truncates a log that diverges from its leader's, and returns its new end.

    `name`: for log lines; `leader_epoch`, `leader_end`: the leader's largest epoch that is not
    above that of this log's last record, and the end offset of that epoch there; -1: the leader
    knows none. Raises LogError."""
    offset = common_end(own, high_watermark, leader_epoch, leader_end)
    _truncate(name, own, high_watermark, offset, f"its leader ends epoch {leader_epoch} there")
    return offset


def common_end(own: LogHandle, high_watermark: int, leader_epoch: int, leader_end: int) -> int:
    """Returns the offset up to which this log may equal the leader's. Records of later epochs than
    the leader's are not the leader's, nor those of its epoch behind the epoch's end there."""
    if leader_end < 0:
        return min(high_watermark, own.end_offset)
    own_epoch, own_end = own.epoch_end(leader_epoch)
    if own_epoch < 0:
        own_end = own.end_offset
    return min(leader_end, own_end, own.end_offset)


def follow_bounds(
    name: str, own: LogHandle, high_watermark: int, leader_start: int, leader_end: int
) -> None:
    """Moves a log whose end the leader's log does not contain: it is truncated to the leader's end,
    or becomes empty and begins at the leader's log start offset. Raises LogError."""
    end = own.end_offset
    if end > leader_end:
        _truncate(name, own, high_watermark, leader_end, "its leader's log ends there")
    elif end < leader_start:
        log.warning(
            "%s: ends at offset %d, and its leader's log begins at %d: all records are removed,"
            " and the follower fetches from that offset",
            name,
            end,
            leader_start,
        )
        own.truncate_fully_and_start_at(leader_start)


def _truncate(name: str, own: LogHandle, high_watermark: int, offset: int, why: str) -> None:
    end = own.end_offset
    if offset < high_watermark:
        log.error(
            "%s: truncated from offset %d to %d, below the high watermark %d: %s. Acknowledged"
            " records are lost here. An unclean leader election does that; otherwise compare the"
            " replicas.",
            name,
            end,
            offset,
            high_watermark,
            why,
        )
    elif offset < end:
        log.info("%s: truncated from offset %d to %d: %s", name, end, offset, why)
    own.truncate_to(offset, high_watermark)
