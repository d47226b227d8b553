"""One log on a simulated disk, from a seed: the power is cut after any call of its life, the disk
keeps what was flushed and some or none of the rest, and the log opens. Nothing that was flushed is
lost, no offset is given twice, and readers see no record that was not written there.

    BARNABAS_HISTORY_SEED=7 pytest tests/durability/test_simulated_log.py -s     runs a seed again

simulated_log.py is the life, recording.py the disk. A seed makes the same calls, the same images
and the same checks in each run.
"""

import ast
import os
import random
import shutil
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from compaction.test_compaction_model import rows
from durability import recording
from durability.recording import Call, Choice, SimulatedDisk
from durability.simulated_log import LOG, SETTINGS
from long_form import pick
from oracle.compaction import Row, aborted_spans, is_aborted, rows_of
from oracle.disk import parse_transactions
from oracle.log_builder import NOW, Disk, batch

from barnabas.wire.batches import decode_batches

pytestmark = [
    pytest.mark.takes(seconds=5),
    pytest.mark.timeout(pick(short=300, long=7200)),
    pytest.mark.skipif(recording.missing() is not None, reason=recording.missing() or ""),
]

SEEDS = pick(short=1, long=40)
SEEDS_OF_BUGS = 20
STEPS = pick(short=40, long=80)
SHARE = pick(short=0.25, long=1.0)  # of the calls after which the power is cut
CHOICES = ("nothing", "names", "contents", "some", "some")


@dataclass
class Written:
    """What the marks say: the batches of the log, those that a truncation has removed, and what was
    flushed."""

    batches: list[Row] = field(default_factory=list)
    removed: list[Row] = field(default_factory=list)
    flushed: int = 0
    compacted: int = 0  # below it, a pass may have removed records

    def mark(self, text: bytes) -> None:
        name, *given = ast.literal_eval(text.decode())
        if name == "append":
            base, content = given
            [row] = rows_of(decode_batches(content, size_max=1 << 20))
            moved = tuple((base + offset, *rest) for offset, *rest in row.records)
            row = replace(row, base=base, last=base + row.last, records=moved)
            self.batches.append(row)
        elif name == "flushed":
            [self.flushed] = given
        elif name == "truncates":
            self.removed += [row for row in self.batches if row.last >= given[0]]
            self.batches = [row for row in self.batches if row.last < given[0]]
        elif name == "compacts":
            self.compacted = self.flushed

    def durable(self) -> list[Row]:
        """The batches that were flushed, in their order."""
        return [row for row in self.batches if row.last < self.flushed]


def check(directory: Path, written: Written, chance: random.Random) -> None:
    disk = Disk(directory, **SETTINGS)
    disk.system.stop_clocks(NOW, 0)
    recovery_point = chance.choice([0, written.flushed])
    with closing(disk.open(clean=False, recovery_point=recovery_point)) as log:
        found = rows(log)
        end = log.end_offset
        assert end >= written.flushed, f"the log ends at {end}, and {written.flushed} were flushed"
        assert not [name for name in disk.names() if name.endswith((".cleaned", ".swap"))]
        check_records(found, written)
        check_producers(log, found, written, directory)
        assert log.append(bytearray(batch(b"after")))[0] == end, "an offset is given twice"
        log.flush()
        found = rows(log)
    with closing(disk.open(clean=True)) as log:
        assert rows(log) == found


def check_records(found: list[Row], written: Written) -> None:
    there = {record[0]: (row, record) for row in found for record in row.records}
    assert list(there) == sorted(there), "offsets do not grow"
    sent = {
        (row.producer, record)
        for row in written.batches + written.removed
        for record in row.records
    }
    for offset, (row, record) in there.items():
        assert (row.producer, record) in sent, f"{record} was not written at {offset}"
    durable = written.durable()
    spans = aborted_spans(durable)
    newest: dict[bytes, int] = {}
    for row, record in there.values():
        if row.commit is None:
            newest[record[2]] = max(record[0], newest.get(record[2], -1))
    for row in durable:
        for record in row.records:
            offset, _, key, _ = record
            if offset in there:
                assert there[offset][1] == record, f"at {offset} is what was there before"
                continue
            assert offset < written.compacted, f"{offset} is lost"
            if row.commit is None and not is_aborted(row, spans):
                assert newest.get(key, -1) > offset, f"{offset} is lost: {key!r} has no later value"


