"""The files of a stopped or killed broker are damaged, then it starts: it serves what was
acknowledged, or the log ends earlier and the broker logs by how much. It never serves a wrong
record."""

import random
import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from compat.support import Wire
from durability.broker_process import BrokerProcess, free_port
from long_form import LONG
from node.test_settings import create, fetch, produce
from waiting import soon

from barnabas.wire import request
from barnabas.wire.batches import decode_batches

COUNT = 300
FIRST_MS = 1_700_000_000_000
SETTINGS = {
    "log.segment.bytes": 8192,
    "log.index.interval.bytes": 256,
    # If it were written every 5 s, it would show in some runs that the log was longer.
    "replica.high.watermark.checkpoint.interval.ms": 3_600_000,
}
BEFORE = {"message.timestamp.before.max.ms": 1 << 62}


def value_of(number: int) -> bytes:
    return b"%06d-" % number + bytes([number & 255]) * 90


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Path, Path]:
    """Data directories with the same 300 records: after a clean stop, and after kill -9."""
    clean = tmp_path_factory.mktemp("clean")
    killed = tmp_path_factory.mktemp("killed")
    for path in (clean, killed):
        broker = BrokerProcess(path, free_port(), SETTINGS)
        with Wire(broker.address) as wire:
            create(wire, "t", BEFORE)
            for number in range(COUNT):
                stamp = FIRST_MS + 1000 * number
                row = produce(wire, "t", value_of(number), timestamp=stamp)
                assert (row.errorCode, row.baseOffset) == (0, number)
        if path is clean:
            assert broker.stop() == 0
        else:
            broker.kill()
    return clean, killed


@contextmanager
def started(path: Path):
    with BrokerProcess(path, free_port(), SETTINGS) as broker, Wire(broker.address) as wire:
        yield broker, wire


def copy(source: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(source, tmp_path / "data"))


def segments(data: Path, suffix: str = ".log") -> list[Path]:
    return sorted((data / "t-0").glob(f"*{suffix}"))


def read_from(wire: Wire, offset: int) -> tuple[int, dict[int, bytes]]:
    """(error, {offset: value}) of one fetch."""
    error, found, _ = _fetched(wire, offset)
    return error, found


def _fetched(wire: Wire, offset: int) -> tuple[int, dict[int, bytes], int]:
    """(error, {offset: value}, the next offset) of one fetch."""
    [row] = fetch(wire, "t", offset=offset).responses[0].partitions
    found, after = {}, offset
    for batch in decode_batches(bytes(row.records or b""), size_max=1 << 26, partial_tail=True):
        found |= {record.offset: record.value for record in batch.records}
        after = batch.last_offset + 1
    return row.errorCode, {at: value for at, value in found.items() if at >= offset}, after


def read_all(wire: Wire) -> tuple[dict[int, bytes], list[int]]:
    """The records that are served, and the offsets answered with CORRUPT_MESSAGE, which are
    skipped."""
    found: dict[int, bytes] = {}
    corrupt = []
    offset, end = 0, offset_at(wire, -1)
    while offset < end:
        error, some, after = _fetched(wire, offset)
        if error:
            assert error == 2
            corrupt.append(offset)
            offset += 1
        else:
            assert after > offset, f"nothing at {offset}, before the end {end}"
            found |= some
            offset = after
    return found, corrupt


def offset_at(wire: Wire, timestamp: int) -> int:
    ask = request(2)
    row = ask.struct("topics.partitions")(partitionIndex=0, timestamp=timestamp)
    topics = [ask.struct("topics")(name="t", partitions=[row])]
    answer = wire.call(2, 5, ask.cls(replicaId=-1, topics=topics)).topics[0].partitions[0]
    assert answer.errorCode == 0
    return int(answer.offset)


def check_all(wire: Wire, end: int = COUNT) -> None:
    """Reads every record below `end`, by offset and by timestamp."""
    found, corrupt = read_all(wire)
    assert not corrupt
    assert found == {number: value_of(number) for number in range(end)}
    for number in range(0, end, 37):
        assert min(read_from(wire, number)[1]) == number
        assert offset_at(wire, FIRST_MS + 1000 * number - 500) == number


