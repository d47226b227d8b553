"""Requests of producers, consumers and followers, as the native handlers read them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from native.conftest import Broker as PartitionBroker
from native.fetch_broker import FetchBroker
from oracle.follower import Follower
from oracle.produce import batch, compressed, produce_frame, record
from oracle.vectors import vectors
from sanitizers.parsers import Parse, Parser
from sanitizers.parsers.headers import VECTORS
from sanitizers.parsers.sealed import old_messages, sealed

from barnabas.cext.fetch.fetch import ParkedFetch
from barnabas.cext.log.log_handle import LogHandle
from barnabas.cext.log.segment import SegmentCache
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.produce.produce import MalformedProduce, ProduceHandler
from barnabas.cext.replica.fetches import MalformedFetchAnswer
from barnabas.errors import UnsupportedVersion
from barnabas.server.decode_pool import answer_job
from barnabas.wire import MalformedMessage, by_name
from barnabas.wire.headers import encode_request

FETCH = 1
FOLLOWS = 17  # the version of the fetches of a follower
KEPT_BYTES_MAX = 4 << 20  # of a log that a parser appends to
TOPIC_ID = bytes(range(16))


def produce_request(folder: Path, stack: contextlib.ExitStack) -> Parse:
    """The native Produce handler of a broker with one partition."""
    system, directory = SystemCalls(), folder / "led"
    directory.mkdir()
    table = PartitionTable(system, Epochs(), node_id=1, durability="os")
    table.add_directory(str(directory), flush_threads=1)
    made = PartitionBroker(table, ProduceHandler(table), system, str(directory), SegmentCache())
    made.topic("orders")
    stack.callback(_close, made)
    log, native = made.logs["orders", 0], made.native

    def parse(data: bytes) -> None:
        with contextlib.suppress(MalformedProduce):
            answer = native.handle_frame(data)
            while answer is not None and not isinstance(answer, bytes):
                job = native.decodes.next(0)
                if job is not None:
                    answer_job(job)
                answer = answer.resume(5)
        if log.segments()[-1].size_bytes > KEPT_BYTES_MAX:
            log.truncate_fully_and_start_at(0)

    return parse


def _close(made: PartitionBroker) -> None:
    made.table.close()
    made.table.remove_topic("orders")
    log: LogHandle = made.logs["orders", 0]
    log.close(clean=False)


def produce_requests() -> Iterator[bytes]:
    current = (batch(), *(compressed(codec, [record()]) for codec in range(5)))
    for made in current:
        for version in (3, 8, 9, 12):
            yield produce_frame([("orders", 0, made)], version, acks=1)
    yield produce_frame([("orders", 0, current[0]), ("nosuch", 1, None)], acks=0)
    yield produce_frame([("orders", 0, current[0])], acks=1, transactional_id="t")
    yield produce_frame([(TOPIC_ID, 0, current[0])], 13, acks=1)
    for made in old_messages():
        for version in (0, 2):
            yield produce_frame([("orders", 0, made)], version, acks=1)


def fetch_request(folder: Path, stack: contextlib.ExitStack) -> Parse:
    """The native Fetch handler of a broker with one partition that has records."""
    (folder / "fetched").mkdir()
    broker = FetchBroker(folder / "fetched", {"t": 1})
    stack.callback(broker.close)
    broker.append("t", 0, batch())

    def parse(data: bytes) -> None:
        with contextlib.suppress(MalformedMessage, UnsupportedVersion):
            answer = broker.native.handle_frame(data)
            if isinstance(answer, ParkedFetch):
                answer.abandon()

    return parse


def fetch_requests() -> Iterator[bytes]:
    for vector in VECTORS:
        if vector["api"] == "FetchRequest":
            yield encode_request(FETCH, vector["version"], 7, "c", vector["bytes"], framed=False)
    fetch = by_name("FetchRequest")
    for version in range(4, 18):
        topic = fetch.struct("topics")(
            partitions=[fetch.struct("topics.partitions")(partition=0, partitionMaxBytes=1 << 20)],
            **({"topic": "t"} if version < 13 else {"topicId": b"\1" * 16}),
        )
        body = fetch.cls(maxBytes=1 << 20, topics=[topic])
        yield encode_request(FETCH, version, 7, "c", body, framed=False)


def fetch_answer(folder: Path, stack: contextlib.ExitStack) -> Parse:
    """What a follower takes from its leader: it appends the records to its own log."""
    follower = Follower(folder / "follower", {"t": (TOPIC_ID, 1)})
    stack.callback(follower.close)
    log = follower.logs["t", 0]
    now_ns = 0

    def parse(data: bytes) -> None:
        nonlocal now_ns
        now_ns += 10_000_000_000  # beyond every backoff
        if follower.fetches.next_request(FOLLOWS, now_ns) is None:
            follower.fetches.restart("t", 0)
            follower.fetches.next_request(FOLLOWS, now_ns)
        with contextlib.suppress(MalformedFetchAnswer):
            follower.fetches.take_response(data, now_ns)
        follower.fetches.take_events()
        if log.end_offset:
            log.truncate_fully_and_start_at(0)
            follower.fetches.restart("t", 0)

    return parse


def fetch_answers() -> Iterator[bytes]:
    for vector in VECTORS:
        if vector["api"] == "FetchResponse" and vector["version"] == FOLLOWS:
            yield vector["bytes"]
    fetch = by_name("FetchResponse")
    part, topic = fetch.struct("responses.partitions"), fetch.struct("responses")
    for records in (b"", batch(), sealed(batch())[:-3], vectors("batches")[-1]["bytes"]):
        rows = [part(partitionIndex=0, highWatermark=0, logStartOffset=0, records=records)]
        answer = fetch.cls(responses=[topic(topicId=TOPIC_ID, partitions=rows)])
        yield fetch.encode(answer, FOLLOWS)


PARSERS = {
    "produce_request": Parser(produce_request, produce_requests),
    "fetch_request": Parser(fetch_request, fetch_requests),
    "fetch_answer": Parser(fetch_answer, fetch_answers),
}
