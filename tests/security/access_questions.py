"""What a principal without any right asks of each API, and with which single right it asks again.

Each question is harmless when it is permitted: it names what does not exist, or only validates. It
names a topic that exists (`t`) and one that does not (`ghost`), so that an answer which tells them
apart to someone who may not describe them shows here.

An answer is reduced to the codes of refused access in it, PERMITTED for all other codes, and SEES
when it describes the topic.
"""

import base64
from collections.abc import Iterator
from typing import Any

from compat.answers.asking import fitted
from compat.support import Wire
from oracle.produce import batch

from barnabas.cext.record.records import Record
from barnabas.security import acl_codes
from barnabas.wire import Message, Struct, request, response
from barnabas.wire.batches import encode_batch
from barnabas.wire.json_form import to_json
from barnabas.wire.messages import below

REFUSED = {29, 30, 31, 53, 58, 65}  # codes of refused access; 58: the login
PERMITTED = "ok"
CLOSED = "closed"
SEES = "sees"
TOPIC, GHOST, NEW, GROUP, TXN_ID = "t", "ghost", "new", "g", "x"
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
UNKNOWN_ID = "AAECAwQFBgcICQoLDA0ODw"
MEMBER = "AAECAwQFBgcICQoLDA0ODg"
BATCH = base64.b64encode(encode_batch([Record(b"value")])).decode()
TRANSACTIONAL = batch(1, producer_id=1, producer_epoch=0, base_sequence=0, attributes=0x10)
IN_TRANSACTION = base64.b64encode(TRANSACTIONAL).decode()

NAMES = {
    "TOPIC": (TOPIC, GHOST),
    "GROUP": (GROUP,),
    "CLUSTER": (acl_codes.CLUSTER_NAME,),
    "TRANSACTIONAL_ID": (TXN_ID,),
}
_SINGLE = {
    "TOPIC": "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    "GROUP": "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    "CLUSTER": "CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS"
    " IDEMPOTENT_WRITE",
    "TRANSACTIONAL_ID": "WRITE DESCRIBE",
}
OLD_CONTROLLER = (4, 5, 6)
# Each single right, and some that are needed together: "READ GROUP + READ TOPIC".
RIGHTS = (
    "nothing",
    *(f"{operation} {kind}" for kind, known in _SINGLE.items() for operation in known.split()),
    "READ GROUP + READ TOPIC",
    "READ GROUP + DESCRIBE TOPIC",
    "DESCRIBE GROUP + DESCRIBE TOPIC",
    "DELETE GROUP + READ TOPIC",
    "CREATE TOPIC + DESCRIBE TOPIC",
    "CREATE TOPIC + DESCRIBE_CONFIGS TOPIC",
    "WRITE TRANSACTIONAL_ID + WRITE TOPIC",
    "WRITE TRANSACTIONAL_ID + READ GROUP",
    "WRITE TRANSACTIONAL_ID + READ GROUP + READ TOPIC",
)


def rights_of(text: str) -> list[tuple[int, int, str]]:
    """(operation, resource type, name) of one of RIGHTS."""
    parts = [] if text == "nothing" else [part.split() for part in text.split(" + ")]
    return [
        (acl_codes.OPERATIONS[operation], acl_codes.RESOURCE_TYPES[kind], name)
        for operation, kind in parts
        for name in NAMES[kind]
    ]


def _topics(**partition: Any) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": [partition]} for name in (TOPIC, GHOST)]


def _named(field: str, **partition: Any) -> list[dict[str, Any]]:
    return [{field: name, "partitions": [partition]} for name in (TOPIC, GHOST)]


