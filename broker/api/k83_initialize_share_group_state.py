"""InitializeShareGroupState (83), version 0: creates the state of partitions in a share group.

It replaces a former state unless that has a newer state epoch. Brokers send it to each other; the
answer is sent when the state is durable.
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.api.later import Later
from barnabas.api.share_state_rows import answered, refused
from barnabas.security.acl_codes import CLUSTER_ACTION
from barnabas.wire import Struct

KEY = 83
VERSIONS = (0, 0)
CONTEXT = ShareContext
ACCESS = of_cluster(CLUSTER_ACTION)


def handle(request: Struct, call: Call[ShareContext]) -> Struct | Later:
    share = call.context.share()
    share.check_enabled()
    return answered(
        request,
        call,
        lambda key, row, done: share.state.initialize(key, row.stateEpoch, row.startOffset, done),
    )


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    return refused(request, code, call)
