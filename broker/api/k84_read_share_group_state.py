"""ReadShareGroupState (84), version 0: the state of share partitions, for their leader.

The coordinator stores the leader's epoch and refuses older ones from then on. Brokers send it to
each other; the answer is sent when the epoch is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.api.later import Later
from barnabas.api.share_state_rows import Done, Fields, answered, refused
from barnabas.errors import KafkaError
from barnabas.security.acl_codes import CLUSTER_ACTION
from barnabas.wire import Struct

if TYPE_CHECKING:
    from barnabas.coordinator.share.share_state import ShareKey, StoredShare

KEY = 84
VERSIONS = (0, 0)
CONTEXT = ShareContext
ACCESS = of_cluster(CLUSTER_ACTION)


def handle(request: Struct, call: Call[ShareContext]) -> Struct | Later:
    share = call.context.share()
    share.check_enabled()
    batch_of = call.struct("results.partitions.stateBatches")

    def read(key: ShareKey, row: Struct, done: Done) -> None:
        def found(error: KafkaError | None, kept: StoredShare | None) -> None:
            if kept is None:
                done(error)
                return
            batches = [
                batch_of(
                    firstOffset=batch.first,
                    lastOffset=batch.last,
                    deliveryState=batch.state,
                    deliveryCount=batch.deliveries,
                )
                for batch in kept.batches
            ]
            fields: Fields = {
                "stateEpoch": kept.state_epoch,
                "startOffset": kept.start,
                "stateBatches": batches,
            }
            done(None, fields)

        share.state.read(key, row.leaderEpoch, found)

    return answered(request, call, read, of_topics=False)


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    return refused(request, code, call)
