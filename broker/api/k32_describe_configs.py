"""DescribeConfigs (32), versions 0-4: settings of topics and brokers with where each comes from.

A topic's row shows the value in force; its synonyms are every value it could follow, best first.
A broker answers for itself; the broker named "" is what was altered for all of them. Passwords and
settings that nobody knows have no value in the answer. No names, or none at all, means every one.

v1 source and synonyms (v0 has isDefault, always false, as Kafka answers it); v3 type and
documentation; v4 flexible.
"""

from barnabas.api.call import Call
from barnabas.api.config_resources import BROKER, TOPIC
from barnabas.config.layers import ConfigEntry
from barnabas.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from barnabas.wire import Struct

KEY = 32
VERSIONS = (0, 4)


def handle(request: Struct, call: Call) -> Struct:
    result_of = call.struct("results")
    rows = []
    for resource in request.resources:
        kind, name = resource.resourceType, resource.resourceName
        row = result_of(resourceType=kind, resourceName=name, errorMessage="", configs=[])
        try:
            entries = _entries(kind, name, resource.configurationKeys or None, call)
            row.configs = [_config(entry, request, call) for entry in entries]
        except UnknownTopicOrPartition as error:
            row.errorCode = error.code  # Kafka gives it no message
        except KafkaError as error:
            row.errorCode, row.errorMessage = error.code, error.message
        rows.append(row)
    return call.answer()(results=rows)


def refuse(request: Struct, code: int, call: Call) -> Struct:
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


def _entries(kind: int, name: str, names: list[str] | None, call: Call) -> list[ConfigEntry]:
    rooms = call.rooms
    if kind == TOPIC:
        state = rooms.cluster()
        topic = state.topic(name)
        if topic is None or topic.deleting:
            raise UnknownTopicOrPartition()
        return rooms.config_of_topic(state.config("topics", name)).describe(names)
    if kind == BROKER:
        if name not in ("", str(rooms.node_id)):
            raise InvalidRequest(
                f"Unexpected broker id, expected {rooms.node_id} or empty string, but received"
                f" {name[:60]}"
            )
        return rooms.dynamic.describe(names, broker_id=rooms.node_id if name else None)
    raise InvalidRequest(f"resources of type {kind} are not described here")


def _config(entry: ConfigEntry, request: Struct, call: Call) -> Struct:
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
