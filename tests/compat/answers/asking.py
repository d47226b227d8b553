"""Sends a broker the same requests in every version, and masks the parts of responses that may
differ.

Masked: ids of nodes, topics, producers and clusters, addresses, folders and disk sizes, times that
the broker's clock gave, the wording of messages, the keys that ApiVersions lists (they are what
the comparison walks over), the order of arrays, which Kafka takes from hash maps, and what follows
the whole messages of Fetch 0 to 3.
"""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from compat.support import CALL_TIMEOUT_S, Wire

from barnabas.wire import Message, Struct, request, response
from barnabas.wire.api_keys import api_key
from barnabas.wire.json_form import from_json, to_json
from barnabas.wire.messages import below
from barnabas.wire.schema import within

COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_MOVES = {COORDINATOR_LOAD_IN_PROGRESS, 15, 16}
FETCH, LIST_GROUPS = 1, 16
BATCHES_FROM = 4  # Fetch; below it records are messages of format 0 or 1
MEMBERS = {"memberId", "leader"}  # ids with a random part
HANGS_UP = "the broker hangs up"
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
IDS = {
    "nodeId",
    "leaderId",
    "controllerId",
    "brokerId",
    "replicaNodes",
    "isrNodes",
    "offlineReplicas",
    "producerId",
}
TEXTS = {"host", "clusterId", "logDir", "errorMessage", "batchIndexErrorMessage"}
NUMBERS = {"port", "totalBytes", "usableBytes", "logAppendTimeMs", "lastTimestamp"}
# Of the metadata quorum: offsets and epochs of Kafka's metadata log, and the voters.
OF_THE_QUORUM = {
    "highWatermark",
    "lastCaughtUpTimestamp",
    "lastFetchTimestamp",
    "leaderEpoch",
    "logEndOffset",
    "replicaId",
}
DESCRIBE_QUORUM = 55
NOT_COMPARED = {
    "apiKeys",
    "finalizedFeaturesEpoch",
    "zkMigrationReady",
    "documentation",
}


@dataclass
class Asker:
    """Sends the requests of one scenario: one API key in one version, with topics of its own."""

    address: str
    key: int
    version: int
    answers: dict[str, Any] = field(default_factory=dict)
    kept: Wire | None = None

    @contextmanager
    def one_connection(self) -> Iterator[None]:
        """Keeps one connection until the end, for state that belongs to it, such as a share
        session."""
        with Wire(self.address) as self.kept:
            yield
        self.kept = None

    @contextmanager
    def _wire(self) -> Iterator[Wire]:
        if self.kept is not None:
            yield self.kept
            return
        with Wire(self.address) as wire:
            yield wire

    @property
    def topic(self) -> str:
        return f"answers-{self.key}-{self.version}"

    def ask(self, case: str, **fields: Any) -> Struct | None:
        """Sends a request of this key and keeps the masked response under the name of the case."""
        body = fitted(request(self.key), fields, self.version)
        deadline = time.monotonic() + CALL_TIMEOUT_S
        with self._wire() as wire:
            try:
                answer = wire.call(self.key, self.version, body)
                while is_loading(answer) and time.monotonic() < deadline:
                    time.sleep(0.1)
                    answer = wire.call(self.key, self.version, body)
            except ConnectionError:
                self.answers[case] = HANGS_UP
                return None
        told = to_json(response(self.key), answer, self.version)
        self.answers[case] = self._masked("", told)
        return answer

    def call(self, key: int, version: int, /, **fields: Any) -> Struct:
        """Sends a request whose response is not compared."""
        with self._wire() as wire:
            return wire.call(key, version, fitted(request(key), fields, version))

    def call_until_ready(self, key: int, version: int, /, **fields: Any) -> Struct:
        """As `call`; repeats the request while the coordinator is unknown or loading."""
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while True:
            self.call(10, 0, key=fields["groupId"])
            answer = self.call(key, version, **fields)
            if not is_moving(answer) or time.monotonic() > deadline:
                return answer
            time.sleep(0.1)

    def topic_id(self, name: str) -> str:
        """Returns the topic id in the form that `ask` takes."""
        told = self.call(3, 12, topics=[{"name": name}], allowAutoTopicCreation=False)
        found = to_json(response(3), told, 12)["topics"][0]["topicId"]
        assert isinstance(found, str)
        return found

    def _masked(self, name: str, value: Any) -> Any:
        if name in NOT_COMPARED:
            return "*"
        if isinstance(value, dict):
            kept = {k: self._masked(k, v) for k, v in value.items() if self._is_ours(k, v)}
            return {k.replace(self.topic, "TOPIC"): v for k, v in kept.items()}
        if isinstance(value, list):
            inner = [self._masked(name, one) for one in value if self._is_ours(name, one)]
            return sorted(inner, key=lambda one: json.dumps(one, sort_keys=True))
        of_quorum = self.key == DESCRIBE_QUORUM and name in OF_THE_QUORUM
        if name in IDS or name in NUMBERS or of_quorum:
            return "*" if value is not None and value >= 0 else value
        if name in MEMBERS:
            return "*" if value else value
        if name == "topicId":
            return value if value == NO_ID else "*"
        if name in TEXTS:
            return "*" if value else value
        if name == "records" and self.key == FETCH and self.version < BATCHES_FROM and value:
            return whole_messages(value)
        return value.replace(self.topic, "TOPIC") if isinstance(value, str) else value

    def _is_ours(self, name: str, value: Any) -> bool:
        """Filters listings of all topics and groups, which also hold those of other scenarios."""
        if isinstance(value, dict) and name == "groups" and self.key == LIST_GROUPS:
            return self._is_own(value["groupId"])
        if not isinstance(value, dict) or name not in ("topics", "configResources"):
            return True
        told = value.get("name") or value.get("topic") or value.get("resourceName")
        return not told or self._is_own(told) or not told.startswith(("answers-", "__"))

    def _is_own(self, name: str) -> bool:
        """Whether a topic or group belongs to this scenario; 3-1 must not match those of 3-10."""
        rest = name.removeprefix(self.topic)
        return rest != name and not rest[:1].isdigit()


