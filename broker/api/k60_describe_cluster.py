"""DescribeCluster (60), versions 0-2: the brokers with their addresses of the client's listener,
and the controller.

Without an authorizer every operation is allowed: a request for the authorized operations receives
all operations of a cluster.

v1 endpoint type (1 brokers; 2 controllers, which have no listeners here); v2 fenced brokers; this
broker has none.
"""

from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.errors import KafkaError, MismatchedEndpointType, UnsupportedEndpointType
from barnabas.wire import Struct

KEY = 60
VERSIONS = (0, 2)
CONTEXT = MetadataContext
BROKERS, CONTROLLERS = 1, 2
NOT_ASKED = -(2**31)
# Bits by the numbers of AclOperation: create 5, alter 7, describe 8, cluster action 9,
# describe configs 10, alter configs 11, idempotent write 12.
ALL_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    if call.version >= 1 and request.endpointType != BROKERS:
        wrong: KafkaError = UnsupportedEndpointType()
        if request.endpointType == CONTROLLERS:
            wrong = MismatchedEndpointType()
        return call.answer()(errorCode=wrong.code, errorMessage=wrong.message)
    state = call.context.cluster()
    row = call.struct("brokers")
    brokers = [
        row(
            brokerId=broker.broker_id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.registration.rack,
        )
        for broker in state.brokers.values()
        for endpoint in broker.registration.endpoints
        if endpoint.listener_name == call.listener
    ]
    return call.answer()(
        clusterId=call.context.cluster_id,
        controllerId=-1 if state.controller_id is None else state.controller_id,
        brokers=brokers,
        clusterAuthorizedOperations=(
            ALL_OPERATIONS if request.includeClusterAuthorizedOperations else NOT_ASKED
        ),
    )


def refuse(request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    return call.answer()(errorCode=code)
