"""Requests of administrators, as plain calls on one connection to a broker in this process."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from compat.support import Wire

from barnabas import Broker
from barnabas.cext.record.records import Record
from barnabas.wire import Struct, request
from barnabas.wire.batches import encode_batch
from barnabas.wire.json_form import from_json

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


class Admin:
    """One connection; each call returns the response."""

    def __init__(self, broker: Broker, wire: Wire) -> None:
        self.broker = broker
        self.data = Path(broker.node.config.log_dirs[0])
        self._wire = wire

    def call(self, key: int, version: int, **fields: Any) -> Struct:
        return self._wire.call(key, version, from_json(request(key), fields, version))

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        rows = [{"name": n.replace("_", "."), "value": v} for n, v in configs.items()]
        topic = {"name": name, "numPartitions": partitions, "replicationFactor": 1}
        topic |= {"assignments": [], "configs": rows}
        answer = self.call(19, 5, topics=[topic], timeoutMs=9000, validateOnly=False)
        assert answer.topics[0].errorCode == 0, answer.topics[0].errorMessage

    def names(self) -> list[str]:
        answer = self.call(3, 9, topics=None, allowAutoTopicCreation=False)
        return sorted(topic.name for topic in answer.topics)

    def produce(self, topic: str, count: int = 1, partition: int = 0, size: int = 1) -> int:
        """The error of one batch."""
        now = int(time.time() * 1000)
        batch = encode_batch([Record(b"x" * size, timestamp=now) for _ in range(count)])
        ask = request(0)
        data = ask.struct("topicData")(name=topic)
        row = ask.struct("topicData.partitionData")(index=partition, records=batch)
        data.partitionData = [row]
        answer = self._wire.call(0, 8, ask.cls(acks=-1, timeoutMs=9000, topicData=[data]))
        return answer.responses[0].partitionResponses[0].errorCode

    def offset(self, topic: str, time_ms: int, partition: int = 0) -> int:
        row = {"partitionIndex": partition, "timestamp": time_ms}
        topics = [{"name": topic, "partitions": [row]}]
        answer = self.call(2, 3, replicaId=-1, isolationLevel=0, topics=topics)
        return answer.topics[0].partitions[0].offset

    def delete(self, *names: str) -> list[int]:
        answer = self.call(20, 5, topicNames=list(names), timeoutMs=9000)
        return [row.errorCode for row in answer.responses]

    def alter(
        self, kind: int, name: str, *changes: tuple[str, int, str | None], only: bool = False
    ) -> tuple[int, str | None]:
        configs = [{"name": n, "configOperation": op, "value": v} for n, op, v in changes]
        resource = {"resourceType": kind, "resourceName": name, "configs": configs}
        answer = self.call(44, 1, resources=[resource], validateOnly=only)
        return answer.responses[0].errorCode, answer.responses[0].errorMessage

    def configs(self, kind: int, name: str, *names: str) -> dict[str, Struct]:
        resource = {"resourceType": kind, "resourceName": name, "configurationKeys": list(names)}
        answer = self.call(
            32, 4, resources=[resource], includeSynonyms=True, includeDocumentation=True
        )
        assert answer.results[0].errorCode == 0, answer.results[0].errorMessage
        return {row.name: row for row in answer.results[0].configs}

    def directories(self, topic: str) -> list[str]:
        return sorted(path.name for path in self.data.glob(f"{topic}-*"))


@contextmanager
def admin_on(path: Path, **settings: str) -> Iterator[Admin]:
    """A broker with its data in `path`; `settings` have _ in place of dots."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    base = {"log.dirs": str(path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(base | given) as broker, closing(Wire(broker.bootstrap_servers)) as wire:
        yield Admin(broker, wire)
