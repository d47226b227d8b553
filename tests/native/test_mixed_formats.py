"""A log with messages of the formats 0 and 1 and batches of format 2, plain and compressed, with
transactions between them, as Kafka left it after changes of message.format.version: a model says
what each client version reads from each offset, what is found by time, and what compaction
leaves."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from compaction.test_compaction_model import SETTINGS
from long_form import pick
from native.test_fetch_old import ABORT, Old, decoded, marker
from oracle import old_fetch as kafka
from oracle.old_fetch import WHOLE, T

from barnabas.cext.fetch.fetch import ParkedFetch
from barnabas.cext.log.cleaner.offset_map import OffsetMap
from barnabas.cext.log.log_handle import LogSettings
from barnabas.cext.record.records import Record
from barnabas.storage.compaction import compact
from barnabas.storage.dirty_range import dirty_range_of
from barnabas.storage.log_manager import PartitionLog
from barnabas.wire.batches import decode_batches, encode_batch
from barnabas.wire.headers import encode_request

COMMIT = 1
KEYS = [b"key-%d" % at for at in range(12)]
SMALL = LogSettings(segment_bytes=1800, index_interval_bytes=250, segment_index_bytes=4096)
VERSIONS = (0, 1, 2, 3, 4, 10)


class Kept(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    timestamp: int
    magic: int  # as stored
    committed: bool


class Mixed:
    """The log of one partition, and the records that it should have."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.broker = Old(directory, {"t": 1})
        self.log = self.broker.logs["t", 0]
        self.log.set_config(SMALL)
        self.model: list[Kept] = []
        self.open: dict[int, list[int]] = {}  # by producer: places in the model
        self.sequences: dict[int, int] = {}
        self.stamps = iter(self.rng.sample(range(1, 10_000), 1000))

    def fill(self, batches: int) -> None:
        for _ in range(batches):
            magic, codec = self.rng.choice((0, 1, 1, 2, 2, 2)), self.rng.choice((0, 0, 1, 2, 3))
            producer = self.rng.choice((-1, 1, 2)) if magic == 2 else -1
            if producer in self.open and self.rng.random() < 0.5:
                self.end(producer)
            else:
                self.write(magic, codec, producer)
        for producer in list(self.open):
            self.end(producer)
        self.write(2, 0, -1)
        assert self.broker.parts["t", 0].commit(5000)

    def write(self, magic: int, codec: int, producer: int) -> None:
        rows = []
        for _ in range(self.rng.randint(1, 6)):
            value = None if self.rng.random() < 0.1 else b"v" * self.rng.randrange(60)
            stamp = -1 if magic == 0 else T + next(self.stamps)
            rows.append(Record(value, self.rng.choice(KEYS), timestamp=stamp))
        first = self.log.end_offset
        places = range(len(self.model), len(self.model) + len(rows))
        self.model += [
            Kept(first + at, row.key, row.value, row.timestamp, magic, True)
            for at, row in enumerate(rows)
        ]
        if magic < 2:
            data = encode_batch(rows, magic=magic, codec=codec, base_offset=first)
            self.log.append_as_follower(data)
            return
        named = {}
        if producer >= 0:
            self.open.setdefault(producer, []).extend(places)
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(rows)
            named = {
                "producer_id": producer, "producer_epoch": 0, "base_sequence": sequence,
                "transactional": True,
            }  # fmt: skip
        self.broker.append("t", 0, encode_batch(rows, codec=codec, **named))

    def end(self, producer: int) -> None:
        commits = self.rng.random() < 0.5
        at = self.log.end_offset
        self.broker.append("t", 0, marker(at, COMMIT if commits else ABORT, producer))
        for place in self.open.pop(producer):
            self.model[place] = self.model[place]._replace(committed=commits)

    def compact(self) -> None:
        self.log.roll()
        row = PartitionLog("t", 0, b"\0" * 16, Path(self.log.directory), self.log)
        now = T + 20_000
        span = dirty_range_of(row, SETTINGS, 0, self.log.end_offset, now)
        offsets = OffsetMap(1 << 20, secret=bytes(16))
        compact(row, SETTINGS, span, offsets, self.broker.system, 1 << 24, now, lambda _: True)
        latest = {row.key: row.offset for row in self.model if row.committed}
        self.model = [row for row in self.model if latest.get(row.key) == row.offset]

    def reads(
        self, version: int, offset: int, size: int, committed: bool
    ) -> Iterator[tuple[int, list[Kept]]]:
        """What each fetch from an offset on gives, and where the next one begins."""
        while offset < self.log.end_offset:
            part = self.part(version, offset, size, committed)
            assert part.errorCode == 0
            begins = offset
            aborted = sorted(
                [(row.firstOffset, row.producerId) for row in part.abortedTransactions or ()]
                if version >= 4 else []
            )  # fmt: skip
            gone: set[int] = set()
            found = []
            for batch in decode_batches(bytes(part.records), size_max=WHOLE, partial_tail=True):
                offset = max(offset, batch.last_offset + 1)
                while aborted and aborted[0][0] <= batch.last_offset:
                    gone.add(aborted.pop(0)[1])
                if batch.control:
                    assert version >= 4
                    gone.discard(batch.producer_id)
                elif not (batch.transactional and batch.producer_id in gone):
                    found += [
                        Kept(r.offset, r.key, r.value, r.timestamp, batch.magic, True)
                        for r in batch.records
                        if r.offset >= begins
                    ]
            if offset == begins:  # nothing but what this version cannot have is left
                left = [row for row in self.model if row.offset >= begins]
                assert not left, (version, begins, size, committed)
                return
            yield offset, found

    def part(self, version: int, offset: int, size: int, committed: bool):
        body = kafka.fetch_body("t", version, offset, size)
        body.isolationLevel = int(committed)
        answer = self.broker.native.handle_frame(
            encode_request(1, version, 7, "tests", body, framed=False)
        )
        if isinstance(answer, ParkedFetch):
            answer = answer.wait()
        return decoded(answer, version).responses[0].partitions[0]

    def expected(self, row: Kept, version: int) -> Kept:
        magic = min(row.magic, 0 if version < 2 else 1 if version < 4 else 2)
        return row._replace(
            magic=magic, timestamp=-1 if magic == 0 else row.timestamp, committed=True
        )

    def check_fetches(self) -> None:
        for version in VERSIONS:
            for offset in range(self.log.start_offset, self.log.end_offset):
                committed = version >= 4 and self.rng.random() < 0.5
                wanted = [
                    self.expected(row, version)
                    for row in self.model
                    if row.offset >= offset and (row.committed or not committed)
                ]
                # Versions below 3 get nothing of a batch above the limit.
                size = WHOLE if version < 3 else self.rng.choice((1, 400, WHOLE))
                got: list[Kept] = []
                for _, found in self.reads(version, offset, size, committed):
                    got += found
                    if len(got) > 30 and self.rng.random() < 0.5:
                        break
                magics = [row.magic for row in got]
                cleaned = [row._replace(magic=0) for row in got]
                assert cleaned == [row._replace(magic=0) for row in wanted][: len(got)]
                assert len(got) == len(wanted) or len(got) > 30, (version, offset)
                assert max(magics, default=0) <= (0 if version < 2 else 1 if version < 4 else 2)

    def check_times(self) -> None:
        """The first record at or after a time, whatever the order of times."""
        stamps = [row.timestamp for row in self.model if row.timestamp >= 0]
        for stamp in stamps:
            for time in (stamp, stamp + 1):
                found = self.offset_of(time)
                first = next((row for row in self.model if row.timestamp >= time), None)
                assert found == (None if first is None else (first.offset, first.timestamp)), time

    def offset_of(self, time: int) -> tuple[int, int] | None:
        hit = self.log.offset_for_time(time)
        if hit is None:
            return None
        offset, stamp, _, compressed = hit
        if not compressed:
            return offset, stamp
        batch = next(decode_batches(self.log.read(offset, 1), size_max=WHOLE, partial_tail=True))
        return next((r.offset, r.timestamp) for r in batch.records if r.timestamp >= time)


@pytest.mark.parametrize("seed", range(pick(short=4, long=60)))
def test_every_version_reads_what_the_model_has(tmp_path: Path, seed: int) -> None:
    mixed = Mixed(tmp_path, seed)
    mixed.fill(24)
    assert {row.magic for row in mixed.model} == {0, 1, 2}
    assert len(mixed.log.segments()) > 1
    mixed.check_fetches()
    mixed.check_times()
    assert mixed.log.offset_for_time(0, largest=True)[1] == max(
        row.timestamp for row in mixed.model
    )
    mixed.compact()
    mixed.check_fetches()
    mixed.check_times()
    mixed.broker.close()
