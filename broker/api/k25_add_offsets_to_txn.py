"""AddOffsetsToTxn (25), versions 0-4: a transaction is about to commit offsets of a group.

The group's partition of __consumer_offsets becomes part of the transaction. Native code answers
(cext/coordinator/transaction_handler.pyx); this handler takes requests that come before the topic
exists, and asks the same table.

v2 PRODUCER_FENCED is known; v3 flexible; v4 TRANSACTION_ABORTABLE.
"""

from barnabas.api.access import Access, RequestPermission
from barnabas.api.call import Call
from barnabas.api.contexts import TransactionContext
from barnabas.api.later import Later
from barnabas.errors import InvalidProducerEpoch, KafkaError, ProducerFenced
from barnabas.security.acl_codes import GROUP, READ, TRANSACTIONAL_ID, WRITE
from barnabas.wire import Struct

KEY = 25
VERSIONS = (0, 4)
CONTEXT = TransactionContext
ACCESS = Access(
    (
        RequestPermission(WRITE, TRANSACTIONAL_ID, "transactionalId"),
        RequestPermission(READ, GROUP, "groupId"),
    ),
    native=((WRITE, TRANSACTIONAL_ID), (READ, GROUP)),
)
FENCED_FROM = 2


def handle(request: Struct, call: Call[TransactionContext]) -> Struct | Later:
    journal = call.context.groups.journal
    journal.ensure()
    later = Later()

    def done(error: KafkaError | None) -> None:
        if error is None:
            later.settle(call.answer()())
        else:
            later.fail(error)

    call.context.transactions.add_partitions(
        request.transactionalId,
        request.producerId,
        request.producerEpoch,
        [(journal.topic, journal.partition_of(request.groupId))],
        0,
        done,
        connection_id=call.connection_id,
    )
    return later


def refuse(request: Struct, code: int, call: Call[TransactionContext]) -> Struct:
    if code == ProducerFenced.code and call.version < FENCED_FROM:
        code = InvalidProducerEpoch.code
    return call.answer()(errorCode=code)
