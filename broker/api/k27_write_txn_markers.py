"""WriteTxnMarkers (27), versions 0-2: writes transaction markers for a coordinator or an
administrator.

`kafka-transactions abort` and `barnabas transactions abort` end hanging transactions this way,
which their coordinator does not know. The answer is sent when every marker is durable.

v1 flexible; v2 the transaction version: from 2 on a marker's epoch is above its transaction's, and
a marker with the epoch of the open transaction is a late one.
"""

import threading

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import TransactionContext
from barnabas.api.later import Later
from barnabas.coordinator.txn_markers import Codes, MarkerOrder
from barnabas.security.acl_codes import ALTER, CLUSTER_ACTION
from barnabas.wire import Struct

KEY = 27
VERSIONS = (0, 2)
CONTEXT = TransactionContext
ACCESS = Access(elsewhere="handle: ALTER of the cluster, or CLUSTER_ACTION")


def handle(request: Struct, call: Call[TransactionContext]) -> Struct | Later:
    if not call.may(ALTER, quiet=True):
        call.require(CLUSTER_ACTION)
    if not request.markers:
        return call.answer()(markers=[])
    later = Later()
    lock = threading.Lock()
    found: dict[int, Codes] = {}

    def settle(at: int, codes: Codes) -> None:
        with lock:
            found[at] = codes
            last = len(found) == len(request.markers)
        if last:
            later.settle(_answer(request, found, call))

    for at, marker in enumerate(request.markers):
        order = MarkerOrder(
            marker.producerId,
            marker.producerEpoch,
            marker.transactionResult,
            marker.coordinatorEpoch,
            marker.transactionVersion,
            frozenset(
                (topic.name, index) for topic in marker.topics for index in topic.partitionIndexes
            ),
        )
        call.context.markers.write_once(
            order,
            lambda codes, at=at: settle(at, codes),  # type: ignore[misc]
        )
    return later


def _answer(request: Struct, found: dict[int, Codes], call: Call[TransactionContext]) -> Struct:
    marker_of, topic_of = call.struct("markers"), call.struct("markers.topics")
    row_of = call.struct("markers.topics.partitions")
    return call.answer()(
        markers=[
            marker_of(
                producerId=marker.producerId,
                topics=[
                    topic_of(
                        name=topic.name,
                        partitions=[
                            row_of(partitionIndex=index, errorCode=found[at][topic.name, index])
                            for index in topic.partitionIndexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for at, marker in enumerate(request.markers)
        ]
    )


def refuse(request: Struct, code: int, call: Call[TransactionContext]) -> Struct:
    found: dict[int, Codes] = {
        at: {
            (topic.name, index): code for topic in marker.topics for index in topic.partitionIndexes
        }
        for at, marker in enumerate(request.markers)
    }
    return _answer(request, found, call)
