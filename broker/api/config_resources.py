"""Resource types and names, as DescribeConfigs and the two kinds of AlterConfigs use them."""

from collections import Counter
from collections.abc import Callable

from barnabas.api.call import Call
from barnabas.api.contexts import ConfigContext
from barnabas.api.store_errors import ANSWERED, kafka_error_of
from barnabas.controller import entity_configs
from barnabas.errors import BrokerIdNotRegistered, InvalidRequest
from barnabas.security import acl_codes
from barnabas.wire import Struct

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

# Who may see and alter which: the settings of brokers belong to the cluster.
RESOURCES = {
    TOPIC: acl_codes.TOPIC,
    GROUP: acl_codes.GROUP,
    BROKER: acl_codes.CLUSTER,
    BROKER_LOGGER: acl_codes.CLUSTER,
    CLIENT_METRICS: acl_codes.CLUSTER,
}

# The types whose configurations need no existing resource, and the kind of their nodes.
ENTITIES = {CLIENT_METRICS: entity_configs.CLIENT_METRICS, GROUP: entity_configs.GROUPS}


def resource_of(row: Struct) -> tuple[int, str] | None:
    """Returns the resource that a row of a request names, as type and name of access rules; None
    for an unknown type."""
    resource_type = RESOURCES.get(row.resourceType)
    if resource_type is None:
        return None
    is_cluster = resource_type == acl_codes.CLUSTER
    return resource_type, acl_codes.CLUSTER_NAME if is_cluster else row.resourceName


def broker_of(name: str, call: Call[ConfigContext]) -> int | None:
    """Returns the id of the broker that a resource names; None for "", which means every broker.
    Raises InvalidRequest, BrokerIdNotRegistered."""
    if not name:
        return None
    if not (name.isascii() and name.isdecimal() and len(name) <= 10):
        raise InvalidRequest(f"{name[:60]!r} is not a broker id")
    if int(name) not in call.context.cluster().brokers:
        raise BrokerIdNotRegistered(f"there is no broker {name}")
    return int(name)


def each_resource(
    request: Struct, call: Call[ConfigContext], alter: Callable[[Struct, Call[ConfigContext]], None]
) -> list[Struct]:
    """Calls `alter` for each resource of the request, and returns the rows of the answer. The error
    of one resource does not stop the others."""
    asked = Counter((row.resourceType, row.resourceName) for row in request.resources)
    rows = []
    for (kind, name), count in asked.items():
        resource = next(
            row for row in request.resources if (row.resourceType, row.resourceName) == (kind, name)
        )
        answer = call.struct("responses")(resourceType=kind, resourceName=name, errorMessage=None)
        try:
            if count > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            names = Counter(config.name for config in resource.configs)
            if names and max(names.values()) > 1:
                raise InvalidRequest("Error due to duplicate config keys")
            alter(resource, call)
        except ANSWERED as failure:
            error = kafka_error_of(failure, call)
            answer.errorCode, answer.errorMessage = error.code, error.message
        rows.append(answer)
    return rows
