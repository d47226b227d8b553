"""DescribeProducers (61), version 0: the states of the idempotent producers of a partition.

The state of a producer that has written nothing for `producer.id.expiration.ms` may be absent.
"""

from barnabas.api.access import of_rows
from barnabas.api.by_partition import by_topic
from barnabas.api.call import Call
from barnabas.api.contexts import PartitionContext
from barnabas.api.k02_list_offsets import log_of
from barnabas.cext.log.log_handle import LogError, ProducerState
from barnabas.errors import KafkaError, UnknownTopicOrPartition
from barnabas.security.acl_codes import READ, TOPIC
from barnabas.wire import Struct

KEY = 61
VERSIONS = (0, 0)
CONTEXT = PartitionContext
ACCESS = of_rows(READ, TOPIC, "topics", "topics", "name")


def handle(request: Struct, call: Call[PartitionContext]) -> Struct:
    def rows(topic: Struct) -> list[Struct]:
        return [_row(topic.name, index, call) for index in topic.partitionIndexes]

    return by_topic(request, call, rows)


def refuse(request: Struct, code: int, call: Call[PartitionContext]) -> Struct:
    row_of = call.struct("topics.partitions")

    def rows(topic: Struct) -> list[Struct]:
        return [row_of(partitionIndex=index, errorCode=code) for index in topic.partitionIndexes]

    return by_topic(request, call, rows)


def _row(topic: str, index: int, call: Call[PartitionContext]) -> Struct:
    answer = call.struct("topics.partitions")(partitionIndex=index)
    try:
        if call.context.cluster().topic(topic) is None:
            # Kafka sends a message for an unknown topic, and none for an unknown partition.
            answer.errorMessage = UnknownTopicOrPartition.meaning
        partition = call.context.replicas.partition(topic, index)
        producers = log_of(partition).producers()
        answer.activeProducers = [_producer(row, call) for row in producers]
    except (KafkaError, LogError) as error:
        answer.errorCode = error.code
    return answer


def _producer(row: ProducerState, call: Call[PartitionContext]) -> Struct:
    return call.struct("topics.partitions.activeProducers")(
        producerId=row.producer_id,
        producerEpoch=row.epoch,
        lastSequence=row.last_sequence,
        lastTimestamp=row.last_timestamp,
        coordinatorEpoch=row.coordinator_epoch,
        currentTxnStartOffset=row.txn_first_offset,
    )
