from typing import NamedTuple

from barnabas.cext.partition.partitions import PartitionTable

ROWS_MAX: int

class PartitionMetrics(NamedTuple):
    partition: int
    leader_id: int
    leader_epoch: int
    offline: bool
    isr_count: int
    replica_count: int
    min_insync_replicas: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    log_end_offset: int
    segment_count: int
    size_bytes: int
    producer_count: int

def partition_metrics(
    table: PartitionTable, topic: str, first: int, count: int
) -> list[PartitionMetrics]: ...
def topic_counts(table: PartitionTable, topic: str) -> tuple[int, ...] | None: ...
