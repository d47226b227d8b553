"""Addresses of one partition: they stay the same through everything that happens to its log."""

import random
import struct

import pytest
from oracle import kafka07
from oracle.log_builder import NOW, Disk

from barnabas.cext.record.messages07 import MissingRecords
from barnabas.cext.record.records import Record
from barnabas.legacy07 import addresses
from barnabas.legacy07.addresses import AddressOutOfRange, PartitionAddresses
from barnabas.storage.address_index import DamagedIndex
from barnabas.wire import batches

CONTENT_MAX = 1 << 20
WHOLE = 1 << 30


def batch_of(values, **fields):
    return batches.encode_batch([Record(v, b"k", timestamp=NOW) for v in values], **fields)


def marker(producer_id, commit, **fields):
    records = [Record(struct.pack(">hi", 0, 0), struct.pack(">hh", 0, commit), timestamp=NOW)]
    return batches.encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
        **fields,
    )


@pytest.fixture(autouse=True)
def _small_intervals(monkeypatch):
    monkeypatch.setattr(addresses, "INTERVAL_BYTES", 50)
    monkeypatch.setattr(addresses, "READ_BYTES", 300)


def end_of(log):
    """The last stable offset, if everything is committed."""
    return log.end_offset if log.first_open_offset < 0 else log.first_open_offset


def opened(disk, log, magic=1):
    return PartitionAddresses(disk.directory, log, magic=magic, content_max=CONTENT_MAX)


def extended(disk, log, **how):
    found = opened(disk, log, **how)
    assert found.extend(end_of(log))
    return found


def table(found, log):
    """The address of each offset, from the start of the log to its end."""
    return {
        offset: found.address_of(offset) for offset in range(log.start_offset, log.end_offset + 1)
    }


def filled(log, count, seed=1, values_of=None):
    """Appends batches of every codec; returns all values."""
    rng = random.Random(seed)
    values = []
    for number in range(count):
        part = [bytes(rng.randrange(30)) + b"%d" % number for _ in range(rng.randrange(1, 4))]
        log.append(batch_of(part, codec=rng.randrange(5)))
        values += part
    return values


def sums(values):
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(kafka07.message(value)))
    return ends


def test_an_address_is_the_sum_of_the_messages_before_it(tmp_path) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    values = filled(log, 60)
    found = extended(disk, log)
    assert list(table(found, log).values()) == sums(values)
    assert found.end == sums(values)[-1] and found.earliest() == 0
    for offset, address in enumerate(sums(values)[:-1]):
        assert found.read(address, WHOLE, WHOLE) == kafka07.messages(values[offset:])
        one = kafka07.message(values[offset])
        assert found.read(address, len(one), WHOLE) == one
        assert found.read(address, 1, WHOLE) == one
        assert found.read(address, 1, 5) == one[:5]
        if len(one) > 10:
            with pytest.raises(AddressOutOfRange):
                found.read(address + 1, WHOLE, WHOLE)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_second_start_finds_the_same_addresses_and_magic(tmp_path, magic) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    filled(log, 30)
    before = table(extended(disk, log, magic=magic), log)
    log.close()
    log = disk.open(clean=True)
    found = extended(disk, log, magic=1 - magic)
    assert table(found, log) == before
    filled(log, 30, seed=2)
    assert found.extend(end_of(log))
    after = table(found, log)
    assert {offset: after[offset] for offset in before} == before


def test_an_index_can_be_cut_off_anywhere(tmp_path) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    filled(log, 9)
    expected = table(extended(disk, log), log)
    path = tmp_path / "addresses07"
    whole = path.read_bytes()
    for size in range(16 + 24, len(whole)):
        for tail in (b"", bytes(len(whole) - size)):  # a power cut may leave zeros
            path.write_bytes(whole[:size] + tail)
            for _ in range(2):  # the second reads what the first has appended
                assert table(extended(disk, log), log) == expected


def test_a_damaged_index_is_refused(tmp_path) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    filled(log, 9)
    extended(disk, log)
    path = tmp_path / "addresses07"
    whole = path.read_bytes()
    for at in range(len(whole) - 24):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DamagedIndex):
            opened(disk, log)
    for size in range(16 + 23):
        path.write_bytes(whole[:size])
        with pytest.raises(DamagedIndex):
            opened(disk, log)


def test_retention_raises_the_earliest_address_only(tmp_path) -> None:
    disk = Disk(tmp_path, segment_bytes=1000)
    log = disk.open()
    filled(log, 100)
    found = extended(disk, log)
    before = table(found, log)
    for offset in (segment.base_offset for segment in log.segments()[2:]):
        found.keep(offset)
        log.advance_log_start(offset)
        log.delete_segments_before(offset)
        assert found.earliest() == before[offset]
        for again in (found, opened(disk, log)):
            again.extend(end_of(log))
            assert again.earliest() == before[offset]
            after = table(again, log)
            assert after == {each: before[each] for each in after}
        with pytest.raises(AddressOutOfRange):
            found.read(before[offset] - 1, WHOLE, WHOLE)


def test_a_start_inside_a_batch(tmp_path) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    values = [b"%d" % number * 9 for number in range(12)]
    log.append(batch_of(values, codec=1))
    found = extended(disk, log)
    before = table(found, log)
    for offset in (5, 6, 11, 12):
        found.keep(offset)
        log.advance_log_start(offset)
        for again in (found, extended(disk, log)):
            assert again.earliest() == before[offset]
            assert again.read(before[offset], WHOLE, WHOLE) == kafka07.messages(values[offset:])


