"""AlterConfigs (33), versions 0-2: replaces the configurations of topics, brokers, groups and
client metrics subscriptions.

It deletes the settings that the request does not name; therefore clients prefer
IncrementalAlterConfigs (44). The broker named "" means every broker.

v1 nothing on the wire; v2 flexible.
"""

from barnabas.api.access import Access, RowPermission
from barnabas.api.call import Call
from barnabas.api.config_resources import (
    BROKER,
    ENTITIES,
    TOPIC,
    broker_of,
    each_resource,
    resource_of,
)
from barnabas.api.contexts import ConfigContext
from barnabas.api.k44_incremental_alter_configs import refuse as refuse
from barnabas.errors import InvalidRequest
from barnabas.security.acl_codes import ALTER_CONFIGS
from barnabas.wire import Struct

KEY = 33
VERSIONS = (0, 2)
CONTEXT = ConfigContext
ACCESS = Access(rows=RowPermission(ALTER_CONFIGS, "resources", "responses", resource_of))


def handle(request: Struct, call: Call[ConfigContext]) -> Struct:
    def alter(resource: Struct, call: Call[ConfigContext]) -> None:
        for row in resource.configs:
            if row.value is None:
                raise InvalidRequest(f"Null value not supported for : {row.name}")
        texts = {row.name: row.value for row in resource.configs}
        name = resource.resourceName
        if resource.resourceType == TOPIC:
            call.context.configs.replace_topic(name, texts, request.validateOnly)
        elif resource.resourceType == BROKER:
            broker_id = broker_of(name, call)
            call.context.configs.replace_broker(broker_id, texts, request.validateOnly)
        elif resource.resourceType in ENTITIES:
            kind = ENTITIES[resource.resourceType]
            call.context.entities.replace(kind, name, texts, request.validateOnly)
        else:
            raise InvalidRequest(f"Unknown resource type {resource.resourceType}")

    return call.answer()(responses=each_resource(request, call, alter))
