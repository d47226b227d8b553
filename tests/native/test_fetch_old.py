"""Fetch 0 to 3: records of format 2 as messages of the formats 0 and 1, compared with Apache Kafka
3.9.2's answers (oracle/old_fetch.py); and messages of format 1 as those of format 0."""

import copy
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from native.fetch_broker import FetchBroker, decoded
from oracle import old_fetch as kafka
from oracle.old_fetch import ABORT, IN_TXN, TOPICS, WHOLE, T, count_of, form

from barnabas.cext.codec.crc import crc32c
from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.fetch.fetch import ParkedFetch
from barnabas.cext.record.records import Record
from barnabas.server.down_conversion import convert_range, down_conversion_threads
from barnabas.wire import compression
from barnabas.wire.batches import decode_batches, encode_batch
from barnabas.wire.headers import encode_request

RECORDED = json.loads(
    (Path(__file__).parents[1] / "vectors/fetch-old-kafka-3.9.2.json").read_text()
)
POLICIES: dict[str, dict[str, Any]] = {
    "topic of zstd": {"codec": kafka.ZSTD},
    "without conversion": {"down_converts": False},
}
MARKERS = {"committed", "aborted"}


class Old(FetchBroker):
    """A broker whose conversions run on threads of its own."""

    def __init__(self, directory: Path, topics: dict[str, int], threads: bool = True) -> None:
        super().__init__(directory, topics)
        self.converters = down_conversion_threads(self.native.conversions)
        if threads:
            self.converters.start()

    def close(self) -> None:
        super().close()
        self.converters.stop()

    def fetch(
        self, topic: str, version: int, offset: int = 0, size: int = WHOLE, **fields: Any
    ) -> Any:
        body = kafka.fetch_body(topic, version, offset, size)
        for name, value in fields.items():
            setattr(body, name, value)
        return self.native.handle_frame(encode_request(1, version, 7, "tests", body, framed=False))

    def part(self, topic: str, version: int, offset: int = 0, **fields: Any) -> Any:
        """The answer of the partition."""
        answer = self.fetch(topic, version, offset, **fields)
        if isinstance(answer, ParkedFetch):
            answer = answer.wait()
        return decoded(answer, version).responses[0].partitions[0]


def marker(offset: int, commit: int, producer_id: int = 1) -> bytes:
    key = b"\x00\x00" + commit.to_bytes(2, "big")
    return encode_batch(
        [Record(b"\x00\x00\x00\x00\x00\x00", key, timestamp=T)],
        base_offset=offset, producer_id=producer_id, producer_epoch=0, transactional=True,
        control=True,
    )  # fmt: skip


def fill(broker: FetchBroker, topic: str, batches: list[bytes | int]) -> None:
    offset = 0
    for batch in batches:
        if isinstance(batch, int):
            batch = marker(offset, batch)
        elif topic == "append time":
            records = next(decode_batches(batch, size_max=WHOLE))
            batch = encode_batch(
                records.records, codec=records.codec, timestamp_type=1, append_time=T
            )
        broker.append(topic, 0, batch)
        offset += count_of(batch)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Old]:
    broker = Old(tmp_path_factory.mktemp("old"), dict.fromkeys(TOPICS, 1))
    for topic, batches in TOPICS.items():
        fill(broker, topic, batches)
        broker.table.set_policy(topic, **POLICIES.get(topic, {}))
    yield broker
    broker.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Old]:
    made = Old(tmp_path, {"t": 1})
    yield made
    made.close()


@pytest.mark.parametrize("topic", TOPICS)
def test_answers_as_kafka(recorded: Old, topic: str) -> None:
    asked = [step for step in kafka.steps() if step[0] == topic]
    assert asked
    for _, version, offset, size in asked:
        name = f"{topic}, version {version}, offset {offset}, {size} bytes"
        ours, theirs = form(recorded.part(topic, version, offset, size=size)), RECORDED[name]
        if topic in MARKERS and ours["messages"][: len(theirs["messages"])] == theirs["messages"]:
            continue  # Kafka's repetition behind a marker takes the place of later messages
        assert ours == theirs, name


