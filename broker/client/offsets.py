"""ListOffsets: the start and the end of a partition, and the first record at or after a time."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.client.cluster import Cluster
from barnabas.client.failures import raise_for
from barnabas.wire import Struct, request

LIST_OFFSETS = 2
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3  # the record with the largest timestamp: version 7, Kafka 3.0
UNCOMMITTED, COMMITTED = 0, 1


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The answer for one partition; offset -1: there is no record at or after the requested
    time."""

    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster,
    topic: str,
    times: Mapping[int, int],
    *,
    isolation: int = UNCOMMITTED,
) -> dict[int, FoundOffset]:
    """Returns for each partition the offset of a time in ms, or of EARLIEST, LATEST or
    MAX_TIMESTAMP. `times`: partition -> time. Raises KafkaError, ClientError."""
    left = dict(times)
    found: dict[int, FoundOffset] = {}

    def step() -> None:
        by_leader: dict[int, list[int]] = defaultdict(list)
        for partition in left:
            cluster.leader(topic, partition)
            by_leader[cluster.topic(topic).partitions[partition].leader].append(partition)
        for node_id, partitions in by_leader.items():
            asked = {partition: left[partition] for partition in partitions}
            low = 7 if MAX_TIMESTAMP in asked.values() else 1
            body = _request(topic, asked, isolation, round(1000 * cluster.timeout_s))
            answer = cluster.connection_to(node_id).call(LIST_OFFSETS, body, low=low)
            for row in (row for rows in answer.topics for row in rows.partitions):
                raise_for(row.errorCode, f"partition {row.partitionIndex} of topic {topic}")
                found[row.partitionIndex] = FoundOffset(
                    offset=row.offset, timestamp=row.timestamp, leader_epoch=row.leaderEpoch
                )
                left.pop(row.partitionIndex, None)

    if left:
        cluster.retrying(step, topic=topic)
    return dict(sorted(found.items()))


def _request(topic: str, times: Mapping[int, int], isolation: int, timeout_ms: int) -> Struct:
    message = request(LIST_OFFSETS)
    row = message.struct("topics.partitions")
    rows = [row(partitionIndex=index, timestamp=time) for index, time in times.items()]
    topics = [message.struct("topics")(name=topic, partitions=rows)]
    fields = {"isolationLevel": isolation} if isolation else {}
    return message.cls(replicaId=-1, topics=topics, timeoutMs=timeout_ms, **fields)
