"""ControlledShutdown (7), versions 1-3: a broker that stops asks the controller to move its
leadership.

The answer has the replicated partitions that the broker still leads, because no other member of
their ISR is alive; the broker asks again a few times before it stops.

v2 broker epoch; v3 flexible. Version 0 has a request header of its own, and no broker since 0.8.2
sends it.
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ControllerContext
from barnabas.errors import StaleBrokerEpoch, error_of
from barnabas.security.acl_codes import CLUSTER_ACTION
from barnabas.wire import Struct

KEY = 7
VERSIONS = (1, 3)
CONTEXT = ControllerContext
ACCESS = of_cluster(CLUSTER_ACTION)
ANY_EPOCH = -1


def handle(request: Struct, call: Call[ControllerContext]) -> Struct:
    check = call.context.controller_role.required()
    broker = call.context.cluster().brokers.get(request.brokerId)
    if broker is not None and request.brokerEpoch not in (ANY_EPOCH, broker.epoch):
        raise StaleBrokerEpoch()
    remaining = call.context.elections().leave(check, request.brokerId)
    row = call.struct("remainingPartitions")
    return call.answer()(
        errorCode=0,
        remainingPartitions=[
            row(topicName=name, partitionIndex=index) for name, index in remaining
        ],
    )


def refuse(request: Struct, code: int, call: Call[ControllerContext]) -> Struct:
    return call.answer()(errorCode=error_of(code).code, remainingPartitions=[])
