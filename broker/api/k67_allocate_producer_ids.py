"""AllocateProducerIds (67), version 0: gives a broker the next block of producer ids (KIP-730).

Nodes of barnabas take their blocks from the tree; Kafka's brokers ask the controller.
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ControllerContext
from barnabas.errors import BrokerIdNotRegistered, StaleBrokerEpoch
from barnabas.metadata.producer_ids import BLOCK_SIZE
from barnabas.security.acl_codes import CLUSTER_ACTION
from barnabas.wire import Struct

KEY = 67
VERSIONS = (0, 0)
CONTEXT = ControllerContext
ACCESS = of_cluster(CLUSTER_ACTION)


def handle(request: Struct, call: Call[ControllerContext]) -> Struct:
    call.context.controller_role.required()
    broker = call.context.cluster().brokers.get(request.brokerId)
    if broker is None:
        raise BrokerIdNotRegistered()
    if request.brokerEpoch not in (-1, broker.epoch):
        raise StaleBrokerEpoch()
    block = call.context.producer_ids(request.brokerId)
    return call.answer()(errorCode=0, producerIdStart=block.block_start, producerIdLen=BLOCK_SIZE)


def refuse(_request: Struct, code: int, call: Call[ControllerContext]) -> Struct:
    return call.answer()(errorCode=code)