def check_producers(log, found: list[Row], written: Written, directory: Path) -> None:
    sequences: dict[int, int] = {}
    for row in written.durable():
        if row.producer >= 0 and row.commit is None:
            sequences[row.producer] = row.sequence + len(row.records) - 1
    known = {row.producer_id: row.last_sequence for row in log.producers()}
    for producer, sequence in sequences.items():
        assert known.get(producer, -1) >= sequence, f"producer {producer} may send twice"
    entries = {
        entry
        for path in directory.glob("*.txnindex")
        for entry in parse_transactions(path.read_bytes())
    }
    spans = aborted_spans(found)
    for row in found:
        if row.commit is None and is_aborted(row, spans):
            assert any(e[0] == row.producer and e[1] <= row.base <= e[2] for e in entries), row


def recorded(work: Path, seed: int) -> tuple[Path, list[Call]]:
    folder = work / "disk"
    calls = recording.record(work, folder, "durability.simulated_log", str(seed), str(STEPS))
    return folder, calls


def cut_everywhere(folder: Path, calls: list[Call], seed: int, work: Path) -> int:
    """Returns the number of power cuts."""
    chance = random.Random(f"{seed}:cuts")
    disk, written, cuts = SimulatedDisk(folder), Written(), 0
    for number, call in enumerate(calls):
        disk.apply(call)
        if call.name == "mark":
            written.mark(call.data)
        if LOG not in disk.root.flushed or chance.random() > SHARE:
            continue
        name = chance.choice(CHOICES)
        choice = {
            "nothing": Choice(),
            "names": Choice(names=1),
            "contents": Choice(data=1),
            "some": Choice(chance=chance),
        }[name]
        image = work / "image"
        shutil.rmtree(image, ignore_errors=True)
        disk.write_image(image, choice)
        try:
            check(image / LOG, written, chance)
        except Exception as error:
            error.add_note(f"seed {seed}, after call {number} ({call.name} {call.path}), {name}")
            raise
        cuts += 1
    return cuts


@pytest.fixture
def work():
    """A folder in memory, where there is one: the simulated disk needs no real one."""
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(prefix="barnabas-", dir=memory if os.access(memory, os.W_OK) else None)
    yield Path(made)
    shutil.rmtree(made)


def first_seed() -> int:
    return int(os.environ.get("BARNABAS_HISTORY_SEED", 0)) or random.getrandbits(32)


def test_a_power_cut_after_any_call_loses_nothing_that_was_flushed(work):
    first, cuts, began = first_seed(), 0, time.monotonic()
    print(f"BARNABAS_HISTORY_SEED={first} runs these seeds again")
    for seed in range(first, first + SEEDS):
        folder, calls = recorded(work, seed)
        cuts += cut_everywhere(folder, calls, seed, work)
        shutil.rmtree(folder)
        (work / f"calls-of-{folder.name}").unlink()
    took = time.monotonic() - began
    print(f"{cuts} power cuts in {took:.1f} s: {60 * cuts / took:,.0f} a minute")
    assert cuts > 10 * SEEDS


# Flushes that a planted bug leaves out: of the files, or directories, of which the calls are.
BUGS = {
    "a segment is not flushed": lambda call: call.path.endswith(".log"),
    "its name is not flushed": lambda call: call.path.endswith(LOG),
    "a compacted segment is not flushed": lambda call: call.path.endswith(".log.cleaned"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_flush_that_is_left_out_is_found(work, bug):
    for seed in range(1, SEEDS_OF_BUGS):
        folder, calls = recorded(work, seed)
        kept = [call for call in calls if not (call.name == "sync" and BUGS[bug](call))]
        assert len(kept) < len(calls)
        try:
            cut_everywhere(folder, kept, seed, work)
        except AssertionError as error:
            print(f"seed {seed}: {error}")
            return
        shutil.rmtree(folder)
        (work / f"calls-of-{folder.name}").unlink()
    raise AssertionError("not found")


def test_a_seed_makes_the_same_calls(work):
    lives = []
    for _ in range(2):
        folder, calls = recorded(work, 7)
        lives.append([call._replace(inode=0) for call in calls])
        shutil.rmtree(folder)
        (work / f"calls-of-{folder.name}").unlink()
    assert lives[0] == lives[1]
