"""InitProducerId (22), versions 0-5: an id for an idempotent producer.

Without a transactional id every request gets a new id with epoch 0; ids come from blocks that the
metadata tree gives out, so none is given twice, whatever crashes. With a transactional id the
answer is COORDINATOR_NOT_AVAILABLE: there are no transactions yet.

v2 flexible; v3 the id and epoch the producer had (raised when it is ours); v5 nothing on the wire.
"""

from barnabas.api.call import Call
from barnabas.errors import CoordinatorNotAvailable, InvalidRequest
from barnabas.wire import Struct

KEY = 22
VERSIONS = (0, 5)


def handle(request: Struct, call: Call) -> Struct:
    if request.transactionalId is not None:
        if not request.transactionalId:
            raise InvalidRequest("a transactional id is not empty")
        raise CoordinatorNotAvailable()
    if call.version >= 3 and (request.producerId < 0) != (request.producerEpoch < 0):
        raise InvalidRequest("a producer id goes with an epoch")
    return call.answer()(producerId=call.rooms.producer_ids.next(), producerEpoch=0)


def refuse(request: Struct, code: int, call: Call) -> Struct:
    return call.answer()(errorCode=code, producerId=-1, producerEpoch=-1)