def test_nothing_recorded_is_left_out() -> None:
    assert len(RECORDED) == len(set(kafka.steps()))


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_messages_of_format_1_become_format_0(broker: Old, codec: int) -> None:
    rows = [Record(b"v%d" % i, None, timestamp=T + i) for i in range(5)]
    broker.logs["t", 0].append_as_follower(encode_batch(rows, magic=1, codec=codec, base_offset=0))
    broker.append("t", 0, encode_batch(rows, codec=codec))
    values = [row.value for row in rows]
    for version, magic in ((0, 0), (2, 1), (4, 1)):
        first, records = [], []
        while len(records) < 10:
            data = broker.part("t", version, len(records), maxBytes=WHOLE).records
            for batch in decode_batches(data, size_max=WHOLE, partial_tail=True):
                first += [batch] if batch.last_offset < 5 else []
                records += [r for r in batch.records if r.offset >= len(records)]
        assert {(batch.magic, batch.codec) for batch in first} == {(magic, codec)}
        assert [(r.offset, r.value) for r in records] == list(enumerate(values * 2))
        stamps = {r.timestamp for r in records[:5]}
        assert stamps == ({-1} if magic == 0 else {T + i for i in range(5)})


def test_a_fetch_at_markers_goes_on_behind_them(broker: Old) -> None:
    """An old consumer cannot step over a control batch, because it never sees its offset."""
    fill(broker, "t", [encode_batch([Record(b"v")], **IN_TXN, base_sequence=0), ABORT])
    for size in (1, 90, WHOLE):
        assert broker.part("t", 2, 1, size=size).records == b""
    waiting = broker.fetch("t", 3, 1, size=1, maxWaitMs=20_000, maxBytes=1)
    assert isinstance(waiting, ParkedFetch)
    job = threading.Thread(target=lambda: (time.sleep(0.1), append(broker)))
    job.start()
    began = time.monotonic()
    told = decoded(waiting.wait(), 3).responses[0].partitions[0]
    job.join()
    assert time.monotonic() - began < 10
    assert form(told)["messages"] == [[1, 0, 2, 7, [None, "next"]]]


def append(broker: Old) -> None:
    broker.append("t", 0, encode_batch([Record(b"next", timestamp=T + 7)]))


def test_an_empty_answer_waits_for_the_deadline(broker: Old) -> None:
    fill(broker, "t", [encode_batch([Record(b"v")], **IN_TXN, base_sequence=0), ABORT])
    began = time.monotonic()
    assert broker.part("t", 1, 1, maxWaitMs=300).records == b""
    assert 0.25 < time.monotonic() - began < 5


def test_a_damaged_batch_ends_the_result(broker: Old) -> None:
    """The checksum is right: the records are not what the header says."""
    good = encode_batch([Record(b"v", timestamp=T)])
    bad = bytearray(encode_batch([Record(b"w", timestamp=T)], codec=compression.GZIP))
    bad[73] ^= 0xFF
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    broker.append("t", 0, good)
    broker.append("t", 0, bytes(bad))
    assert len(form(broker.part("t", 2))["messages"]) == 1
    assert broker.part("t", 2, 1).errorCode == 2


def test_a_batch_above_the_limit_of_decompression_is_an_error(broker: Old) -> None:
    broker.table.set_policy("t", decompressed_bytes_max=50_000)
    for codec in (1, 2, 3):
        broker.append("t", 0, encode_batch([Record(bytes(100_000))], codec=codec))
    for offset in range(3):
        assert broker.part("t", 2, offset).errorCode == 10


def test_a_request_gets_no_more_than_its_share_of_memory(broker: Old) -> None:
    for _ in range(20):
        broker.append("t", 0, encode_batch([Record(bytes(1 << 20))]))
    got = broker.part("t", 2, size=1 << 30).records
    assert 15 << 20 < len(got) <= 16 << 20


LARGE = encode_batch([Record(bytes(40_000))] * 5)  # 200,000 bytes


def test_while_memory_is_short_a_fetch_gets_fewer_bytes(broker: Old) -> None:
    for _ in range(5):
        broker.append("t", 0, LARGE)
    broker.native.conversions.memory_bytes_max = 8 * 500_000  # half a quarter is 500,000
    assert len(form(broker.part("t", 2, size=WHOLE))["messages"]) == 10
    broker.native.conversions.memory_bytes_max = 1
    assert len(form(broker.part("t", 2, size=WHOLE))["messages"]) == 5
    assert len(form(broker.part("t", 3, size=WHOLE))["messages"]) == 5
    broker.native.conversions.memory_bytes_max = 1 << 30
    assert len(form(broker.part("t", 2, size=WHOLE))["messages"]) > 20
    assert broker.native.conversions.memory_bytes == broker.native.conversions.memory_waits == 0


