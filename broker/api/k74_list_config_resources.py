"""ListConfigResources (74), versions 0-1: the names of the resources that have a configuration.

Topics and brokers (and their loggers) always have one; groups and client metrics subscriptions have
one after a setting was altered. An unknown resource type gets UNSUPPORTED_VERSION. An empty list of
types selects all types.

v0 client metrics subscriptions only; v1 resource types.
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.config_resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    ENTITIES,
    GROUP,
    TOPIC,
)
from barnabas.api.contexts import ConfigContext
from barnabas.errors import UnsupportedVersion
from barnabas.security.acl_codes import DESCRIBE_CONFIGS
from barnabas.wire import Struct

KEY = 74
VERSIONS = (0, 1)
CONTEXT = ConfigContext
ACCESS = of_cluster(DESCRIBE_CONFIGS)
KNOWN = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}


def handle(request: Struct, call: Call[ConfigContext]) -> Struct:
    kinds = {CLIENT_METRICS} if call.version == 0 else set(request.resourceTypes) or KNOWN
    if not kinds <= KNOWN:
        raise UnsupportedVersion()
    state = call.context.cluster()
    row = call.struct("configResources")
    rows = []
    if TOPIC in kinds:
        rows += [row(resourceName=name, resourceType=TOPIC) for name in sorted(state.topics)]
    for kind in (BROKER, BROKER_LOGGER):
        if kind in kinds:
            ids = sorted(state.brokers)
            rows += [row(resourceName=str(broker), resourceType=kind) for broker in ids]
    for kind, entities in ENTITIES.items():
        if kind in kinds:
            names = call.context.entities.names(entities)
            rows += [row(resourceName=name, resourceType=kind) for name in names]
    return call.answer()(configResources=rows)


def refuse(request: Struct, code: int, call: Call[ConfigContext]) -> Struct:
    return call.answer()(errorCode=code, configResources=[])
