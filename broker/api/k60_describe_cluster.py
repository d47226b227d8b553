"""DescribeCluster (60), versions 0-2: the brokers with their addresses of the client's listener,
and the controller.

Every client may ask. One that may not describe the cluster gets no authorized operations.

v1 endpoint type (1 brokers; 2 controllers, which have no listeners here); v2 fenced brokers; this
broker has none.
"""

from barnabas.api.access import NOT_ASKED, Access
from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.errors import KafkaError, MismatchedEndpointType, UnsupportedEndpointType
from barnabas.security.acl_codes import CLUSTER, DESCRIBE
from barnabas.wire import Struct

KEY = 60
VERSIONS = (0, 2)
CONTEXT = MetadataContext
ACCESS = Access(elsewhere="nothing but authorized operations: clients ask it to connect")
BROKERS, CONTROLLERS = 1, 2


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
    allowed = NOT_ASKED
    if request.includeClusterAuthorizedOperations:
        allowed = call.authorized_operations(CLUSTER) if call.may(DESCRIBE) else 0
    return call.answer()(
        clusterId=call.context.cluster_id,
        controllerId=-1 if state.controller_id is None else state.controller_id,
        brokers=brokers,
        clusterAuthorizedOperations=allowed,
    )


def refuse(request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    return call.answer()(errorCode=code)
