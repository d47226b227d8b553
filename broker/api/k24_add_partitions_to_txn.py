"""AddPartitionsToTxn (24), versions 0-5: partitions that a transaction is about to write to.

Native code has the rules and answers the plain requests of versions 0 to 3
(cext/coordinator/transaction_handler.pyx). This handler parses the others, which brokers send, or
which name many or unknown partitions, and asks the same table. All partitions of a transaction are
added, or none: where one does not exist, the others get OPERATION_NOT_ATTEMPTED. Brokers ask with
`verifyOnly` whether partitions belong to a transaction.

v2 PRODUCER_FENCED is known; v3 flexible; v4 several transactions in one request, each answered for
itself, and verification; v5 TRANSACTION_ABORTABLE.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import TransactionContext
from barnabas.api.later import Later
from barnabas.coordinator.transactions.transaction import BUMPS_EPOCH
from barnabas.errors import (
    InvalidProducerEpoch,
    KafkaError,
    OperationNotAttempted,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
)
from barnabas.metadata.cluster_state import ClusterState
from barnabas.security.acl_codes import CLUSTER_ACTION, TOPIC, TRANSACTIONAL_ID, WRITE
from barnabas.wire import Struct

KEY = 24
VERSIONS = (0, 5)
CONTEXT = TransactionContext
ACCESS = Access(
    native=((WRITE, TRANSACTIONAL_ID), (WRITE, TOPIC)),
    elsewhere="_one: the same; handle: CLUSTER_ACTION of brokers",
)
FENCED_FROM = 2
SEVERAL_FROM = 4


def handle(request: Struct, call: Call[TransactionContext]) -> Struct | Later:
    if call.version >= SEVERAL_FROM:  # brokers send it
        call.require(CLUSTER_ACTION)
    asked = _asked(request, call)
    if not asked:
        return _answer(request, [], call)
    later = Later()
    lock = threading.Lock()
    codes: list[list[int] | None] = [None] * len(asked)
    left = len(asked)

    def settle(at: int, found: list[int]) -> None:
        nonlocal left
        with lock:
            codes[at] = found
            left -= 1
            last = left == 0
        if last:
            later.settle(_answer(request, [row or [] for row in codes], call))

    for at, transaction in enumerate(asked):
        _one(transaction, call, partial(settle, at))
    return later


class _Asked:
    """One transaction of a request, in whichever version's form."""

    def __init__(self, name: str, producer: tuple[int, int], verify: bool, topics: list) -> None:
        self.name = name
        self.producer = producer
        self.verify = verify
        self.partitions = [(topic.name, index) for topic in topics for index in topic.partitions]


def _asked(request: Struct, call: Call[TransactionContext]) -> list[_Asked]:
    if call.version >= SEVERAL_FROM:
        return [
            _Asked(
                row.transactionalId,
                (row.producerId, row.producerEpoch),
                row.verifyOnly,
                row.topics,
            )
            for row in request.transactions
        ]
    return [
        _Asked(
            request.v3AndBelowTransactionalId,
            (request.v3AndBelowProducerId, request.v3AndBelowProducerEpoch),
            False,
            request.v3AndBelowTopics,
        )
    ]


def _one(
    asked: _Asked, call: Call[TransactionContext], settle: Callable[[list[int]], None]
) -> None:
    state = call.context.cluster()
    rows = asked.partitions
    if call.version < SEVERAL_FROM and not call.may(WRITE, TRANSACTIONAL_ID, asked.name):
        settle([TransactionalIdAuthorizationFailed.code] * len(rows))
        return
    codes = [_code_of_partition(*row, state, call) for row in rows]
    if any(codes):
        settle([code or OperationNotAttempted.code for code in codes])
        return

    def done(error: KafkaError | None) -> None:
        settle([_code(error, call)] * len(rows))

    try:
        if asked.verify:
            settle(call.context.transactions.steps.has(asked.name, *asked.producer, rows))
        else:
            call.context.transactions.add_partitions(
                asked.name,
                *asked.producer,
                rows,
                BUMPS_EPOCH if call.version >= SEVERAL_FROM else 0,
                done,
                connection_id=call.connection_id,
            )
    except KafkaError as error:
        done(error)


def _code_of_partition(
    topic: str, index: int, state: ClusterState, call: Call[TransactionContext]
) -> int:
    """Returns the error code of a partition that no transaction can have; 0 for others."""
    if call.version < SEVERAL_FROM and not call.may(WRITE, TOPIC, topic):
        return TopicAuthorizationFailed.code
    return UnknownTopicOrPartition.code if state.partition(topic, index) is None else 0


def _code(error: KafkaError | None, call: Call[TransactionContext]) -> int:
    if error is None:
        return 0
    if error.code == ProducerFenced.code and call.version < FENCED_FROM:
        return InvalidProducerEpoch.code
    return error.code


def _answer(
    request: Struct, codes: Sequence[Sequence[int]], call: Call[TransactionContext]
) -> Struct:
    if call.version < SEVERAL_FROM:
        of_topic = "resultsByTopicV3AndBelow"
        rows = _topics(request.v3AndBelowTopics, codes[0] if codes else (), of_topic, call)
        return call.answer()(resultsByTopicV3AndBelow=rows)
    row_of = call.struct("resultsByTransaction")
    of_topic = "resultsByTransaction.topicResults"
    return call.answer()(
        resultsByTransaction=[
            row_of(
                transactionalId=row.transactionalId,
                topicResults=_topics(row.topics, found, of_topic, call),
            )
            for row, found in zip(request.transactions, codes, strict=True)
        ]
    )


def _topics(
    topics: Sequence[Struct], codes: Sequence[int], path: str, call: Call[TransactionContext]
) -> list[Struct]:
    topic_of, row_of = call.struct(path), call.struct(f"{path}.resultsByPartition")
    at = iter(codes)
    return [
        topic_of(
            name=topic.name,
            resultsByPartition=[
                row_of(partitionIndex=index, partitionErrorCode=next(at))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def refuse(request: Struct, code: int, call: Call[TransactionContext]) -> Struct:
    codes = [[code] * len(row.partitions) for row in _asked(request, call)]
    answer = _answer(request, codes, call)
    if call.version >= SEVERAL_FROM:
        answer.errorCode = code
    return answer
