"""EndTxn (26), versions 0-5: commits or aborts a transaction; answered when that is decided.

Markers follow the answer: a reader of committed records sees the transaction when they are
written, and the next request of the producer waits for them.

v2 PRODUCER_FENCED is known; v3 flexible; v4 TRANSACTION_ABORTABLE; v5 each end bumps the epoch
(KIP-890): the answer has the producer id and epoch for the next transaction.
"""

from barnabas.api.call import Call
from barnabas.api.contexts import TransactionContext
from barnabas.api.later import Later
from barnabas.coordinator.transactions.transaction import BUMPS_EPOCH
from barnabas.errors import InvalidProducerEpoch, KafkaError, ProducerFenced
from barnabas.wire import Struct

KEY = 26
VERSIONS = (0, 5)
CONTEXT = TransactionContext
FENCED_FROM = 2
BUMPS_FROM = 5


def handle(request: Struct, call: Call[TransactionContext]) -> Struct | Later:
    later = Later()

    def done(error: KafkaError | None, producer_id: int, epoch: int) -> None:
        if error is not None:
            later.fail(error)
        elif call.version >= BUMPS_FROM:
            later.settle(call.answer()(producerId=producer_id, producerEpoch=epoch))
        else:
            later.settle(call.answer()())

    call.context.transactions.end(
        request.transactionalId,
        request.producerId,
        request.producerEpoch,
        request.committed,
        BUMPS_EPOCH if call.version >= BUMPS_FROM else 0,
        done,
        connection_id=call.connection_id,
    )
    return later


def refuse(request: Struct, code: int, call: Call[TransactionContext]) -> Struct:
    if code == ProducerFenced.code and call.version < FENCED_FROM:
        code = InvalidProducerEpoch.code
    return call.answer()(errorCode=code)
