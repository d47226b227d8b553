"""TxnOffsetCommit (28), versions 0-6: offsets of a group that count when the transaction commits.

A native handler answers it on the network threads (next: cext/coordinator/offset_commit.pyx). The
group's partition of __consumer_offsets must be part of the transaction: when its log does not know
that, the handler passes the request here, Python asks the coordinator of transactions, as for
produced batches, and the handler goes on. Until the marker comes the offsets stay apart, and a
request for stable offsets is answered with a retriable error.

v2 leader epochs; v3 flexible, generation and member are checked; v4 TRANSACTION_ABORTABLE; v5 the
partition is added to the transaction here (KIP-890), without AddOffsetsToTxn; v6 topic ids.
"""

from collections.abc import Callable

from barnabas.api.by_partition import with_code
from barnabas.api.call import Call
from barnabas.api.contexts import TransactionContext
from barnabas.api.later import Later
from barnabas.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionAbortable,
    error_of,
)
from barnabas.wire import Struct

KEY = 28
VERSIONS = (0, 6)
CONTEXT = TransactionContext
ABORTABLE_FROM = 4
ADDS_FROM = 5


def handle(request: Struct, call: Call[TransactionContext]) -> Later:
    groups = call.context.groups
    groups.take_commits()
    partition = groups.check(request.groupId)
    log = call.context.replicas.log(groups.journal.topic, partition)
    verification = log.begin_verification(request.producerId)
    later = Later()

    def done(error: KafkaError | None) -> None:
        if error is not None:
            log.end_verification(verification)
        elif log.confirm_verification(verification, request.producerEpoch):
            call.proceed()
            return
        else:  # a marker came meanwhile
            error = ConcurrentTransactions()
        later.fail(error_of(_code(error, call))())

    _verify(
        request,
        call,
        (groups.journal.topic, partition),
        lambda: log.renew_verification(verification),
        done,
    )
    return later


def _verify(
    request: Struct,
    call: Call[TransactionContext],
    partition: tuple[str, int],
    renew: Callable[[], bool],
    done: Callable[[KafkaError | None], object],
) -> None:
    """Asks whether the offsets belong to the transaction; from ADDS_FROM on adds them."""
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


def _code(error: KafkaError, call: Call[TransactionContext]) -> int:
    """The error code that clients of this version can act on."""
    if error.code == ProducerFenced.code:
        return InvalidProducerEpoch.code
    if error.code == TransactionAbortable.code and call.version < ABORTABLE_FROM:
        return InvalidTxnState.code
    if error.code == ConcurrentTransactions.code and call.version < ADDS_FROM:
        return CoordinatorLoadInProgress.code
    return error.code


def refuse(request: Struct, code: int, call: Call[TransactionContext]) -> Struct:
    return with_code(request, code, call)
