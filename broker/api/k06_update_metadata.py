"""UpdateMetadata (6), versions 0-8: the controller sends all brokers leaders and ISRs.

This node reads brokers, topics, configurations and deleted topics from the metadata tree. It takes
the partition states from this request, so it does not read them from the tree one by one.

v1 endpoints; v2 racks; v3 listener names; v4 offline replicas; v5 by topic, broker epoch; v6
flexible; v7 topic ids; v8 KRaft migration.
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ReplicaContext
from barnabas.api.controller_requests import IS_DELETED, check_sender, partition_updates
from barnabas.security.acl_codes import CLUSTER_ACTION
from barnabas.wire import Struct

KEY = 6
VERSIONS = (0, 8)
CONTEXT = ReplicaContext
ACCESS = of_cluster(CLUSTER_ACTION)
UNGROUPED_TO = 4


def handle(request: Struct, call: Call[ReplicaContext]) -> Struct:
    check_sender(request, call)
    updates = partition_updates(request, UNGROUPED_TO, call.version)
    call.context.apply_updates([row for row in updates if row.state.leader != IS_DELETED], False)
    return call.answer()(errorCode=0)


def refuse(_request: Struct, code: int, call: Call[ReplicaContext]) -> Struct:
    return call.answer()(errorCode=code)