TAILS = {
    "torn batch": lambda log: log[:70],
    "zeros": lambda log: bytes(60_000),
    "old data": lambda log: log[:1000],
    "noise": lambda log: random.Random(1).randbytes(5000),
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
def test_what_lies_behind_the_last_record_is_cut_and_said(written, tmp_path, tail):
    data = copy(written[1], tmp_path)
    last = segments(data)[-1]
    whole = last.read_bytes()
    added = tail(whole)
    last.write_bytes(whole + added)
    with started(data) as (broker, wire):
        check_all(wire)
        assert any(f"{len(added)} bytes" in line for line in broker.lines), broker.lines
        assert produce(wire, "t", b"next").baseOffset == COUNT


def test_torn_last_write_costs_that_write_only(written, tmp_path):
    data = copy(written[1], tmp_path)
    last = segments(data)[-1]
    last.write_bytes(last.read_bytes()[:-10])
    with started(data) as (broker, wire):
        check_all(wire, end=COUNT - 1)
        assert any("are not a batch" in line for line in broker.lines)
        assert produce(wire, "t", b"next").baseOffset == COUNT - 1


INDEX_DAMAGE = {
    "missing": lambda path, other: path.unlink(),
    "empty": lambda path, other: path.write_bytes(b""),
    "too long": lambda path, other: path.write_bytes(path.read_bytes() + bytes(8 * 12)),
    "too long by noise": lambda path, other: path.write_bytes(path.read_bytes() + b"\x7f" * 48),
    "odd length": lambda path, other: path.write_bytes(path.read_bytes() + b"\1\2\3"),
    "zeroed": lambda path, other: path.write_bytes(bytes(path.stat().st_size)),
    "of another segment": lambda path, other: shutil.copyfile(other, path),
    "noise": lambda path, other: path.write_bytes(random.Random(2).randbytes(path.stat().st_size)),
}


@pytest.mark.one_of("clean stop", "kill")
@pytest.mark.parametrize("damage", INDEX_DAMAGE.values(), ids=INDEX_DAMAGE.keys())
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_damaged_indexes_change_no_answer(written, tmp_path, damage, clean):
    data = copy(written[0 if clean else 1], tmp_path)
    for suffix in (".index", ".timeindex"):
        paths = segments(data, suffix)
        other = paths[len(paths) // 2]
        content = other.read_bytes()
        foreign = tmp_path / "foreign"
        foreign.write_bytes(content)
        for path in paths:
            if path != other or damage is not INDEX_DAMAGE["of another segment"]:
                damage(path, foreign)
    with started(data) as (_, wire):
        check_all(wire)


def in_place(path: Path, content: bytes) -> None:
    """Writes other or fewer bytes into the file that the broker has mapped."""
    with open(path, "r+b") as file:
        file.write(content)
        file.truncate(len(content))


DAMAGE_WHILE_IT_RUNS = {
    "missing": lambda path, other: path.unlink(),
    "cut to nothing": lambda path, other: in_place(path, b""),
    "cut in an entry": lambda path, other: in_place(path, path.read_bytes()[:5]),
    "zeroed": lambda path, other: in_place(path, bytes(path.stat().st_size)),
    "of another segment": lambda path, other: in_place(path, other),
    "noise": lambda path, other: in_place(path, random.Random(2).randbytes(path.stat().st_size)),
    "too long": lambda path, other: in_place(path, path.read_bytes() + b"\x7f" * 9000),
}


@pytest.mark.parametrize("damage", DAMAGE_WHILE_IT_RUNS.values(), ids=DAMAGE_WHILE_IT_RUNS.keys())
def test_indexes_damaged_below_a_running_broker_change_no_answer(tmp_path, damage):
    with BrokerProcess(tmp_path, free_port(), SETTINGS) as broker, Wire(broker.address) as wire:
        create(wire, "t", BEFORE)

        def write(first: int, end: int) -> None:
            for number in range(first, end):
                stamp = FIRST_MS + 1000 * number
                row = produce(wire, "t", value_of(number), timestamp=stamp)
                assert (row.errorCode, row.baseOffset) == (0, number)

        write(0, COUNT)
        check_all(wire)  # now every index is mapped
        for suffix in (".index", ".timeindex"):
            paths = segments(tmp_path, suffix)
            other = paths[1].read_bytes()
            for path in paths:
                damage(path, other)
        check_all(wire)
        write(COUNT, COUNT + 150)
        check_all(wire, end=COUNT + 150)
        assert broker.stop() == 0
    with started(tmp_path) as (_, wire):
        check_all(wire, end=COUNT + 150)


CHECKPOINTS = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "t-0/leader-epoch-checkpoint",
]


@pytest.mark.one_of("clean stop", "kill")
@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"0\n9\nt 0", b"\xff\xfe\n"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_damaged_checkpoints_lose_nothing(written, tmp_path, content, clean):
    data = copy(written[0 if clean else 1], tmp_path)
    for name in CHECKPOINTS:
        (data / name).write_bytes(content)
    with started(data) as (_, wire):
        check_all(wire)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_damaged_snapshots_lose_nothing(written, tmp_path, clean):
    data = copy(written[0 if clean else 1], tmp_path)
    paths = segments(data, ".snapshot")
    assert paths
    for path in paths:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x10
        path.write_bytes(content)
    with started(data) as (_, wire):
        check_all(wire)


@pytest.mark.one_of("clean stop", "kill")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_flipped_bit_never_gives_a_wrong_record(written, tmp_path, seed, clean):
    data = copy(written[0 if clean else 1], tmp_path)
    chance = random.Random(seed)
    for path in chance.sample(segments(data), 2):
        content = bytearray(path.read_bytes())
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
    with started(data) as (broker, wire):
        found, corrupt = read_all(wire)
        assert all(value == value_of(number) for number, value in found.items())
        missing = set(range(COUNT)) - found.keys()
        assert missing, "the damage was not met"
        if not clean and not corrupt:
            assert any("are not a batch" in line for line in broker.lines)


def exchanged(data: Path, *suffixes: str) -> None:
    """Two sealed segments have each other's files."""
    for suffix in suffixes:
        first, second = (segments(data, suffix)[at] for at in (1, 2))
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)


