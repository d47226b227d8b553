"""ListConfigResources (74), versions 0-1: the names of what has a configuration.

Topics and brokers have one here. Other kinds that Kafka knows are answered with none, kinds that
nobody knows with UNSUPPORTED_VERSION. No kinds means all.

v0 client metrics subscriptions alone; v1 kinds.
"""

from barnabas.api.call import Call
from barnabas.api.config_resources import BROKER, TOPIC
from barnabas.errors import UnsupportedVersion
from barnabas.wire import Struct

KEY = 74
VERSIONS = (0, 1)
BROKER_LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32
KNOWN = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}


def handle(request: Struct, call: Call) -> Struct:
    kinds = {CLIENT_METRICS} if call.version == 0 else set(request.resourceTypes) or KNOWN
    if not kinds <= KNOWN:
        raise UnsupportedVersion()
    state = call.rooms.cluster()
    row = call.struct("configResources")
    rows = []
    if TOPIC in kinds:
        rows += [row(resourceName=name, resourceType=TOPIC) for name in sorted(state.topics)]
    if BROKER in kinds:
        ids = sorted(state.brokers)
        rows += [row(resourceName=str(broker), resourceType=BROKER) for broker in ids]
    return call.answer()(configResources=rows)


def refuse(request: Struct, code: int, call: Call) -> Struct:
    return call.answer()(errorCode=code, configResources=[])
