"""DescribeConfigs (32), versions 0-4: the settings of topics, brokers, groups and client metrics
subscriptions with their sources, and the levels of a broker's loggers.

A row shows the value in force; its synonyms are all values that apply, the one with the highest
priority first. A broker answers only for itself; the broker named "" has the dynamic settings of
all brokers. Passwords and unknown settings have no value in the answer. An empty or null list of
names selects all settings.

v1 source and synonyms (v0 has isDefault, always false, as in Kafka); v3 type and documentation; v4
flexible.
"""

from barnabas.api.access import Access, RowPermission
from barnabas.api.call import Call
from barnabas.api.config_resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    ENTITIES,
    GROUP,
    TOPIC,
    resource_of,
)
from barnabas.api.contexts import ConfigContext
from barnabas.config.layers import BROKER_LOGGER as BROKER_LOGGER_SOURCE
from barnabas.config.layers import ConfigEntry
from barnabas.controller.topic_names import check_topic_name
from barnabas.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from barnabas.security.acl_codes import DESCRIBE_CONFIGS
from barnabas.telemetry import loggers
from barnabas.wire import Struct

KEY = 32
VERSIONS = (0, 4)
CONTEXT = ConfigContext
ACCESS = Access(rows=RowPermission(DESCRIBE_CONFIGS, "resources", "results", resource_of))
UNKNOWN_TYPE = 0
ENTITY_TITLES = {CLIENT_METRICS: "Client metrics subscription", GROUP: "Group"}


def handle(request: Struct, call: Call[ConfigContext]) -> Struct:
    result_of = call.struct("results")
    rows = []
    for resource in request.resources:
        kind, name = resource.resourceType, resource.resourceName
        row = result_of(resourceType=kind, resourceName=name, errorMessage="", configs=[])
        try:
            entries = _entries(kind, name, resource.configurationKeys or None, call)
            row.configs = [_config(entry, request, call) for entry in entries]
        except UnknownTopicOrPartition as error:
            row.errorCode = error.code  # Kafka sends no message with it
        except KafkaError as error:
            row.errorCode, row.errorMessage = error.code, error.message
        rows.append(row)
    return call.answer()(results=rows)


def refuse(request: Struct, code: int, call: Call[ConfigContext]) -> Struct:
    row = call.struct("results")
    return call.answer()(
        results=[
            row(
                errorCode=code,
                resourceType=resource.resourceType,
                resourceName=resource.resourceName,
            )
            for resource in request.resources
        ]
    )


def _entries(
    kind: int, name: str, names: list[str] | None, call: Call[ConfigContext]
) -> list[ConfigEntry]:
    context = call.context
    if kind == TOPIC:
        check_topic_name(name)
        state = context.cluster()
        topic = state.topic(name)
        if topic is None or topic.deleting:
            raise UnknownTopicOrPartition()
        return context.config_of_topic(state.config("topics", name)).describe(names)
    if kind == BROKER:
        if name not in ("", str(context.node_id)):
            raise InvalidRequest(
                f"Unexpected broker id, expected {context.node_id} or empty string, but received"
                f" {name[:60]}"
            )
        return context.dynamic.describe(names, broker_id=context.node_id if name else None)
    if kind == BROKER_LOGGER:
        return _loggers(name, names, context.node_id)
    if kind in ENTITIES:
        if not name:
            raise InvalidRequest(f"{ENTITY_TITLES[kind]} name must not be empty")
        return context.entities.describe(ENTITIES[kind], name, names)
    raise InvalidRequest()


def _loggers(name: str, names: list[str] | None, node_id: int) -> list[ConfigEntry]:
    if not name:
        raise InvalidRequest("Broker id must not be empty")
    if not (name.isascii() and name.isdecimal()):
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name[:60]}")
    if name != str(node_id):
        raise InvalidRequest(f"Unexpected broker id, expected {node_id} but received {name[:60]}")
    return [
        ConfigEntry(
            name=logger,
            value=level,
            read_only=False,
            source=BROKER_LOGGER_SOURCE,
            is_sensitive=False,
            synonyms=[],
            type=UNKNOWN_TYPE,
            documentation="",
        )
        for logger, level in loggers.levels().items()
        if names is None or logger in names
    ]


def _config(entry: ConfigEntry, request: Struct, call: Call[ConfigContext]) -> Struct:
    row = call.struct("results.configs")(
        name=entry.name,
        value=entry.value,
        readOnly=entry.read_only,
        isSensitive=entry.is_sensitive,
    )
    if call.version >= 1:
        row.configSource = entry.source
        if request.includeSynonyms:
            synonym_of = call.struct("results.configs.synonyms")
            row.synonyms = [
                synonym_of(name=name, value=value, source=source)
                for name, value, source in entry.synonyms
            ]
    if call.version >= 3:
        row.configType = entry.type
        row.documentation = entry.documentation if request.includeDocumentation else None
    return row
