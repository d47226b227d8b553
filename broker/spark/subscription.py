"""The partitions that a query reads, their current offsets, and the places of their files."""

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.client import ClientError, Cluster, describe_log_dirs
from barnabas.errors import KafkaError, UnknownTopicOrPartition
from barnabas.scan.log_directory import LogDirectory
from barnabas.scan.plan import Bounds, ask_bounds, directories_here, directories_in
from barnabas.spark.offsets import TopicIds
from barnabas.spark.options import BadOption, SourceOptions
from barnabas.spark.planner import TopicPartition


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of the subscription at one moment."""

    bounds: dict[TopicPartition, Bounds] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)  # by topic

    def known_ids(self) -> TopicIds:
        """Returns the topic ids; brokers before Kafka 2.8 have none."""
        return {topic: topic_id for topic, topic_id in self.ids.items() if any(topic_id)}

    def earliest(self) -> dict[TopicPartition, int]:
        """Returns the log start offset of each partition."""
        return {tp: row.earliest for tp, row in self.bounds.items()}

    def latest(self, committed: bool) -> dict[TopicPartition, int]:
        """Returns the end of what consumers may read, for each partition."""
        return {tp: row.latest(committed) for tp, row in self.bounds.items()}

    def high(self) -> dict[TopicPartition, int]:
        """Returns the high watermark of each partition."""
        return {tp: row.high_watermark for tp, row in self.bounds.items()}

    def partitions(self) -> dict[str, list[int]]:
        """Returns the partitions of each topic, ascending."""
        found: dict[str, list[int]] = defaultdict(list)
        for topic, index in sorted(self.bounds):
            found[topic].append(index)
        return dict(found)


def look(cluster: Cluster, options: SourceOptions) -> Seen:
    """Returns the state of the topics and partitions that the options name. Raises BadOption,
    UnknownTopicOrPartition, and the errors of client and brokers."""
    wanted = _wanted(cluster, options)
    seen = Seen(ids={topic: cluster.topic(topic).topic_id for topic in wanted})
    for topic, indexes in wanted.items():
        rows = ask_bounds(cluster, topic, indexes)
        seen.bounds.update({(topic, index): row for index, row in rows.items()})
    return seen


def _wanted(cluster: Cluster, options: SourceOptions) -> dict[str, list[int]]:
    if options.assigned is not None:
        return {topic: sorted(rows) for topic, rows in sorted(options.assigned.items())}
    names = list(options.topics)
    if options.pattern is not None:
        try:
            pattern = re.compile(options.pattern)
        except re.error as error:
            raise BadOption(f"subscribePattern {options.pattern!r}: {error}") from None
        names = [name for name in cluster.topics() if pattern.fullmatch(name)]
    found = {}
    for name in sorted(set(names)):
        try:
            found[name] = sorted(cluster.topic(name).partitions)
        except UnknownTopicOrPartition:
            if options.fail_on_data_loss:
                raise
    return found


def places(
    cluster: Cluster, options: SourceOptions, wanted: dict[str, list[int]]
) -> dict[TopicPartition, LogDirectory]:
    """Returns the directories of the partitions whose files this process can read. Raises BadOption
    when the options require files and they are absent, and NoFilesHere."""
    if options.source == "wire":
        return {}
    found: dict[TopicPartition, LogDirectory] = {}
    for topic, indexes in wanted.items():
        if options.segment_dirs:
            topic_id = cluster.topic(topic).topic_id
            rows = directories_in(options.segment_dirs, topic, indexes, topic_id)
        else:
            rows = directories_here(cluster, topic, indexes)
        found |= {(topic, index): row for index, row in rows.items()}
    missing = [(t, i) for t, rows in wanted.items() for i in rows if (t, i) not in found]
    if options.source == "files" and missing:
        raise BadOption(f"source=files, but the files of {missing} are not on this machine")
    return found


def stored_bytes(
    cluster: Cluster, options: SourceOptions, seen: Seen
) -> Callable[[TopicPartition, int, int], int]:
    """Returns a function: the number of bytes between two offsets of a partition, by the offset
    index when its files are on this machine, else in proportion to the size that the broker
    answers."""
    wanted = seen.partitions()
    here = places(cluster, options, wanted)
    tables = {tp: row.byte_table() for tp, row in here.items()}
    left = {t: [i for i in rows if (t, i) not in here] for t, rows in wanted.items()}
    means = _mean_bytes(cluster, seen, {topic: rows for topic, rows in left.items() if rows})

    def between(tp: TopicPartition, start: int, end: int) -> int:
        if tp in tables:
            return max(tables[tp](end) - tables[tp](start), 0)
        return round(means[tp] * (end - start))

    return between


def _mean_bytes(
    cluster: Cluster, seen: Seen, wanted: dict[str, list[int]]
) -> dict[TopicPartition, float]:
    """Returns the average bytes of a record by partition; 1 when the broker does not answer a
    size."""
    found = {(topic, index): 1.0 for topic, rows in wanted.items() for index in rows}
    leaders = {
        cluster.topic(topic).partitions[index].leader
        for topic, rows in wanted.items()
        for index in rows
    }
    for node_id in leaders:
        try:
            described = describe_log_dirs(cluster, node_id, wanted)
        except (KafkaError, ClientError):
            continue
        for topic, row in ((t.name, p) for d in described for t in d.topics for p in t.partitions):
            bounds = seen.bounds.get((topic, row.partitionIndex))
            if bounds is not None and bounds.high_watermark > bounds.earliest:
                count = bounds.high_watermark - bounds.earliest
                found[topic, row.partitionIndex] = row.partitionSize / count
    return found
