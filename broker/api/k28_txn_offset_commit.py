"""TxnOffsetCommit (28), versions 0-6: offsets of a group that count when the transaction commits.

A native handler answers it on the network threads (next: cext/coordinator/offset_commit.pyx). It
passes a request here when it has as many commits as it may have; Python takes them, and the handler
goes on. The group's partition of __consumer_offsets must be part of the transaction. Until the
marker comes the offsets stay apart, and a request for stable offsets is answered with a retriable
error.

v2 leader epochs; v3 flexible, generation and member are checked; v4 TRANSACTION_ABORTABLE; v5 the
partition is added to the transaction here (KIP-890), without AddOffsetsToTxn; v6 topic ids.
"""

from barnabas.api.access import Access
from barnabas.api.by_partition import with_code
from barnabas.api.call import Call
from barnabas.api.contexts import TransactionContext
from barnabas.api.later import Later
from barnabas.security.acl_codes import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from barnabas.wire import Struct

KEY = 28
VERSIONS = (0, 6)
CONTEXT = TransactionContext
ACCESS = Access(native=((WRITE, TRANSACTIONAL_ID), (READ, GROUP), (READ, TOPIC)))


def handle(request: Struct, call: Call[TransactionContext]) -> Later:
    call.context.groups.take_commits()
    return call.proceed()


def refuse(request: Struct, code: int, call: Call[TransactionContext]) -> Struct:
    return with_code(request, code, call)
