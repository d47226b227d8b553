"""ReadShareGroupStateSummary (87), versions 0-1: epochs and start offset of partitions' states.

Brokers send it to each other to describe share groups. v1 adds the count of completed records above
the start offset.
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

KEY = 87
VERSIONS = (0, 1)
CONTEXT = ShareContext
ACCESS = of_cluster(CLUSTER_ACTION)


def handle(request: Struct, call: Call[ShareContext]) -> Struct | Later:
    from barnabas.coordinator.share.share_state import UNINITIALIZED_OFFSET

    share = call.context.share()
    share.check_enabled()

    def read(key: ShareKey, _row: Struct, done: Done) -> None:
        def found(error: KafkaError | None, kept: StoredShare | None) -> None:
            fields: Fields = {"startOffset": UNINITIALIZED_OFFSET}
            if kept is not None:
                fields = {
                    "stateEpoch": kept.state_epoch,
                    "leaderEpoch": kept.leader_epoch,
                    "startOffset": kept.start,
                    "deliveryCompleteCount": kept.complete_count,
                }
            done(error, fields)

        share.state.summary(key, found)

    return answered(request, call, read)


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    return refused(request, code, call)
