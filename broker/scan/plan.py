"""Plans a scan: the offset ranges of a topic's partitions, and where to read them.

The broker answers the earliest offset, the high watermark, the last stable offset and the log
directory of each partition (DescribeLogDirs). The scan reads the files when that directory is on
this machine: its meta.properties name the same cluster and node, and the partition's directory has
the same topic id. These checks detect two clusters on one machine, a directory that is mounted
elsewhere under the same name, and a topic that was deleted and created again.

The scan fetches the bounds before it opens the files, so the files hold at least that much.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from barnabas.client import EARLIEST, LATEST, ClientError, Cluster, describe_log_dirs, list_offsets
from barnabas.errors import KafkaError, UnknownTopicOrPartition
from barnabas.scan.failures import NoFilesHere, OutOfRange
from barnabas.scan.log_directory import NO_TOPIC_ID, LogDirectory, properties
from barnabas.scan.readers import Range

UNCOMMITTED, COMMITTED = 0, 1
Place: TypeAlias = int | str | datetime
Places: TypeAlias = Place | Mapping[int, Place]
Owner: TypeAlias = tuple[str | None, str | None]  # cluster id and node id in meta.properties


@dataclass(frozen=True, slots=True)
class Bounds:
    """A partition's offsets at one moment: consumers may read [earliest, latest)."""

    earliest: int
    high_watermark: int
    last_stable: int

    def latest(self, committed: bool) -> int:
        """Returns the end of what consumers may read: with `committed` the last stable offset,
        otherwise the high watermark."""
        return min(self.last_stable, self.high_watermark) if committed else self.high_watermark


@dataclass(frozen=True, slots=True)
class Part:
    """A range, and the partition's directory when it is on this machine."""

    wanted: Range
    directory: LogDirectory | None


def ask_bounds(cluster: Cluster, topic: str, partitions: Iterable[int]) -> dict[int, Bounds]:
    """Fetches the bounds of these partitions, by partition: three ListOffsets requests to each
    leader. Raises KafkaError, ClientError."""
    indexes = list(partitions)
    # The order of the requests matters: these offsets only grow, so the ends are not older than the
    # starts.
    starts = list_offsets(cluster, topic, dict.fromkeys(indexes, EARLIEST))
    stable = list_offsets(cluster, topic, dict.fromkeys(indexes, LATEST), isolation=COMMITTED)
    ends = list_offsets(cluster, topic, dict.fromkeys(indexes, LATEST), isolation=UNCOMMITTED)
    return {
        i: Bounds(
            earliest=starts[i].offset, high_watermark=ends[i].offset, last_stable=stable[i].offset
        )
        for i in indexes
    }


def checked_partitions(topic: str, there: Iterable[int], wanted: Iterable[int] | None) -> list[int]:
    """Returns the requested partitions, ascending, and all of them for None. Raises
    UnknownTopicOrPartition."""
    known = sorted(there)
    if wanted is None:
        return known
    for index in wanted:
        if index not in known:
            raise UnknownTopicOrPartition(f"topic {topic} has no partition {index}")
    return sorted(set(wanted))


def moment_ms(place: datetime) -> int:
    """Returns a time in ms since 1970. Raises ValueError for a time without a time zone, which
    could be any of many times."""
    if place.tzinfo is None:
        raise ValueError(f"{place} has no time zone: it could be any of many moments")
    return round(place.timestamp() * 1000)


def place_of(places: Places, partition: int, default: Place) -> Place:
    """Returns the place for one partition: `places` itself, or its entry when it is a mapping;
    `default` when the mapping lacks the partition."""
    return places.get(partition, default) if isinstance(places, Mapping) else places


def offset_of(place: Place, bounds: Bounds, latest: int, of_time: Mapping[int, int]) -> int:
    """Returns the offset that `place` names, at most `latest` for a time. `of_time`: offsets by
    timestamp in ms; -1 when no record is at or after it. Raises ValueError."""
    if isinstance(place, datetime):
        found = of_time[moment_ms(place)]
        return latest if found < 0 else min(max(found, bounds.earliest), latest)
    if place == "earliest":
        return bounds.earliest
    if place == "latest":
        return latest
    if isinstance(place, str):
        raise ValueError(f"{place!r} is neither 'earliest' nor 'latest'")
    return place