def test_old_fetches_wait_for_memory_in_their_order(tmp_path: Path) -> None:
    broker = Old(tmp_path, {"t": 1}, threads=False)
    broker.append("t", 0, LARGE)
    conversions = broker.native.conversions
    conversions.memory_bytes_max = 1_000_000  # two claims of twice the batch
    waiting = [broker.fetch("t", 2, size=WHOLE) for _ in range(7)]
    assert conversions.memory_waits == 5
    assert 800_000 < conversions.memory_bytes < 1_000_000
    assert conversions.counters()["depth"] == 2
    waiting[3].abandon()  # while it waits
    gone = decoded(waiting[4].resume(expired=True), 2).responses[0].partitions[0]
    assert (gone.errorCode, gone.records) == (0, b"")
    assert waiting[6].resume() is None
    broker.converters.start()
    for at in (0, 1, 2, 5, 6):
        assert len(form(decoded(waiting[at].wait(), 2).responses[0].partitions[0])["messages"]) == 5
    assert conversions.memory_bytes == 0
    broker.close()


def test_a_fetch_of_many_partitions_gives_the_first_ones_while_memory_is_short(
    tmp_path: Path,
) -> None:
    broker = Old(tmp_path, {"t": 3})
    for partition in range(3):
        broker.append("t", partition, LARGE)
    broker.native.conversions.memory_bytes_max = 1
    body = kafka.fetch_body("t", 2, 0, WHOLE)
    part = body.topics[0].partitions[0]
    body.topics[0].partitions = [copy.copy(part) for _ in range(3)]
    for partition in range(3):
        body.topics[0].partitions[partition].partition = partition
    answer = broker.native.handle_frame(encode_request(1, 2, 7, "tests", body, framed=False))
    rows = decoded(answer.wait(), 2).responses[0].partitions
    assert [(row.errorCode, len(row.records) > 0) for row in rows] == [
        (0, True), (0, False), (0, False)
    ]  # fmt: skip
    broker.close()


def test_results_that_grow_are_counted(tmp_path: Path) -> None:
    """A wrapped batch of small records: each message gets a checksum, which does not compress."""
    broker = Old(tmp_path, {"t": 1}, threads=False)
    rows = [Record(b"%d" % at, timestamp=T) for at in range(20_000)]
    small = encode_batch(rows, codec=1)
    broker.append("t", 0, small)
    conversions = broker.native.conversions
    conversions.memory_bytes_max = 4 * len(small)
    first, second, third = (broker.fetch("t", 2, size=WHOLE) for _ in range(3))
    assert conversions.memory_bytes == 4 * len(small)
    convert_range(conversions.next())
    assert conversions.memory_bytes > 6 * len(small)
    convert_range(conversions.next())  # gives nothing, so that no more memory is taken
    assert conversions.memory_bytes < 10 * len(small)
    assert decoded(second.resume(), 2).responses[0].partitions[0].records == b""
    assert third.resume() is None
    assert len(decoded(first.resume(), 2).responses[0].partitions[0].records) > 4 * len(small)
    assert third.resume() is None  # its claim is granted
    convert_range(conversions.next())
    assert len(decoded(third.resume(), 2).responses[0].partitions[0].records) > 4 * len(small)
    assert conversions.memory_bytes == 0
    broker.close()


def test_conversions_are_counted(broker: Old) -> None:
    broker.append("t", 0, encode_batch([Record(b"v")] * 3))
    broker.append("t", 0, encode_batch([Record(b"v")] * 4, codec=1))
    broker.part("t", 0, size=WHOLE)
    broker.part("t", 4, size=WHOLE)
    counters = broker.table.partition("t", 0).counters()
    assert counters["fetch_conversions"] == 7


def test_a_closed_queue_is_a_retriable_error(broker: Old) -> None:
    broker.append("t", 0, encode_batch([Record(b"v")]))
    broker.native.conversions.close()
    assert broker.part("t", 2).errorCode == 7


def test_a_job_whose_request_is_gone(tmp_path: Path) -> None:
    """Queued, it is removed; with a thread, its result is freed."""
    broker = Old(tmp_path, {"t": 1}, threads=False)
    broker.append("t", 0, encode_batch([Record(b"v")], codec=1))
    waiting = broker.fetch("t", 2)
    waiting.abandon()
    assert broker.native.conversions.counters()["depth"] == 0
    waiting = broker.fetch("t", 2)
    job = broker.native.conversions.next()
    waiting.abandon()
    convert_range(job)
    dropped = broker.fetch("t", 2)
    job = broker.native.conversions.next()
    del job  # without an answer
    assert decoded(dropped.wait(), 2).responses[0].partitions[0].errorCode == -1
    broker.close()


def test_requests_that_are_cut_off_are_refused(broker: Old) -> None:
    for version in range(4):
        body = kafka.fetch_body("t", version, 0, 1)
        frame = encode_request(1, version, 7, "tests", body, framed=False)
        for size in range(15, len(frame)):
            with pytest.raises(MalformedMessage):
                broker.native.handle_frame(frame[:size])