_INDEXES = [{"name": name, "partitions": [0]} for name in (TOPIC, GHOST)]
_CONFIG = {"name": "retention.ms", "value": "1000", "configOperation": 0}
_RESOURCES = [
    {"resourceType": 2, "resourceName": TOPIC, "configs": [_CONFIG]},
    {"resourceType": 2, "resourceName": GHOST, "configs": [_CONFIG]},
    {"resourceType": 4, "resourceName": "1", "configs": []},
    {"resourceType": 8, "resourceName": "1", "configs": []},
    {"resourceType": 16, "resourceName": "metrics", "configs": []},
    {"resourceType": 32, "resourceName": GROUP, "configs": []},
]
_FILTER = {
    "resourceTypeFilter": 2,
    "resourceNameFilter": "no-such-rule",
    "patternTypeFilter": 3,
    "principalFilter": None,
    "hostFilter": None,
    "operation": 1,
    "permissionType": 1,
}
_NEW_TOPICS = [
    {"name": name, "numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}
    for name in (TOPIC, NEW)
]


def questions(key: int, version: int, topic_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The cases of one version of an API: a name, and the fields of the request."""
    by_id = [topic_id, UNKNOWN_ID]
    both = list(zip((TOPIC, GHOST), by_id, strict=True))
    offsets = [{"name": n, "partitionIndexes": [0]} for n in (TOPIC, GHOST)]
    offsets_by_id = [{"topicId": i, "partitionIndexes": [0]} for i in by_id]
    producer = {"producerId": 1, "producerEpoch": 0, "transactionalId": TXN_ID}
    if key == 0:
        data = [{"index": 7, "records": BATCH}]
        rows = [{"name": n, "topicId": i, "partitionData": data} for n, i in both]
        yield "two topics", {"acks": 1, "timeoutMs": 5000, "topicData": rows}
        if version < 3:
            return  # no transactional id
        data = [{"index": 7, "records": IN_TRANSACTION}]
        rows = [{"name": TOPIC, "topicId": topic_id, "partitionData": data}]
        fields = {"acks": -1, "timeoutMs": 5000, "topicData": rows, "transactionalId": TXN_ID}
        yield "transactional", fields
    elif key == 1:
        part = {"partition": 7, "fetchOffset": 0, "partitionMaxBytes": 1, "currentLeaderEpoch": -1}
        rows = [{"topic": n, "topicId": i, "partitions": [part]} for n, i in both]
        fields = {"maxWaitMs": 0, "minBytes": 0, "topics": rows, "sessionEpoch": -1}
        yield "a consumer", fields | {"replicaId": -1}
        state = {"replicaId": 7, "replicaEpoch": 1}
        yield "a follower", fields | {"replicaId": 7, "replicaState": state}
        part = part | {"partition": 0, "partitionMaxBytes": 1 << 20}
        rows = [{"topic": n, "topicId": i, "partitions": [part]} for n, i in both]
        state = {"replicaId": 1, "replicaEpoch": -1}
        yield "the leader", fields | {"topics": rows, "replicaId": 1, "replicaState": state}
    elif key in OLD_CONTROLLER:
        yield "an old controller", {"controllerId": 99, "controllerEpoch": 0, "brokerEpoch": 99}
    elif key in (7, 56, 67):
        yield "an unknown broker", {"brokerId": 99, "brokerEpoch": 99}
    elif key == 8:
        part = {"partitionIndex": 7, "committedOffset": 1, "committedMetadata": ""}
        rows = [{"name": n, "topicId": i, "partitions": [part]} for n, i in both]
        yield "two topics", {"groupId": GROUP, "topics": rows}
    elif key == 24:
        one = {"transactionalId": TXN_ID, "producerId": 1, "producerEpoch": 0, "verifyOnly": False}
        old = {f"v3AndBelow{name[0].upper()}{name[1:]}": producer[name] for name in producer}
        fields = old | {"v3AndBelowTopics": _INDEXES, "transactions": [one | {"topics": _INDEXES}]}
        yield "two topics", fields
        one_topic = [{"name": TOPIC, "partitions": [0]}]
        fields = old | {
            "v3AndBelowTopics": one_topic,
            "transactions": [one | {"topics": one_topic}],
        }
        yield "one topic", fields
    elif key == 25:
        yield "a group", producer | {"groupId": GROUP}
    elif key == 26:
        yield "an abort", producer | {"committed": False}
    elif key == 28:
        part = {"partitionIndex": 7, "committedOffset": 1, "committedMetadata": ""}
        rows = [{"name": n, "topicId": i, "partitions": [part]} for n, i in both]
        yield "two topics", producer | {"groupId": GROUP, "topics": rows}
    elif key == 2:
        rows = _topics(partitionIndex=0, timestamp=-1)
        yield "two topics", {"replicaId": -1, "topics": rows}
        yield "the leader", {"replicaId": 1, "topics": rows}
    elif key == 3:
        named = [{"name": name, "topicId": NO_ID} for name in (TOPIC, GHOST)]
        yield "two topics", {"topics": named, "allowAutoTopicCreation": False}
        yield "all topics", {"topics": None if version else [], "allowAutoTopicCreation": False}
        yield "a new topic", {"topics": [named[1]], "allowAutoTopicCreation": True}
        if version >= 12:
            ids = [{"name": None, "topicId": each} for each in by_id]
            yield "ids", {"topics": ids, "allowAutoTopicCreation": False}
    elif key == 9:
        if version < 8:
            yield "two topics", {"groupId": GROUP, "topics": offsets}
        else:
            topics = offsets_by_id if version >= 10 else offsets
            group = {"groupId": GROUP, "memberId": None, "memberEpoch": -1}
            yield "two topics", {"groups": [group | {"topics": topics}]}
    elif key == 10:
        for kind, name in enumerate((GROUP, TXN_ID)):
            if version >= kind:  # version 0 finds groups only
                yield f"type {kind}", {"key": name, "keyType": kind, "coordinatorKeys": [name]}
    elif key in (11, 12, 13, 14):
        fields: dict[str, Any] = {"groupId": GROUP, "memberId": "nobody", "generationId": 1}
        fields |= {"sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 10_000}
        fields |= {"protocolType": "consumer", "protocolName": "range", "groupInstanceId": None}
        fields |= {"protocols": [{"name": "range", "metadata": ""}], "assignments": []}
        fields |= {"members": [{"memberId": "nobody", "groupInstanceId": None, "reason": None}]}
        yield "a member", fields
    elif key == 15:
        yield "a group", {"groups": [GROUP], "includeAuthorizedOperations": True}
    elif key == 16:
        yield "all", {}
    elif key == 19:
        yield "two topics", {"topics": _NEW_TOPICS, "timeoutMs": 5000, "validateOnly": True}
    elif key == 20:
        names = [GHOST]
        named = [{"name": GHOST, "topicId": NO_ID}]
        unknown = [{"name": None, "topicId": UNKNOWN_ID}]
        fields = {"topicNames": names, "topics": named + unknown, "timeoutMs": 5000}
        yield "topics that do not exist", fields
    elif key == 21:
        yield "two topics", {"topics": _topics(partitionIndex=0, offset=0), "timeoutMs": 5000}
    elif key == 22:
        fields = {"transactionTimeoutMs": 60_000, "producerId": -1, "producerEpoch": -1}
        yield "idempotent", fields | {"transactionalId": None}
        yield "transactional", fields | {"transactionalId": TXN_ID, "transactionTimeoutMs": -1}
    elif key == 23:
        fields = {"partition": 0, "leaderEpoch": 0, "currentLeaderEpoch": -1}
        yield "two topics", {"replicaId": -1, "topics": _named("topic", **fields)}
        yield "the leader", {"replicaId": 1, "topics": _named("topic", **fields)}
    elif key == 27:
        marker = {"producerId": 1, "producerEpoch": 0, "transactionResult": False}
        marker |= {"coordinatorEpoch": 0, "topics": [{"name": GHOST, "partitionIndexes": [7]}]}
        yield "a marker", {"markers": [marker]}
    elif key in (29, 31):
        yield "a filter", _FILTER | {"filters": [_FILTER]}
    elif key == 30:
        rule = {"resourceType": 4, "resourceName": "bad", "resourcePatternType": 3}
        rule |= {"principal": "User:a", "host": "*", "operation": 3, "permissionType": 3}
        yield "a rule with a bad name", {"creations": [rule]}
    elif key == 32:
        wanted = [row | {"configurationKeys": []} for row in _RESOURCES]
        yield "each type", {"resources": wanted}
    elif key in (33, 44):
        kinds = _RESOURCES if key == 44 else [r for r in _RESOURCES if r["resourceType"] != 8]
        yield "each type", {"resources": kinds, "validateOnly": True}
    elif key == 34:
        yield "one directory", {"dirs": [{"path": "/no/such", "topics": _INDEXES}]}
    elif key == 35:
        yield "a topic", {"topics": [{"topic": TOPIC, "partitions": [0]}]}
    elif key == 37:
        rows = [{"name": n, "count": 2, "assignments": None} for n in (TOPIC, GHOST)]
        yield "two topics", {"topics": rows, "timeoutMs": 5000, "validateOnly": True}
    elif key == 42:
        yield "a group", {"groupsNames": [GROUP]}
    elif key == 43:
        rows = [{"topic": TOPIC, "partitions": [0]}]
        yield "a topic", {"electionType": 0, "topicPartitions": rows, "timeoutMs": 5000}
    elif key == 45:
        rows = _named("name", partitionIndex=7, replicas=None)
        yield "two topics", {"topics": rows, "timeoutMs": 5000}
    elif key == 46:
        yield "all", {"topics": None, "timeoutMs": 5000}
    elif key == 47:
        yield "two topics", {"groupId": GROUP, "topics": _topics(partitionIndex=0)}
    elif key == 48:
        fields = {"entityType": "user", "matchType": 0, "match": "nobody"}
        yield "a user", {"components": [fields], "strict": True}
    elif key == 49:
        entity = [{"entityType": "user", "entityName": "nobody"}]
        op = {"key": "producer_byte_rate", "value": 1000.0, "remove": False}
        yield "a user", {"entries": [{"entity": entity, "ops": [op]}], "validateOnly": True}
    elif key == 50:
        yield "a user", {"users": [{"name": "nobody"}]}
    elif key == 51:
        yield "a user", {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}
    elif key == 55:
        rows = [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]
        yield "the quorum", {"topics": rows}
    elif key == 57:
        row = {
            "feature": "no.such",
            "maxVersionLevel": 1,
            "upgradeType": 1,
            "allowDowngrade": False,
        }
        yield "no feature", {"featureUpdates": [row], "timeoutMs": 5000, "validateOnly": True}
    elif key == 60:
        yield "all", {"includeClusterAuthorizedOperations": True, "endpointType": 1}
    elif key == 61:
        rows = [{"name": name, "partitionIndexes": [0]} for name in (TOPIC, GHOST)]
        yield "two topics", {"topics": rows}
    elif key == 65:
        yield "an id", {"transactionalIds": [TXN_ID]}
    elif key == 66:
        yield "all", {"stateFilters": [], "producerIdFilters": [], "durationFilter": -1}
    elif key in (68, 76):
        fields = {"groupId": GROUP, "memberId": MEMBER, "memberEpoch": 5}
        fields |= {"subscribedTopicNames": None, "topicPartitions": None}
        yield "a member", fields
        yield "with topics", fields | {"subscribedTopicNames": [TOPIC, GHOST]}
    elif key in (69, 77, 89):
        yield "a group", {"groupIds": [GROUP], "includeAuthorizedOperations": False}
    elif key == 88:
        fields = {"groupId": GROUP, "memberId": MEMBER, "memberEpoch": 5, "rebalanceTimeoutMs": 1}
        fields |= {"endpointInformationEpoch": 0, "shutdownApplication": False}
        yield "a member", fields
        rows = {"sourceTopicRegex": [], "stateChangelogTopics": [], "copartitionGroups": []}
        rows |= {"repartitionSinkTopics": [], "repartitionSourceTopics": [], "subtopologyId": "0"}
        of = {"epoch": 0, "subtopologies": [rows | {"sourceTopics": [TOPIC, GHOST]}]}
        yield "with a topology", fields | {"topology": of}
    elif key == 93:
        of = {"subtopologies": [], "globalStores": []}
        fields = {"groupId": GROUP, "memberId": MEMBER, "topologyEpoch": 0}
        yield "a member", fields | {"topologyDescription": of}
    elif key == 74:
        yield "all", {"resourceTypes": []}
    elif key == 75:
        named = [{"name": TOPIC}, {"name": GHOST}]
        yield "two topics", {"topics": named, "responsePartitionLimit": 100, "cursor": None}
        yield "all", {"topics": [], "responsePartitionLimit": 100, "cursor": None}
    elif key in (78, 79):
        rows = [{"partitionIndex": 0, "partitionMaxBytes": 0, "acknowledgementBatches": []}]
        fields = {"groupId": GROUP, "memberId": MEMBER, "shareSessionEpoch": 7 if key == 79 else 0}
        fields |= {"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1000, "maxRecords": 1, "batchSize": 1}
        topics = [{"topicId": each, "partitions": rows} for each in by_id]
        yield "two topics", fields | {"topics": topics, "forgottenTopicsData": []}
    elif 83 <= key <= 87:
        part = {"partition": 0, "stateEpoch": 0, "leaderEpoch": 0, "startOffset": 0}
        part |= {"stateBatches": [], "deliveryCompleteCount": 0}
        topics = [{"topicId": UNKNOWN_ID, "partitions": [part]}]
        yield "a topic that does not exist", {"groupId": GROUP, "topics": topics}
    elif key == 90:
        rows = [{"topicName": name, "partitions": [0]} for name in (TOPIC, GHOST)]
        yield "two topics", {"groups": [{"groupId": GROUP, "topics": rows}]}
    elif key in (91, 92):
        rows = _named("topicName", partitionIndex=0, startOffset=0)
        yield "two topics", {"groupId": GROUP, "topics": rows}


def ask(wire: Wire, key: int, version: int, fields: dict[str, Any]) -> str:
    """The reduced answer. Fields that the API does not have are left out."""
    message = request(key)
    try:
        answer = wire.call(key, version, fitted(message, _known(message, "", fields), version))
    except ConnectionError:
        return CLOSED
    return reduced(response(key), answer, version)


def _known(message: Message, path: str, fields: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for field in message.fields_at(path):
        if field.name in fields:
            value, here = fields[field.name], below(path, field.name)
            if field.base == "{}" and isinstance(value, list):
                value = [_known(message, here, row) for row in value]
            elif field.base == "{}" and value is not None:
                value = _known(message, here, value)
            found[field.name] = value
    return found


def reduced(message: Message, answer: Struct, version: int) -> str:
    told = to_json(message, answer, version)
    codes = set(_codes(told))
    parts = [str(code) for code in sorted(codes & REFUSED)]
    if codes - REFUSED or not codes:
        parts.append(PERMITTED)
    return " ".join(parts + [SEES] * any(_sights(told)))


def _codes(value: Any, name: str = "") -> Iterator[int]:
    if isinstance(value, dict):
        for field, each in value.items():
            yield from _codes(each, field)
    elif isinstance(value, list):
        for each in value:
            yield from _codes(each, name)
    elif name.endswith("rrorCode"):
        yield value


def _sights(value: Any) -> Iterator[bool]:
    """Whether parts of an answer describe TOPIC: they name it, and no code refuses it."""
    if isinstance(value, dict):
        yield value.get("name", value.get("resourceName")) == TOPIC and not REFUSED & set(
            _codes(value)
        )
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            yield from _sights(each)
