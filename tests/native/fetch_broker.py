"""A partition table with logs and a Fetch native handler over it, without sockets."""

import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from oracle.fetch_scenarios import Runner, Step

from barnabas.cext.fetch.fetch import FetchHandler, ParkedFetch
from barnabas.cext.fetch.sessions import FetchSessions
from barnabas.cext.log.log_handle import LogHandle
from barnabas.cext.log.segment import SegmentCache
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.wire import response
from barnabas.wire.headers import decode_response_header, encode_request

NODE = 1
LEADER_EPOCH = 2


class FetchBroker:
    """topics: {name: number of partitions}."""

    def __init__(
        self,
        directory: Path,
        topics: Mapping[str, int],
        *,
        durability: str = "os",
        slots: int = 100,
        fetch_bytes_max: int = 57671680,
        cold_depth_max: int = 256,
        open_segments_max: int = 100,
        directories: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        """`directories`: of topics that are in another log directory."""
        self.system = SystemCalls()
        self.epochs = Epochs()
        self.segments = SegmentCache(open_segments_max=open_segments_max)
        self.table = PartitionTable(self.system, self.epochs, node_id=NODE, durability=durability)
        self.directory = directory
        self.table.add_directory(str(directory), flush_threads=1)
        self.topic_ids: dict[str, bytes] = {}
        self.logs: dict[tuple[str, int], LogHandle] = {}
        self.parts: dict[tuple[str, int], Any] = {}
        for name, count in topics.items():
            self.add_topic(name, count, directories.get(name))
        self.sessions = FetchSessions(slots, seed=12345)
        self.native = FetchHandler(
            self.table,
            self.sessions,
            fetch_bytes_max=fetch_bytes_max,
            cold_depth_max=cold_depth_max,
        )
        self.runner = Runner(self.topic_ids, LEADER_EPOCH)

    def add_topic(self, name: str, count: int, directory: Path | None = None) -> None:
        """`directory`: another log directory than the first."""
        if directory is not None:
            directory.mkdir(exist_ok=True)
            self.table.add_directory(str(directory), flush_threads=1)
        folder = directory or self.directory
        self.topic_ids[name] = bytes([len(self.topic_ids) + 1]) * 16
        self.table.add_topic(name, self.topic_ids[name])
        for index in range(count):
            path = folder / f"{name}-{index}"
            path.mkdir()
            log = LogHandle.open(
                path, system=self.system, epochs=self.epochs, cache=self.segments, clean=True
            )
            self.logs[name, index] = log
            self.parts[name, index] = self.table.add_partition(
                name, index, log, directory=str(folder), leader_epoch=LEADER_EPOCH
            )

    def append(self, name: str, index: int, batch: bytes, epoch: int = LEADER_EPOCH) -> None:
        """Appends as a leader does; the records are visible at once."""
        self.append_unseen(name, index, batch, epoch)
        assert self.parts[name, index].commit(5000)

    def append_unseen(self, name: str, index: int, batch: bytes, epoch: int = LEADER_EPOCH) -> None:
        """Appends to the log without waking waiting fetches."""
        self.logs[name, index].append(bytearray(batch), leader_epoch=epoch)

    def close(self) -> None:
        self.native.stop()
        self.table.close()

    def start(self, wanted: Step) -> tuple[int, bytes | ParkedFetch]:
        version = wanted["version"]
        body = self.runner.body(wanted)
        frame = encode_request(1, version, 7, "tests", body, framed=False)
        return version, self.native.handle_frame(frame)

    def ask(self, wanted: Step) -> dict[str, Any]:
        """The response in the form of the scenarios, and how long it took."""
        began = time.monotonic()
        version, answer = self.start(wanted)
        if isinstance(answer, ParkedFetch):
            answer = answer.wait()
        return self.runner.form(decoded(answer, version), time.monotonic() - began)


def decoded(frame: bytes, version: int) -> Any:
    """Decodes the response in a frame; checks its size and correlation id."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, at = decode_response_header(frame[4:], 1, version)
    assert header.correlationId == 7
    return response(1).decode(frame[4:], version, at)