def older(data: Path, suffix: str, at: int) -> None:
    """A file is restored from a backup of the time when it had half of its batches or entries."""
    path = segments(data, suffix)[at]
    content = path.read_bytes()
    if suffix == ".log":
        size = int.from_bytes(content[8:12], "big") + 12
        content = content[: len(content) // size // 2 * size]
    else:
        entry = {".index": 8, ".timeindex": 12}[suffix]
        content = content[: len(content) // entry // 2 * entry]
    path.write_bytes(content)


def first_again(data: Path, suffix: str) -> None:
    """A later segment is restored from a backup of the first."""
    segments(data, suffix)[2].write_bytes(segments(data, suffix)[0].read_bytes())


# What is done, and whether records may be missing afterwards.
EXCHANGED = {
    "two segments exchanged": (lambda data: exchanged(data, ".log", ".index", ".timeindex"), True),
    "two .log exchanged": (lambda data: exchanged(data, ".log"), True),
    "two .index exchanged": (lambda data: exchanged(data, ".index"), False),
    "two .timeindex exchanged": (lambda data: exchanged(data, ".timeindex"), False),
    "an older .log": (lambda data: older(data, ".log", 1), True),
    "an older active .log": (lambda data: older(data, ".log", -1), True),
    "an older .index": (lambda data: older(data, ".index", 1), False),
    "an older .timeindex": (lambda data: older(data, ".timeindex", 1), False),
    "a .log of the first": (lambda data: first_again(data, ".log"), True),
    "an .index of the first": (lambda data: first_again(data, ".index"), False),
}


# In the short form some after a clean stop, the others after a kill.
AFTER_STOPS = [
    (name, clean)
    for number, name in enumerate(EXCHANGED)
    for clean in (True, False)
    if LONG or clean == (number % 3 != 0)
]


@pytest.mark.parametrize(("name", "clean"), AFTER_STOPS)
def test_exchanged_and_older_files_never_give_a_wrong_record(written, tmp_path, name, clean):
    damage, loses = EXCHANGED[name]
    data = copy(written[0 if clean else 1], tmp_path)
    damage(data)
    with started(data) as (broker, wire):
        if not loses:
            check_all(wire)
            return
        found, corrupt = read_all(wire)
        assert all(value == value_of(number) for number, value in found.items())
        missing = sorted(set(range(COUNT)) - found.keys())
        assert missing, "the damage was not met"
        said = [line for line in broker.lines if "t-0" in line]
        # After a kill, no file says that the log was longer than its older copy.
        assert corrupt or said or (name, clean) == ("an older active .log", False)
        answer = produce(wire, "t", b"next")
        assert answer.errorCode == 0 and answer.baseOffset >= max(found) + 1
        if clean:
            assert answer.baseOffset == COUNT, "an offset is given twice"


def test_corrupt_batch_in_an_old_segment_is_reported_and_its_neighbours_are_served(
    written, tmp_path
):
    data = copy(written[0], tmp_path)
    path = segments(data)[1]
    base = int(path.stem)
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[8:12], "big") + 12
    content[3 * size + 80] ^= 1
    path.write_bytes(content)
    with started(data) as (broker, wire):
        found, corrupt = read_all(wire)
        assert corrupt == [base + 3]
        assert found == {n: value_of(n) for n in range(COUNT) if n != base + 3}
        assert min(read_from(wire, base + 4)[1]) == base + 4
        told = f"t-0: bytes {3 * size} to {4 * size} of {path} hold no valid batch"
        soon(lambda: any(told in line for line in list(broker.lines)), "the damage is not logged")
        assert read_from(wire, base + 3)[0] == 2
        time.sleep(1.2)  # time for one more report of the damage
        assert sum("hold no valid batch" in line for line in broker.lines) == 1, "told once"


def leader_epoch(wire: Wire) -> int:
    ask = request(3)
    answer = wire.call(3, 9, ask.cls(topics=[ask.struct("topics")(name="t")]))
    return int(answer.topics[0].partitions[0].leaderEpoch)


def batch_epochs(wire: Wire, offset: int) -> set[int]:
    [row] = fetch(wire, "t", offset=offset).responses[0].partitions
    found = decode_batches(bytes(row.records), size_max=1 << 26, partial_tail=True)
    return {batch.leader_epoch for batch in found if batch.last_offset >= offset}


def test_leader_epoch_is_raised_after_a_kill_and_kept_after_a_clean_stop(written, tmp_path):
    data = copy(written[1], tmp_path)
    with started(data) as (broker, wire):
        raised = leader_epoch(wire)
        assert raised >= 1
        assert produce(wire, "t", b"next").errorCode == 0
        assert batch_epochs(wire, COUNT) == {raised}
        assert 0 in batch_epochs(wire, COUNT - 1)
        assert broker.stop() == 0
    with started(data) as (broker, wire):
        kept = leader_epoch(wire)
        broker.kill()
    with started(data) as (_, wire):
        assert leader_epoch(wire) > kept
