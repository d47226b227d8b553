"""A real Kafka's responses to a list of Fetch requests, in a form that can be compared with another
broker.

    python tests/oracle/fetch_scenarios.py prepare HOST:PORT     topics and records
    (restart the broker, so that its leader epoch is no longer the first)
    python tests/oracle/fetch_scenarios.py record HOST:PORT > tests/vectors/fetch-kafka-4.3.1.json

A response is written without parts that differ in each run: ids of topics and sessions are names,
leader epochs are counted from the current one, times are "now" or "waited". The same steps are run
with the native handler by tests/native/test_fetch_kafka.py.
"""

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from barnabas.wire import request, response
from barnabas.wire.batches import encode_batch
from barnabas.wire.headers import decode_response_header, encode_request

WAIT_MS = 400
UNKNOWN_ID = bytes(range(16))
READ_COMMITTED = 1

Step = dict[str, Any]
Ask = Callable[[Step], dict[str, Any]]


def batch(value_bytes: int, fill: bytes = b"v") -> bytes:
    return encode_batch([fill * value_bytes], base_timestamp=1_700_000_000_000)


# topic -> partition -> (batches in the first epoch, batches in the current one, log start)
RECORDS: dict[str, dict[int, tuple[list[bytes], list[bytes], int]]] = {
    "fa": {0: ([batch(1000)] * 3, [batch(1000)], 0), 1: ([batch(5000)], [], 0), 2: ([], [], 0)},
    "fb": {0: ([batch(200)] * 4, [batch(200)], 2)},
}
BATCH = len(batch(1000))


def part(index: int, offset: int, size_max: int = 1 << 20, **more: int) -> Step:
    """epoch: the leader epoch relative to the current one; fetched: the last fetched epoch,
    likewise."""
    return {"index": index, "offset": offset, "size_max": size_max, **more}


def step(name: str, version: int = 16, **fields: Any) -> Step:
    given = {
        "name": name,
        "version": version,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 24,
        "isolation": 0,
        "session": None,
        "epoch": -1,
        "replica": -1,
        "topics": [],
        "forget": [],
    }
    assert set(fields) <= set(given), set(fields) - set(given)
    return given | fields


def plain_steps() -> Iterator[Step]:
    both = [("fa", [part(0, 0), part(1, 0)]), ("fb", [part(0, 2)])]
    for version in (4, 5, 7, 9, 11, 12, 13, 15, 16, 17):
        yield step(f"all of three partitions v{version}", version, topics=both)
        yield step(
            f"unknown partition, unknown topic and one known v{version}",
            version,
            topics=[("fa", [part(9, 0)]), ("nobody", [part(0, 0)]), ("fa", [part(0, 0)])],
        )
        yield step(
            f"out of range v{version}",
            version,
            topics=[("fa", [part(0, 5), part(1, 1)]), ("fb", [part(0, 1)])],
            isolation=READ_COMMITTED,
        )
    one = BATCH
    for name, size_max, max_bytes in [
        ("first batch beyond the partition's limit", 10, 1 << 24),
        ("first batch beyond the request's limit", 1 << 20, 10),
        ("limits of nothing", 0, 0),
        ("the partition's limit is negative", -1, 1 << 24),
        ("the request's limit is negative", 1 << 20, -1),
        ("one batch and a bit", one + 10, 1 << 24),
        ("the second partition gets what is left", 1 << 20, 4 * one + 600),
        ("nothing is left for the second", 1 << 20, 4 * one),
        ("the second's batch does not fit", 1 << 20, 4 * one + 60),
    ]:
        topics = [("fa", [part(2, 0, size_max), part(0, 0, size_max), part(1, 0, size_max)])]
        yield step(name, topics=topics, max_bytes=max_bytes)
    yield step(
        "partitions twice in a request", topics=[("fa", [part(0, 0), part(1, 0), part(0, 3)])]
    )
    yield step(
        "a topic in two groups",
        topics=[("fa", [part(0, 3)]), ("fb", [part(0, 4)]), ("fa", [part(1, 0)])],
    )
    yield step("no partitions", topics=[], max_wait_ms=WAIT_MS)


