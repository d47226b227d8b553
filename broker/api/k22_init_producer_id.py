"""InitProducerId (22), versions 0-5: a producer id for an idempotent or a transactional producer.

Without a transactional id each request gets a new producer id with epoch 0. Ids come from blocks
that the metadata tree allocates, so that no id is given twice, also after a crash. With a
transactional id the producer gets its producer id and the next epoch, which fences the previous
producer. If a transaction is still open, the coordinator aborts it first, and the producer retries.

v2 flexible; v3 the producer's previous id and epoch (KIP-360); v4 PRODUCER_FENCED (before it
INVALID_PRODUCER_EPOCH); v5 nothing on the wire.
"""

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import TransactionContext
from barnabas.api.later import Later
from barnabas.errors import InvalidProducerEpoch, InvalidRequest, KafkaError, ProducerFenced
from barnabas.security.acl_codes import IDEMPOTENT_WRITE, TOPIC, TRANSACTIONAL_ID, WRITE
from barnabas.wire import Struct

KEY = 22
VERSIONS = (0, 5)
CONTEXT = TransactionContext
ACCESS = Access(elsewhere="_check_access: it depends on whether there is a transactional id")
FENCED_FROM = 4


def handle(request: Struct, call: Call[TransactionContext]) -> Struct | Later:
    _check_access(request, call)
    expected = None
    if call.version >= 3:
        if (request.producerId < 0) != (request.producerEpoch < 0):
            raise InvalidRequest("a producer id needs a producer epoch, and an epoch an id")
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


def _check_access(request: Struct, call: Call[TransactionContext]) -> None:
    """Raises TransactionalIdAuthorizationFailed, ClusterAuthorizationFailed."""
    if request.transactionalId is not None:
        call.require(WRITE, TRANSACTIONAL_ID, request.transactionalId)
    elif not call.may(IDEMPOTENT_WRITE, quiet=True) and not call.may_any(WRITE, TOPIC):
        call.require(IDEMPOTENT_WRITE)


def refuse(request: Struct, code: int, call: Call[TransactionContext]) -> Struct:
    if code == ProducerFenced.code and call.version < FENCED_FROM:
        code = InvalidProducerEpoch.code
    return call.answer()(errorCode=code, producerId=-1, producerEpoch=-1)