def test_an_index_that_is_made_late_begins_at_the_start_of_the_log(tmp_path) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    values = [b"%d" % number for number in range(9)]
    log.append(batch_of(values))
    log.advance_log_start(4)
    found = extended(disk, log)
    assert found.earliest() == 0
    assert found.read(0, WHOLE, WHOLE) == kafka07.messages(values[4:])


def test_no_address_is_used_again_when_records_were_removed_without_notice(tmp_path) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    first = filled(log, 5)
    found = extended(disk, log)
    end, offset = found.end, log.end_offset
    filled(log, 5, seed=3)
    start = log.end_offset
    last = filled(log, 5, seed=4)
    log.advance_log_start(start)
    for again in (found, opened(disk, log)):
        again.extend(end_of(log))
        assert offset < start
        assert again.earliest() == found.earliest() > end == sums(first)[-1]
        assert again.read(again.earliest(), WHOLE, WHOLE) == kafka07.messages(last)
        for address in (0, end):
            with pytest.raises(AddressOutOfRange):
                again.read(address, WHOLE, WHOLE)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_truncation_is_followed(tmp_path, is_open) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    log.assign_epoch(1)
    for number in range(40):
        log.append(batch_of([b"%02d" % number]), leader_epoch=1)
    found = extended(disk, log)
    before = table(found, log)
    log.truncate_to(21)
    log.assign_epoch(2)
    for number in range(40):
        log.append(batch_of([b"longer than before %02d" % number]), leader_epoch=2)
    if not is_open:
        found = opened(disk, log)
    assert found.extend(end_of(log))
    after = table(found, log)
    assert {o: after[o] for o in range(22)} == {o: before[o] for o in range(22)}
    values = [b"%02d" % n for n in range(21)] + [b"longer than before %02d" % n for n in range(40)]
    assert list(after.values()) == sums(values)
    assert found.read(0, WHOLE, WHOLE) == kafka07.messages(values)
    assert table(extended(disk, log), log) == after


def test_a_log_that_begins_anew_uses_no_address_again(tmp_path) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    log.assign_epoch(1)
    log.append(batch_of([b"a"] * 30), leader_epoch=1)
    found = extended(disk, log)
    end = found.end
    log.truncate_fully_and_start_at(1000)
    log.assign_epoch(2)
    log.append(batch_of([b"b"]), leader_epoch=2)
    found.extend(end_of(log))
    for again in (found, extended(disk, log)):
        assert again.earliest() == found.earliest() > end
        assert again.read(again.earliest(), WHOLE, WHOLE) == kafka07.messages([b"b"])


def test_markers_and_aborted_records_have_no_bytes(tmp_path) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    in_txn = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.append(batch_of([b"plain"]))
    log.append(batch_of([b"aborted"], producer_id=1, **in_txn))
    log.append(batch_of([b"kept"], producer_id=2, **in_txn))
    for number in range(20):
        log.append(batch_of([b"between %d" % number]))
    found = opened(disk, log)
    assert log.first_open_offset == 1
    assert found.extend(end_of(log))
    assert found.end == 15
    log.append(marker(1, 0))
    log.append(marker(2, 1))
    log.append(batch_of([b"last"]))
    assert found.extend(end_of(log))
    values = [b"plain", b"kept", *(b"between %d" % n for n in range(20)), b"last"]
    for again in (found, extended(disk, log)):
        assert again.end == sums(values)[-1]
        for at, address in enumerate(sums(values)):
            assert again.read(address, WHOLE, WHOLE) == kafka07.messages(values[at:])


@pytest.mark.parametrize("is_marker", [False, True])
def test_removed_records_are_refused(tmp_path, is_marker) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    log.append(batch_of([b"a"]))
    log.append_as_follower(
        marker(1, 1, base_offset=5) if is_marker else batch_of([b"b"], base_offset=5)
    )
    found = opened(disk, log)
    with pytest.raises(MissingRecords, match="from offset 1 on"):
        found.extend(end_of(log))
    assert found.end == 11


def test_work_that_takes_long_goes_on_later(tmp_path) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    values = filled(log, 30)
    found = opened(disk, log)
    steps = 1
    while not found.extend(end_of(log), lambda: True):
        steps += 1
        assert found.read(0, WHOLE, WHOLE) == kafka07.messages(values[: found.end_offset])
    assert steps == 30 and found.end == sums(values)[-1]


def test_old_formats_have_addresses_too(tmp_path) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    values = []
    for number, (magic, codec) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1), (2, 3), (0, 2)]):
        part = [b"%d-%d" % (number, each) for each in range(number + 1)]
        for data in old_batches(part, log.end_offset, magic, codec):
            log.append_as_follower(data)
        values += part
    found = extended(disk, log)
    assert list(table(found, log).values()) == sums(values)
    assert found.read(0, WHOLE, WHOLE) == kafka07.messages(values)


def old_batches(part, offset, magic, codec):
    data = batches.encode_batch(
        [Record(v, None, timestamp=NOW) for v in part], base_offset=offset, magic=magic, codec=codec
    )
    for one in batches.decode_batches(data, size_max=CONTENT_MAX):
        yield data[one.start : one.start + one.size_bytes]


def test_an_entry_that_cannot_be_written_is_not_kept(tmp_path) -> None:
    disk = Disk(tmp_path)
    log = disk.open()
    filled(log, 30)
    found = opened(disk, log)
    path = tmp_path / "addresses07"
    path.rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        found.extend(end_of(log))
    (tmp_path / "away").rename(path)
    assert found.extend(end_of(log))
    assert table(found, log) == table(extended(disk, log), log)