def waiting_steps() -> Iterator[Step]:
    end = ("fa", [part(0, 4)])
    yield step("empty, no time", topics=[end])
    yield step("empty, some time", topics=[end], max_wait_ms=WAIT_MS)
    yield step("too few bytes", topics=[("fa", [part(0, 3)])], max_wait_ms=WAIT_MS, min_bytes=9000)
    yield step("no bytes wanted", topics=[end], max_wait_ms=WAIT_MS, min_bytes=0)
    yield step(
        "minimum above maximum",
        topics=[("fa", [part(0, 3)])],
        max_wait_ms=WAIT_MS,
        min_bytes=9000,
        max_bytes=500,
    )
    yield step("unknown partition alone", topics=[("fa", [part(9, 0)])], max_wait_ms=WAIT_MS)
    yield step(
        "unknown partition and an empty one",
        topics=[("fa", [part(9, 0), part(2, 0)])],
        max_wait_ms=WAIT_MS,
    )
    yield step(
        "unknown topic and an empty one",
        topics=[("nobody", [part(0, 0)]), end],
        max_wait_ms=WAIT_MS,
    )
    yield step(
        "out of range and an empty one",
        topics=[("fa", [part(0, 9), part(2, 0)])],
        max_wait_ms=WAIT_MS,
    )
    yield step(
        "stale epoch and an empty one",
        topics=[("fa", [part(0, 4, epoch=-1), part(2, 0)])],
        max_wait_ms=WAIT_MS,
    )


def epoch_steps() -> Iterator[Step]:
    for version in (9, 12, 16):
        for epoch in (-1, 0, 1):
            yield step(
                f"leader epoch {epoch} of now v{version}",
                version,
                topics=[("fa", [part(0, 0, epoch=epoch)])],
            )
    for fetched, offset in [
        (0, 4),
        (0, 5),
        (-1, 3),
        (-1, 4),
        (1, 4),
        (-2, 3),
        (-2, 4),
        (-2, 2),
        (-2, 9),
    ]:
        topics = [("fa", [part(0, offset, fetched=fetched)])]
        yield step(
            f"last fetched epoch {fetched} of now, offset {offset}",
            topics=topics,
            max_wait_ms=WAIT_MS,
        )
    yield step(
        "last fetched epoch, below the log's start", topics=[("fb", [part(0, 1, fetched=-2)])]
    )
    for version in (11, 16):
        yield step(
            f"a stranger as replica v{version}", version, topics=[("fa", [part(0, 0)])], replica=77
        )
        yield step(
            f"a stranger as replica, epoch known v{version}",
            version,
            topics=[("fa", [part(0, 0, epoch=0)])],
            replica=77,
        )
        yield step(
            f"a stranger as replica, epoch stale v{version}",
            version,
            topics=[("fa", [part(0, 0, epoch=-1)])],
            replica=77,
        )