def ranges(
    topic: str,
    bounds: Mapping[int, Bounds],
    start: Places,
    end: Places,
    committed: bool,
    of_time: Mapping[int, Mapping[int, int]],
) -> list[Range]:
    """Returns the ranges that are not empty, by partition. `committed`: they end at the last stable
    offset; `of_time`: partition -> timestamp in ms -> offset (see `ask_times`). Raises OutOfRange
    for an offset outside a partition, ValueError for an unknown word."""
    found = []
    for index, known in sorted(bounds.items()):
        latest = known.latest(committed)
        places = place_of(start, index, "earliest"), place_of(end, index, "latest")
        first, last = (offset_of(p, known, latest, of_time.get(index, {})) for p in places)
        # A reader of uncommitted records may be above the last stable offset: it gets no records
        # yet.
        for asked in (first, last):
            if not known.earliest <= asked <= known.high_watermark:
                raise OutOfRange(topic, index, asked, known.earliest, known.high_watermark)
        if first < min(last, latest):
            found.append(Range(topic, index, first, min(last, latest)))
    return found


def moments(start: Places, end: Places, partitions: Iterable[int]) -> dict[int, list[int]]:
    """Returns timestamp in ms -> partitions: the timestamps in `start` and `end` whose offsets the
    scan needs. Raises ValueError for a time without a time zone."""
    found: dict[int, list[int]] = defaultdict(list)
    for index in partitions:
        for place in (place_of(start, index, 0), place_of(end, index, 0)):
            if isinstance(place, datetime):
                found[moment_ms(place)].append(index)
    return found


def ask_times(
    cluster: Cluster, topic: str, wanted: Mapping[int, list[int]]
) -> dict[int, dict[int, int]]:
    """Returns partition -> timestamp in ms -> offset of the first record at or after it, -1 when
    there is none. `wanted`: timestamp -> partitions. Raises KafkaError, ClientError."""
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for ms, partitions in wanted.items():
        rows = list_offsets(cluster, topic, dict.fromkeys(partitions, ms))
        for index, row in rows.items():
            found[index][ms] = row.offset
    return found


def directories_here(
    cluster: Cluster, topic: str, partitions: Iterable[int]
) -> dict[int, LogDirectory]:
    """Returns the directories of the partitions whose leader's files are on this machine. The
    leader names its log directories (DescribeLogDirs), and their meta.properties must have its
    cluster id and node id. Raises KafkaError, ClientError when the topic cannot be described."""
    known = cluster.topic(topic)
    by_leader: dict[int, list[int]] = defaultdict(list)
    for index in partitions:
        by_leader[known.partitions[index].leader].append(index)
    found: dict[int, LogDirectory] = {}
    for node_id, led in by_leader.items():
        try:
            rows = describe_log_dirs(cluster, node_id, {topic: led})
        except (KafkaError, ClientError):
            continue  # the broker refuses or lacks DescribeLogDirs: the scan uses Fetch
        for row in rows:
            here = Path(row.logDir)
            if not is_of_node(here, cluster.cluster_id, node_id):
                continue
            for index in (p.partitionIndex for t in row.topics for p in t.partitions):
                place = LogDirectory(here / f"{topic}-{index}", topic, index)
                if is_of_topic(place, known.topic_id):
                    found[index] = place
    return found


def is_of_node(log_dir: Path, cluster_id: str | None, node_id: int) -> bool:
    """Returns whether the meta.properties of a log directory name this cluster and node; False when
    the cluster id is not known."""
    return cluster_id is not None and owner_of(log_dir) == (cluster_id, str(node_id))


def owner_of(log_dir: Path) -> Owner:
    """Returns the cluster id and the node id in a log directory's meta.properties; None for one
    that is missing."""
    names = properties(log_dir / "meta.properties")
    return names.get("cluster.id"), names.get("broker.id", names.get("node.id"))


def is_of_topic(place: LogDirectory, topic_id: bytes) -> bool:
    """Returns whether the partition's directory exists and has this topic id (16 bytes), or none
    (Kafka before 2.8). Raises DamagedFiles."""
    return os.path.isdir(place.path) and place.topic_id() in (topic_id, NO_TOPIC_ID)


def directories_in(
    log_dirs: Iterable[str | os.PathLike[str]],
    topic: str,
    partitions: Iterable[int],
    topic_id: bytes,
) -> dict[int, LogDirectory]:
    """Returns the partitions' directories below the log directories that the caller names; each
    partition must have one. Raises NoFilesHere."""
    roots = [Path(root) for root in log_dirs]
    found = {}
    for index in partitions:
        places = [LogDirectory(root / f"{topic}-{index}", topic, index) for root in roots]
        there = [place for place in places if os.path.isdir(place.path)]
        if not there:
            raise NoFilesHere(f"no {topic}-{index} in {', '.join(map(str, roots))}")
        if not is_of_topic(there[0], topic_id):
            raise NoFilesHere(f"{there[0].path} is of another topic of that name (its id says so)")
        found[index] = there[0]
    return found
