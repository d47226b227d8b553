"""WriteShareGroupState (85), versions 0-1: writes changes of the state of share partitions.

Brokers send it to each other; the answer is sent when the changes are durable. v1 the number of
completed records above the start offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.api.later import Later
from barnabas.api.share_state_rows import Done, answered, refused
from barnabas.security.acl_codes import CLUSTER_ACTION
from barnabas.wire import Struct

if TYPE_CHECKING:
    from barnabas.coordinator.share.share_state import ShareKey

KEY = 85
VERSIONS = (0, 1)
CONTEXT = ShareContext
ACCESS = of_cluster(CLUSTER_ACTION)


def handle(request: Struct, call: Call[ShareContext]) -> Struct | Later:
    from barnabas.coordinator.share.share_partition import StateBatch

    share = call.context.share()
    share.check_enabled()

    def write(key: ShareKey, row: Struct, done: Done) -> None:
        batches = [
            StateBatch(
                batch.firstOffset, batch.lastOffset, batch.deliveryState, batch.deliveryCount
            )
            for batch in row.stateBatches
        ]
        share.state.write(
            key,
            row.stateEpoch,
            row.leaderEpoch,
            row.startOffset,
            row.deliveryCompleteCount,
            batches,
            done,
        )

    return answered(request, call, write, of_topics=False)


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    return refused(request, code, call)
