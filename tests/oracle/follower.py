"""A follower without sockets: its partition table and logs, and what it fetches from a leader."""

from pathlib import Path
from typing import Any

from barnabas.cext.fetch.fetch import ParkedFetch
from barnabas.cext.log.log_handle import LogHandle, LogSettings
from barnabas.cext.log.segment import SegmentCache
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.replica.fetches import ReplicaFetches
from barnabas.wire import Struct, request, response
from barnabas.wire.headers import decode_response_header, encode_request

FETCH = 1
NODE, LEADER = 2, 1
MS = 1_000_000


class Follower:
    """`topics`: {name: (topic id, number of partitions)}. The clock is `now_ns`."""

    def __init__(
        self,
        directory: Path,
        topics: dict[str, tuple[bytes, int]],
        *,
        durability: str = "os",
        leader_epoch: int = 2,
        fetches_as: int = NODE,
        version: int = 17,
        log_settings: LogSettings | None = None,
        **settings: Any,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.directory, self.version, self.leader_epoch = directory, version, leader_epoch
        self.system, self.epochs, self.segments = SystemCalls(), Epochs(), SegmentCache()
        self.table = PartitionTable(self.system, self.epochs, node_id=NODE, durability=durability)
        self.group = self.table.add_directory(str(directory), flush_threads=1)
        self.ids = {name: topic_id for name, (topic_id, _) in topics.items()}
        self.log_settings = log_settings or LogSettings()
        self.logs: dict[tuple[str, int], LogHandle] = {}
        self.fetches = ReplicaFetches(
            self.table, node_id=fetches_as, broker_epoch=77, **{"wait_max_ms": 0} | settings
        )
        self.now_ns = 0
        for name, (topic_id, count) in topics.items():
            self.table.add_topic(name, topic_id)
            for index in range(count):
                self.host(name, index)
                self.fetches.add(name, index, topic_id, leader_epoch)

    def host(self, name: str, index: int) -> None:
        path = self.directory / f"{name}-{index}"
        path.mkdir()
        self.logs[name, index] = LogHandle.open(
            path,
            system=self.system,
            epochs=self.epochs,
            cache=self.segments,
            settings=self.log_settings,
        )
        self.table.add_partition(
            name,
            index,
            self.logs[name, index],
            directory=str(self.directory),
            leader_id=LEADER,
            leader_epoch=self.leader_epoch,
            replicas=(LEADER, NODE),
        )

    def close(self) -> None:
        self.table.close()

    def high_watermark(self, name: str, index: int = 0) -> int:
        found = self.table.partition(name, index)
        assert found is not None
        return found.high_watermark

    def asked(self) -> Struct | None:
        """The next request; it must be exactly what the codec makes of its values."""
        body = self.fetches.next_request(self.version, self.now_ns)
        if body is None:
            return None
        made = request(FETCH).decode(body, self.version, 0)
        assert request(FETCH).encode(made, self.version) == body
        return made

    def take(self, answer: Struct) -> list[tuple[str, int, str, Any]]:
        return self.fetches.take_response(response(FETCH).encode(answer, self.version), self.now_ns)

    def round(self, leader: Any) -> list[tuple[str, int, str, Any]] | None:
        """One request to the native Fetch handler of `leader`; None when nothing can be fetched."""
        body = self.asked()
        if body is None:
            return None
        frame = encode_request(FETCH, self.version, 7, "follower", body, framed=False)
        answer = leader.native.handle_frame(frame)
        if isinstance(answer, ParkedFetch):
            answer = answer.wait()
        _, at = decode_response_header(answer[4:], FETCH, self.version)
        return self.fetches.take_response(memoryview(answer)[4 + at :], self.now_ns)


def wanted(asked: Struct | None) -> list[tuple[Any, int]]:
    """(topic or topic id, partition) of each partition in a request."""
    assert asked is not None
    return [
        (topic.topic or topic.topicId, part.partition)
        for topic in asked.topics
        for part in topic.partitions
    ]


def forgotten(asked: Struct | None) -> list[tuple[Any, int]]:
    assert asked is not None
    return [
        (topic.topic or topic.topicId, index)
        for topic in asked.forgottenTopicsData
        for index in topic.partitions
    ]


def answer(*parts: Struct, session: int = 5, error: int = 0, **topic: Any) -> Struct:
    """A FetchResponse about partitions of one topic."""
    kind = response(FETCH)
    rows = [kind.struct("responses")(partitions=list(parts), **topic)] if parts else []
    return kind.cls(errorCode=error, sessionId=session, responses=rows)


def part(index: int = 0, **fields: Any) -> Struct:
    kind = response(FETCH).struct("responses.partitions")
    given = {"partitionIndex": index, "highWatermark": 0, "logStartOffset": 0, "records": b""}
    return kind(**given | fields)


def diverging(epoch: int, end_offset: int) -> Struct:
    return response(FETCH).struct("responses.partitions.divergingEpoch")(
        epoch=epoch, endOffset=end_offset
    )