def whole_messages(records: str) -> str:
    """The record set without the fragment at its end, whose size depends on that of the stored
    records."""
    data, at = base64.b64decode(records), 0
    while len(data) - at >= 12:
        size_bytes = 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if size_bytes > len(data) - at:
            break
        at += size_bytes
    return base64.b64encode(data[:at]).decode()


def is_loading(answer: Struct) -> bool:
    """Whether the response says that the coordinator is still loading."""
    return getattr(answer, "errorCode", 0) == COORDINATOR_LOAD_IN_PROGRESS


def is_moving(answer: Struct) -> bool:
    """Whether the response to a commit or a join says that its coordinator is not available yet."""
    codes = {getattr(answer, "errorCode", 0)}
    for topic in getattr(answer, "topics", ()):
        codes |= {row.errorCode for row in topic.partitions}
    return bool(codes & COORDINATOR_MOVES)


def fitted(message: Message, fields: dict[str, Any], version: int) -> Struct:
    """Returns the request with only the fields that the version has."""
    return from_json(message, dict(_fitting(message, "", fields, version)), version)


def _fitting(
    message: Message, path: str, fields: dict[str, Any], version: int
) -> Iterator[tuple[str, Any]]:
    versions: dict[str, list[Any]] = {}
    for one in message.fields_at(path):
        versions.setdefault(one.name, []).append(one)
    for name, value in fields.items():
        assert name in versions, f"{message.name} never has {below(path, name)}"
        if not any(within(one.versions, version) for one in versions[name]):
            continue
        here = below(path, name)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield name, [dict(_fitting(message, here, inner, version)) for inner in value]
        elif isinstance(value, dict):
            yield name, dict(_fitting(message, here, value, version))
        else:
            yield name, value


def served(address: str) -> dict[int, range]:
    """The versions that the broker announces, limited to the stable ones."""
    with Wire(address) as wire:
        told = wire.call(18, 3, fitted(request(18), SOFTWARE, 3))
    found = {}
    for one in told.apiKeys:
        try:
            row = api_key(one.apiKey)
        except ValueError:
            continue
        low, high = max(one.minVersion, row.version_min), min(one.maxVersion, row.version_max)
        found[one.apiKey] = range(low, high + 1)
    return found


SOFTWARE = {"clientSoftwareName": "compat", "clientSoftwareVersion": "1"}