def session_steps() -> Iterator[Step]:
    for version in (7, 16):
        v = f" v{version}"
        at_end = [("fa", [part(0, 4), part(1, 1), part(2, 0)])]
        yield step("new" + v, version, session="new", epoch=0, topics=at_end)
        yield step("nothing changed" + v, version, session="last", epoch=1)
        yield step(
            "nothing changed, waiting" + v, version, session="last", epoch=2, max_wait_ms=WAIT_MS
        )
        yield step("one back" + v, version, session="last", epoch=3, topics=[("fa", [part(1, 0)])])
        yield step(
            "still there" + v, version, session="last", epoch=4, topics=[("fa", [part(0, 3)])]
        )
        yield step(
            "limited: who was served waits" + v, version, session="last", epoch=5, max_bytes=10
        )
        yield step("limited: the other" + v, version, session="last", epoch=6, max_bytes=10)
        yield step("an epoch again" + v, version, session="last", epoch=6)
        yield step("an epoch too far" + v, version, session="last", epoch=9)
        yield step("error" + v, version, session="last", epoch=7, topics=[("fa", [part(0, 9)])])
        yield step("error again" + v, version, session="last", epoch=8)
        yield step(
            "error gone" + v, version, session="last", epoch=9, topics=[("fa", [part(0, 4)])]
        )
        yield step("forget one" + v, version, session="last", epoch=10, forget=[("fa", [1])])
        yield step(
            "add unknown ones" + v,
            version,
            session="last",
            epoch=11,
            topics=[("nobody", [part(0, 0)]), ("fa", [part(7, 0)])],
        )
        yield step("unknown ones stay" + v, version, session="last", epoch=12)
        yield step(
            "forget the unknown, add another" + v,
            version,
            session="last",
            epoch=13,
            forget=[("nobody", [0]), ("fa", [7])],
            topics=[("fb", [part(0, 4)])],
        )
        yield step(
            "log start told once" + v,
            version,
            session="last",
            epoch=14,
            topics=[("fb", [part(0, 5)])],
        )
        yield step(
            "the other kind of topic" + v, 12 if version > 12 else 16, session="last", epoch=15
        )
        yield step(
            "forget all" + v,
            version,
            session="last",
            epoch=15,
            forget=[("fa", [0, 2]), ("fb", [0])],
        )
        yield step("gone" + v, version, session="last", epoch=16)
        yield step("new again" + v, version, session="new", epoch=0, topics=at_end)
        yield step("replaced" + v, version, session="last", epoch=0, topics=[("fb", [part(0, 5)])])
        yield step("of the replaced" + v, version, session="former", epoch=1)
        yield step("final" + v, version, session="last", epoch=-1, topics=[("fb", [part(0, 4)])])
        yield step("after the final" + v, version, session="last", epoch=1)
        yield step("of no session" + v, version, session=None, epoch=1, topics=at_end)
        yield step("an epoch below -1" + v, version, session=None, epoch=-5, topics=at_end)
        yield step("new without partitions" + v, version, session="new", epoch=0)
        yield step("first partitions later" + v, version, session="last", epoch=1, topics=at_end)
        yield step("end" + v, version, session="last", epoch=-1)


def steps() -> Iterator[Step]:
    yield from plain_steps()
    yield from waiting_steps()
    yield from epoch_steps()
    yield from session_steps()


class Runner:
    """Converts steps to request bodies, and responses to their form without ids and times."""

    def __init__(self, topic_ids: dict[str, bytes], leader_epoch: int) -> None:
        self.topic_ids = topic_ids | {"nobody": UNKNOWN_ID}
        self.names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        self.leader_epoch = leader_epoch
        self.sessions: list[int] = [0]  # ids in the order of their creation

    def body(self, wanted: Step) -> Any:
        fetch = request(1)
        topic, partition = fetch.struct("topics"), fetch.struct("topics.partitions")
        forgotten = fetch.struct("forgottenTopicsData")
        version = wanted["version"]
        body = fetch.cls(
            maxWaitMs=wanted["max_wait_ms"],
            minBytes=wanted["min_bytes"],
            maxBytes=wanted["max_bytes"],
            isolationLevel=wanted["isolation"],
            sessionEpoch=wanted["epoch"],
        )
        if version >= 15:
            if wanted["replica"] >= 0:
                body.replicaState = fetch.struct("replicaState")(replicaId=wanted["replica"])
        else:
            body.replicaId = wanted["replica"]
        if wanted["session"] == "last":
            body.sessionId = self.sessions[-1]
        elif wanted["session"] == "former":
            body.sessionId = self.sessions[-2]
        for name, parts in wanted["topics"]:
            body.topics.append(topic(partitions=[self.partition(partition, p) for p in parts]))
            self.put_topic(body.topics[-1], name, version)
        for name, indexes in wanted["forget"]:
            body.forgottenTopicsData.append(forgotten(partitions=list(indexes)))
            self.put_topic(body.forgottenTopicsData[-1], name, version)
        return body

    def partition(self, cls: Any, wanted: Step) -> Any:
        made = cls(
            partition=wanted["index"],
            fetchOffset=wanted["offset"],
            partitionMaxBytes=wanted["size_max"],
        )
        if "epoch" in wanted:
            made.currentLeaderEpoch = self.leader_epoch + wanted["epoch"]
        if "fetched" in wanted:
            made.lastFetchedEpoch = self.leader_epoch + wanted["fetched"]
        return made

    def put_topic(self, struct: Any, name: str, version: int) -> None:
        if version >= 13:
            struct.topicId = self.topic_ids[name]
        else:
            struct.topic = name

    def form(self, answer: Any, seconds: float) -> dict[str, Any]:
        if answer.sessionId not in self.sessions:
            self.sessions.append(answer.sessionId)
        return {
            "error": answer.errorCode,
            "session": self.sessions.index(answer.sessionId),
            "took": "waited" if seconds >= WAIT_MS / 1000 * 0.9 else "now",
            "topics": [
                [
                    t.topic or self.names[bytes(t.topicId)],
                    [self.partition_form(p) for p in t.partitions],
                ]
                for t in answer.responses
            ],
        }

    def partition_form(self, p: Any) -> dict[str, Any]:
        form = {
            "index": p.partitionIndex,
            "error": p.errorCode,
            "high_watermark": p.highWatermark,
            "stable": p.lastStableOffset,
            "start": p.logStartOffset,
            "aborted": None if p.abortedTransactions is None else len(p.abortedTransactions),
            "preferred": p.preferredReadReplica,
            "record_bytes": None if p.records is None else len(p.records),
        }
        if p.divergingEpoch is not None and p.divergingEpoch.epoch != -1:
            epoch = p.divergingEpoch.epoch - self.leader_epoch
            form["diverging"] = [epoch, p.divergingEpoch.endOffset]
        if p.currentLeader is not None and p.currentLeader.leaderId != -1:
            form["leader_epoch"] = p.currentLeader.leaderEpoch - self.leader_epoch
        return form


