"""InitProducerId (22), versions 0-5: an id for an idempotent producer, or for a transactional one.

Without a transactional id every request gets a new id with epoch 0; ids come from blocks that the
metadata tree gives out, so none is given twice, whatever crashes. With one the producer gets the
id's producer id and the next epoch, which fences the producer before it; a transaction that is
still open is aborted first, and the producer asks again.

v2 flexible; v3 the id and epoch the producer had (KIP-360); v4 PRODUCER_FENCED is known (below it
INVALID_PRODUCER_EPOCH is said); v5 nothing on the wire.
"""

from barnabas.api.call import Call
from barnabas.api.contexts import TransactionContext
from barnabas.api.later import Later
from barnabas.errors import InvalidProducerEpoch, InvalidRequest, KafkaError, ProducerFenced
from barnabas.wire import Struct

KEY = 22
VERSIONS = (0, 5)
CONTEXT = TransactionContext
FENCED_FROM = 4


def handle(request: Struct, call: Call[TransactionContext]) -> Struct | Later:
    expected = None
    if call.version >= 3:
        if (request.producerId < 0) != (request.producerEpoch < 0):
            raise InvalidRequest("a producer id goes with an epoch")
        if request.producerId >= 0:
            expected = request.producerId, request.producerEpoch
    if request.transactionalId is None:
        return call.answer()(producerId=call.context.producer_ids.next(), producerEpoch=0)
    later = Later()

    def done(error: KafkaError | None, producer_id: int, epoch: int) -> None:
        if error is None:
            later.settle(call.answer()(producerId=producer_id, producerEpoch=epoch))
        else:
            later.fail(error)

    call.context.transactions.init_producer_id(
        request.transactionalId, request.transactionTimeoutMs, expected, done
    )
    return later


def refuse(request: Struct, code: int, call: Call[TransactionContext]) -> Struct:
    if code == ProducerFenced.code and call.version < FENCED_FROM:
        code = InvalidProducerEpoch.code
    return call.answer()(errorCode=code, producerId=-1, producerEpoch=-1)
