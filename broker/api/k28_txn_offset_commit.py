"""TxnOffsetCommit (28), versions 0-6: offsets of a group that count when the transaction commits.

The group's partition of __consumer_offsets must be part of the transaction: the coordinator of
transactions is asked, as for produced batches. Until the marker comes the offsets stay apart, and
a request for stable offsets is answered with a retriable error. After the group has accepted a
commit and the log knows the transaction, cext/coordinator/offset_commit.pyx answers plain requests.

v2 leader epochs; v3 flexible, generation and member are checked; v4 TRANSACTION_ABORTABLE; v5 the
partition is added to the transaction here (KIP-890), without AddOffsetsToTxn; v6 topic ids.
"""

from collections.abc import Callable, Sequence

from barnabas.api.by_partition import with_code, with_codes
from barnabas.api.call import Call
from barnabas.api.contexts import TransactionContext
from barnabas.api.later import Later
from barnabas.coordinator.groups.group_records import Committed
from barnabas.coordinator.journal import Producer
from barnabas.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    StaleMemberEpoch,
    TransactionAbortable,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_of,
)
from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.znodes import uuid_text
from barnabas.wire import Struct

KEY = 28
VERSIONS = (0, 6)
CONTEXT = TransactionContext
ABORTABLE_FROM = 4
ADDS_FROM = 5
IDS_FROM = 6


def handle(request: Struct, call: Call[TransactionContext]) -> Struct | Later:
    groups = call.context.groups
    state = call.context.cluster()
    partition = groups.check(request.groupId)
    now_ms = call.context.wall_ms()
    rows = [
        (_name(topic, state, call), row) for topic in request.topics for row in topic.partitions
    ]
    codes = [
        UnknownTopicId.code
        if name is None
        else UnknownTopicOrPartition.code
        if state.partition(name, row.partitionIndex) is None
        else 0
        for name, row in rows
    ]
    commits = [
        (
            name,
            row.partitionIndex,
            Committed(
                row.committedOffset, row.committedLeaderEpoch, row.committedMetadata or "", now_ms
            ),
        )
        for (name, row), code in zip(rows, codes, strict=True)
        if code == 0 and name is not None
    ]
    if not commits:
        return with_codes(request, codes, call)
    later = Later()
    log = call.context.replicas.log(groups.journal.topic, partition)
    verification = log.begin_verification(request.producerId)

    def done(outcomes: Sequence[KafkaError | None]) -> None:
        log.end_verification(verification)
        at = iter(outcomes)
        merged = [code or _code(next(at), call) for code in codes]
        later.settle(with_codes(request, merged, call))

    def verified(error: KafkaError | None) -> None:
        if error is None:
            try:
                groups.commit(
                    request.groupId,
                    request.memberId,
                    request.groupInstanceId,
                    request.generationIdOrMemberEpoch,
                    commits,
                    done,
                    producer=Producer(request.producerId, request.producerEpoch, verification),
                )
            except StaleMemberEpoch:
                error = IllegalGeneration()  # what producers know
            except KafkaError as refused:
                error = refused
        if error is not None:
            log.end_verification(verification)
            later.fail(error_of(_code(error, call))())

    _verify(
        request,
        call,
        (groups.journal.topic, partition),
        lambda: log.renew_verification(verification),
        verified,
    )
    return later


def _name(topic: Struct, state: ClusterState, call: Call[TransactionContext]) -> str | None:
    if call.version < IDS_FROM:
        return str(topic.name)
    found = state.topic_by_id(uuid_text(topic.topicId))
    return None if found is None else found.name


def _verify(
    request: Struct,
    call: Call[TransactionContext],
    partition: tuple[str, int],
    renew: Callable[[], bool],
    done: Callable[[KafkaError | None], object],
) -> None:
    """Whether the offsets belong to the producer's transaction."""
    producer = request.transactionalId, request.producerId, request.producerEpoch
    transactions = call.context.transactions
    try:
        if call.version >= ADDS_FROM:
            transactions.add_for_append(*producer, [partition], renew, done)
            return
        (code,) = transactions.verify(*producer, [partition])
    except KafkaError as error:
        done(error)
        return
    done(error_of(code)() if code else None)


def _code(error: KafkaError | None, call: Call[TransactionContext]) -> int:
    """What this version's clients can act on."""
    if error is None:
        return 0
    if error.code == ProducerFenced.code:
        return InvalidProducerEpoch.code
    if error.code == TransactionAbortable.code and call.version < ABORTABLE_FROM:
        return InvalidTxnState.code
    if error.code == ConcurrentTransactions.code and call.version < ADDS_FROM:
        return CoordinatorLoadInProgress.code
    return error.code


def refuse(request: Struct, code: int, call: Call[TransactionContext]) -> Struct:
    return with_code(request, code, call)
