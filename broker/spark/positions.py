"""Turns options into offsets: the start of a query and the end of a batch."""

from barnabas.client import Cluster, list_offsets
from barnabas.client.groups import committed_offsets
from barnabas.spark.offsets import Offsets
from barnabas.spark.options import (
    EARLIEST,
    GROUP,
    LATEST,
    LATEST_MARK,
    BadOption,
    SourceOptions,
)
from barnabas.spark.planner import TopicPartition
from barnabas.spark.subscription import Seen

EARLIEST_MARK = -2


def first_offsets(
    cluster: Cluster, options: SourceOptions, seen: Seen
) -> dict[TopicPartition, int]:
    """Returns the start offsets that the options name; they may lie outside the partition. Raises
    BadOption, and errors of client and brokers."""
    earliest, latest = seen.earliest(), seen.latest(options.committed)
    if options.start_times is not None:
        found = _of_times(cluster, "startingOffsetsByTimestamp", options.start_times, seen)
        for tp, offset in found.items():
            if offset < 0 and not options.latest_when_too_late:
                raise BadOption(
                    f"partition {tp[1]} of topic {tp[0]} has no record at or after the starting"
                    " time (set startingOffsetsByTimestampStrategy=latest to begin at its end)"
                )
        return {tp: latest[tp] if offset < 0 else offset for tp, offset in found.items()}
    if options.start == GROUP:
        if options.group_id is None:
            raise BadOption("startingOffsets=group needs kafka.group.id or commitOffsetsToGroup")
        stands = committed_offsets(cluster, options.group_id)
        return {tp: stands.get(tp[0], {}).get(tp[1], earliest[tp]) for tp in seen.bounds}
    if isinstance(options.start, str):
        return earliest if options.start == EARLIEST else latest
    given = {tp: _asked("startingOffsets", options.start, tp) for tp in seen.bounds}
    marks = {EARLIEST_MARK: earliest, LATEST_MARK: latest}
    return {tp: marks[at][tp] if at in marks else at for tp, at in given.items()}


def last_offsets(cluster: Cluster, options: SourceOptions, seen: Seen) -> dict[TopicPartition, int]:
    """Returns the end offsets of a batch, at most the ends of the partitions. Raises BadOption, and
    errors of client and brokers."""
    latest = seen.latest(options.committed)
    if options.end_times is not None:
        found = _of_times(cluster, "endingOffsetsByTimestamp", options.end_times, seen)
        return {tp: latest[tp] if at < 0 else min(at, latest[tp]) for tp, at in found.items()}
    if isinstance(options.end, str):
        assert options.end == LATEST, options.end
        return latest
    ends = {}
    for tp in seen.bounds:
        offset = _asked("endingOffsets", options.end, tp)
        if offset == EARLIEST_MARK:
            raise BadOption("a batch cannot end at the earliest offsets (-2)")
        ends[tp] = latest[tp] if offset == LATEST_MARK else min(offset, latest[tp])
    return ends


def offsets_at(cluster: Cluster, seen: Seen, time_ms: int) -> dict[TopicPartition, int]:
    """Returns the offset of the first record of each partition at or after a time in ms since 1970;
    -1 when there is none."""
    return _of_times(cluster, "", time_ms, seen)


def _asked(name: str, asked: Offsets, tp: TopicPartition) -> int:
    try:
        return asked[tp[0]][tp[1]]
    except KeyError:
        raise BadOption(f"{name} has no offset of topic {tp[0]}, partition {tp[1]}") from None


def _of_times(
    cluster: Cluster, name: str, times: int | Offsets, seen: Seen
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, indexes in seen.partitions().items():
        asked = {
            index: times if isinstance(times, int) else _asked(name, times, (topic, index))
            for index in indexes
        }
        rows = list_offsets(cluster, topic, asked)
        found |= {(topic, index): row.offset for index, row in rows.items()}
    return found