class Client:
    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=30)

    def call(self, key: int, version: int, body: Any) -> Any:
        self.socket.sendall(encode_request(key, version, 7, "scenarios", body))
        data = self.take(int.from_bytes(self.take(4), "big"))
        _, at = decode_response_header(data, key, version)
        return response(key).decode(data, version, at)

    def take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def produce(self, name: str, index: int, data: bytes) -> None:
        r = request(0)
        made = r.struct("topicData.partitionData")(index=index, records=data)
        topic = r.struct("topicData")(name=name, partitionData=[made])
        answer = self.call(0, 9, r.cls(acks=-1, timeoutMs=9000, topicData=[topic]))
        assert answer.responses[0].partitionResponses[0].errorCode == 0, answer

    def metadata(self) -> tuple[dict[str, bytes], int]:
        r = request(3)
        topics = [r.struct("topics")(name=name) for name in RECORDS]
        answer = self.call(3, 12, r.cls(topics=topics))
        ids = {t.name: bytes(t.topicId) for t in answer.topics}
        epochs = {p.leaderEpoch for t in answer.topics for p in t.partitions}
        assert len(epochs) == 1, epochs
        return ids, epochs.pop()


def prepare(client: Client) -> None:
    r = request(19)
    config = r.struct("topics.configs")(name="retention.ms", value="-1")
    for name, parts in RECORDS.items():
        topic = r.struct("topics")(
            name=name, numPartitions=len(parts), replicationFactor=1, configs=[config]
        )
        answer = client.call(19, 5, r.cls(topics=[topic], timeoutMs=9000))
        assert answer.topics[0].errorCode == 0, answer.topics[0]
    time.sleep(1)
    for name, parts in RECORDS.items():
        for index, (first, _, _) in parts.items():
            for data in first:
                client.produce(name, index, data)


def record(client: Client) -> dict[str, Any]:
    ids, leader_epoch = client.metadata()
    assert leader_epoch >= 2, "restart the broker first"
    r = request(21)
    for name, parts in RECORDS.items():
        for index, (_, now, start) in parts.items():
            for data in now:
                client.produce(name, index, data)
            if start:
                made = r.struct("topics.partitions")(partitionIndex=index, offset=start)
                topic = r.struct("topics")(name=name, partitions=[made])
                client.call(21, 2, r.cls(topics=[topic], timeoutMs=9000))
    runner = Runner(ids, leader_epoch)
    answers = {}
    for wanted in steps():
        began = time.monotonic()
        answer = client.call(1, wanted["version"], runner.body(wanted))
        answers[wanted["name"]] = runner.form(answer, time.monotonic() - began)
    return answers


if __name__ == "__main__":
    verb, address = sys.argv[1:]
    if verb == "prepare":
        prepare(Client(address))
    else:
        recorded = record(Client(address))
        lines = [f"{json.dumps(name)}: {json.dumps(form)}" for name, form in recorded.items()]
        print("{\n" + ",\n".join(lines) + "\n}")
