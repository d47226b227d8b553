"""IncrementalAlterConfigs (44), versions 0-1: single settings of topics and brokers.

SET a value, DELETE it (what it follows counts again), APPEND to a list, SUBTRACT from one. All
changes of a resource are made or none, and they are in force when they are answered. The broker
named "" stands for every broker. validateOnly checks and changes nothing.

v1 flexible.
"""

from barnabas.api.call import Call
from barnabas.api.config_resources import BROKER, TOPIC, broker_of, each_resource
from barnabas.controller.config_changes import Change
from barnabas.errors import InvalidRequest
from barnabas.wire import Struct

KEY = 44
VERSIONS = (0, 1)


def handle(request: Struct, call: Call) -> Struct:
    def alter(resource: Struct, call: Call) -> None:
        changes = [Change(row.name, row.configOperation, row.value) for row in resource.configs]
        name = resource.resourceName
        if resource.resourceType == TOPIC:
            call.rooms.configs.change_topic(name, changes, request.validateOnly)
        elif resource.resourceType == BROKER:
            broker_id = broker_of(name, call)
            call.rooms.configs.change_broker(broker_id, changes, request.validateOnly)
        else:
            raise InvalidRequest(f"resources of type {resource.resourceType} are not altered here")

    return call.answer()(responses=each_resource(request, call, alter))


def refuse(request: Struct, code: int, call: Call) -> Struct:
    row = call.struct("responses")
    return call.answer()(
        responses=[
            row(
                errorCode=code,
                errorMessage=None,
                resourceType=resource.resourceType,
                resourceName=resource.resourceName,
            )
            for resource in request.resources
        ]
    )
