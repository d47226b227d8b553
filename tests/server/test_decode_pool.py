"""The decode threads decompress the batches that native code queues, and survive damaged ones."""

import threading
import uuid
from pathlib import Path

from oracle.produce import NOW_MS, compressed, partitions_of, produce_answer, produce_frame, record

from barnabas.cext.log.log_handle import LogHandle
from barnabas.cext.log.segment import SegmentCache
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.produce.produce import ProduceHandler
from barnabas.server import decode_pool
from barnabas.server.decode_pool import decode_threads


def native_of(folder: Path) -> tuple[PartitionTable, ProduceHandler, LogHandle]:
    system, epochs = SystemCalls(), Epochs()
    system.move_wall_clock(NOW_MS - system.wall_ms())
    table = PartitionTable(system, epochs, node_id=1, durability="os")
    table.add_topic("orders", uuid.uuid4().bytes)
    log = LogHandle.open(folder, system=system, epochs=epochs, cache=SegmentCache())
    table.add_partition("orders", 0, log)
    return table, ProduceHandler(table), log


def test_pool_answers_good_and_broken_batches(tmp_path, monkeypatch):
    table, native, log = native_of(tmp_path)
    before = set(threading.enumerate())
    threads = decode_threads(native.decodes, 2)
    threads.start()
    started = set(threading.enumerate()) - before
    assert {thread.name for thread in started} == {"decode-0", "decode-1"}
    good = compressed(1, [record(b"x" * 1000)])

    def code(batch: bytes) -> int:
        parked = native.handle_frame(produce_frame([("orders", 0, batch)], timeout_ms=10_000))
        return partitions_of(produce_answer(parked.resume()))[0].errorCode

    assert code(good) == 0
    assert code(compressed(4, [record()])) == 0
    with monkeypatch.context() as patch:
        patch.setattr(decode_pool.compression, "decompress_into", lambda *_, **__: 1 // 0)
        assert code(good) == -1
    assert code(good) == 0
    assert log.end_offset == 3
    threads.stop()
    assert not any(thread.is_alive() for thread in started)
    table.remove_topic("orders")
    log.close()
