"""DescribeTransactions (65), version 0: state, producer and partitions of transactional ids."""

from collections import defaultdict

from barnabas.api.access import of_rows
from barnabas.api.call import Call
from barnabas.api.contexts import TransactionContext
from barnabas.errors import KafkaError
from barnabas.security.acl_codes import DESCRIBE, TOPIC, TRANSACTIONAL_ID
from barnabas.wire import Struct

KEY = 65
VERSIONS = (0, 0)
CONTEXT = TransactionContext
ACCESS = of_rows(DESCRIBE, TRANSACTIONAL_ID, "transactionalIds", "transactionStates")


def handle(request: Struct, call: Call[TransactionContext]) -> Struct:
    return call.answer()(transactionStates=[_row(name, call) for name in request.transactionalIds])


def _row(name: str, call: Call[TransactionContext]) -> Struct:
    row_of = call.struct("transactionStates")
    try:
        found = call.context.administration.describe(name)
    except KafkaError as error:
        return row_of(transactionalId=name, errorCode=error.code)
    topic_of = call.struct("transactionStates.topics")
    by_topic = defaultdict(list)
    for topic, index in call.permitted(
        sorted(found.partitions), DESCRIBE, TOPIC, lambda row: row[0]
    ):
        by_topic[topic].append(index)
    return row_of(
        transactionalId=name,
        transactionState=found.state.title,
        transactionTimeoutMs=found.timeout_ms,
        transactionStartTimeMs=found.start_ms,
        producerId=found.producer_id,
        producerEpoch=found.producer_epoch,
        topics=[topic_of(topic=topic, partitions=rows) for topic, rows in by_topic.items()],
    )


def refuse(request: Struct, code: int, call: Call[TransactionContext]) -> Struct:
    row_of = call.struct("transactionStates")
    return call.answer()(
        transactionStates=[
            row_of(transactionalId=name, errorCode=code) for name in request.transactionalIds
        ]
    )
