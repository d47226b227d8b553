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
from barnabas.api.share_state_rows import Done, answered, refused
from barnabas.security.acl_codes import CLUSTER_ACTION
from barnabas.wire import Struct

if TYPE_CHECKING:
    from barnabas.coordinator.share.share_state import ShareKey

KEY = 87
VERSIONS = (0, 1)
CONTEXT = ShareContext
ACCESS = of_cluster(CLUSTER_ACTION)


def handle(request: Struct, call: Call[ShareContext]) -> Struct | Later:
    from barnabas.coordinator.share.share_state import UNINITIALIZED_OFFSET

    share = call.context.share()
    share.check_enabled()

    def read(key: ShareKey, row: Struct, _done: Done) -> dict[str, object]:
        kept = share.state.summary(key)
        if kept is None:
            return {"startOffset": UNINITIALIZED_OFFSET}
        fields: dict[str, object] = {
            "stateEpoch": kept.state_epoch,
            "leaderEpoch": kept.leader_epoch,
            "startOffset": kept.start,
            "deliveryCompleteCount": kept.complete_count,
        }
        return fields

    return answered(request, call, read, at_once=True)


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    return refused(request, code, call)
