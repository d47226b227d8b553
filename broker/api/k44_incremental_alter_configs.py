"""IncrementalAlterConfigs (44), versions 0-1: changes single settings of topics, brokers, groups
and client metrics subscriptions, and the levels of a broker's loggers.

SET sets a value, DELETE removes it (the broker's value or the default is in force again), APPEND
adds to a list, SUBTRACT removes from one. The broker makes all changes of a resource or none, and
they are in force when the answer is sent. The broker named "" means every broker. validateOnly
checks and changes nothing.

v1 flexible.
"""

from barnabas.api.access import Access, RowPermission
from barnabas.api.call import Call
from barnabas.api.config_resources import (
    BROKER,
    BROKER_LOGGER,
    ENTITIES,
    TOPIC,
    broker_of,
    each_resource,
    resource_of,
)
from barnabas.api.contexts import ConfigContext
from barnabas.config.incremental import APPEND, DELETE, SET, SUBTRACT
from barnabas.controller.config_changes import Change
from barnabas.errors import InvalidRequest
from barnabas.security.acl_codes import ALTER_CONFIGS
from barnabas.telemetry import loggers
from barnabas.wire import Struct

KEY = 44
VERSIONS = (0, 1)
CONTEXT = ConfigContext
ACCESS = Access(rows=RowPermission(ALTER_CONFIGS, "resources", "responses", resource_of))
NOT_FOR_LOGGERS = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def handle(request: Struct, call: Call[ConfigContext]) -> Struct:
    def alter(resource: Struct, call: Call[ConfigContext]) -> None:
        changes = [Change(row.name, row.configOperation, row.value) for row in resource.configs]
        name = resource.resourceName
        if resource.resourceType == TOPIC:
            call.context.configs.change_topic(name, changes, request.validateOnly)
        elif resource.resourceType == BROKER:
            broker_id = broker_of(name, call)
            call.context.configs.change_broker(broker_id, changes, request.validateOnly)
        elif resource.resourceType in ENTITIES:
            kind = ENTITIES[resource.resourceType]
            call.context.entities.change(kind, name, changes, request.validateOnly)
        elif resource.resourceType == BROKER_LOGGER:
            _alter_loggers(name, changes, request.validateOnly, call)
        else:
            raise InvalidRequest(f"Unknown resource type {resource.resourceType}")

    return call.answer()(responses=each_resource(request, call, alter))


def _alter_loggers(
    name: str, changes: list[Change], validate_only: bool, call: Call[ConfigContext]
) -> None:
    """Sets or deletes the levels of loggers; a logger without its own level uses that of its
    parent. Raises InvalidRequest and InvalidConfig before it changes any level."""
    if not (name.isascii() and name.isdecimal()):
        raise InvalidRequest(f"Node id must be an integer, but it is: {name[:60]}")
    if name != str(call.context.node_id):
        raise InvalidRequest(
            f"Unexpected node id. Expected {call.context.node_id}, but received {name[:60]}"
        )
    levels: dict[str, str | None] = {}
    for change in changes:
        if change.operation in NOT_FOR_LOGGERS:
            operation = NOT_FOR_LOGGERS[change.operation]
            raise InvalidRequest(
                f"{operation} operation is not allowed for the BROKER_LOGGER resource"
            )
        if change.operation not in (SET, DELETE):
            raise InvalidRequest(f"operation {change.operation} is not known")
        if change.operation == SET and change.value is None:
            raise InvalidRequest(f"Null value not supported for : {change.name[:60]}")
        levels[change.name] = None if change.operation == DELETE else change.value
        loggers.check_level(change.name, levels[change.name])
    if not validate_only:
        for logger, level in levels.items():
            loggers.set_level(logger, level)


def refuse(request: Struct, code: int, call: Call[ConfigContext]) -> Struct:
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
