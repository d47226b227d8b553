"""A partition table with topics, logs on disk and the native Produce handler, without sockets."""

import uuid
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from oracle import produce as wire

from barnabas.cext.log.log_handle import LogHandle
from barnabas.cext.log.segment import SegmentCache
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.produce.produce import ProduceHandler


@dataclass
class Broker:
    table: PartitionTable
    native: ProduceHandler
    system: SystemCalls
    directory: str
    cache: SegmentCache
    ids: dict[str, bytes] = field(default_factory=dict)
    logs: dict[tuple[str, int], LogHandle] = field(default_factory=dict)

    def topic(self, name: str, partitions: int = 1, **policy):
        self.ids[name] = uuid.uuid4().bytes
        self.table.add_topic(name, self.ids[name], **policy)
        return [self.partition(name, index) for index in range(partitions)][0]

    def partition(self, name: str, index: int, **options):
        log = self.open_log(name, index)
        self.logs[name, index] = log
        return self.table.add_partition(name, index, log, directory=self.directory, **options)

    def open_log(self, name: str, index: int, **options) -> LogHandle:
        folder = Path(self.directory, f"{name}-{index}")
        folder.mkdir(exist_ok=True)
        return LogHandle.open(
            folder,
            system=self.system,
            epochs=self.table.epochs,
            cache=self.cache,
            **options,
        )

    def stored(self, name: str, index: int = 0) -> bytes:
        """The bytes of the partition's first segment."""
        return Path(self.directory, f"{name}-{index}", f"{0:020}.log").read_bytes()

    def send(self, parts, version: int = 9, wait: bool = True, **options):
        """Returns the ProduceResponse, None if there is none, or with wait=False a waiting
        request."""
        answer = self.native.handle_frame(wire.produce_frame(parts, version, **options))
        while wait and answer is not None and not isinstance(answer, bytes):
            job = self.native.decodes.next(0)
            if job is not None:
                decode(job)
            answer = answer.resume(20)
        return wire.produce_answer(answer, version) if isinstance(answer, bytes) else answer

    def one(self, *parts, **options):
        """The partition's answer to a request of one partition."""
        return wire.partitions_of(self.send([parts], **options))[0]


def decode(job) -> None:
    from barnabas.server.decode_pool import answer_job

    answer_job(job)


@pytest.fixture
def make_broker(tmp_path):
    made = []

    def make(durability: str = "fsync", flush_threads: int = 1) -> Broker:
        system = SystemCalls()
        system.move_wall_clock(wire.NOW_MS - system.wall_ms())
        table = PartitionTable(system, Epochs(), node_id=1, durability=durability)
        directory = tmp_path / f"data{len(made)}"
        directory.mkdir()
        table.add_directory(str(directory), flush_threads=flush_threads)
        made.append(Broker(table, ProduceHandler(table), system, str(directory), SegmentCache()))
        return made[-1]

    yield make
    for broker in made:
        broker.table.close()
        for name, _, _ in broker.table.topics():
            broker.table.remove_topic(name)
        for log in broker.logs.values():
            log.close(clean=False)


@pytest.fixture
def broker(make_broker) -> Broker:
    return make_broker()
