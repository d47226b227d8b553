"""A random life of one log, from a seed, for the recorder: batches of producers and transactions,
rolls, flushes, compaction passes, truncations of what was not flushed, restarts.

    python -m durability.simulated_log FOLDER SEED STEPS

The log is FOLDER/t-0. It takes the shipped code: LogHandle and the cleaner, over their system-call
table, whose clocks stand still. One thread, so that the same seed makes the same calls. A mark
before a step says what it is about to do; the mark `flushed` comes after the flush.
"""

import random
import sys
from pathlib import Path

from compaction.test_compaction_model import Author, one_pass
from durability.recording import mark
from oracle.log_builder import NOW, Disk

from barnabas.storage.replace_file import sync_directory

LOG = "t-0"
SETTINGS = {"segment_bytes": 2500, "index_interval_bytes": 300}
BATCHES_MAX = 6


class MarkedLog:
    """A log whose appends are marks before they are made."""

    def __init__(self, log) -> None:
        self._log, self.bases = log, []

    def append(self, batch) -> None:
        self.bases.append(self._log.end_offset)
        mark(repr(("append", self._log.end_offset, bytes(batch))))
        self._log.append(batch)


def flush(log) -> None:
    log.flush()
    mark(repr(("flushed", log.flushed_offset)))


def compact(disk: Disk, log, chance: random.Random) -> None:
    """As the cleaner does: everything that is not in the active segment, and is flushed."""
    flush(log)
    if len(log.segments()) < 2:
        return
    mark(repr(("compacts",)))
    one_pass(disk, log, 0, NOW)
    if chance.random() < 0.5:
        log.unlink_deleted()


def truncate(log, bases: list[int], chance: random.Random) -> bool:
    """Removes batches that were not flushed, as a follower does. Returns whether there were any."""
    ends = [base for base in bases if log.flushed_offset <= base < log.end_offset]
    if not ends:
        return False
    to = chance.choice(ends)
    mark(repr(("truncates", to)))
    log.truncate_to(to)
    bases[:] = [base for base in bases if base < to]
    return True


def main(folder: str, seed: str, steps: str) -> None:
    chance = random.Random(int(seed))
    directory = Path(folder) / LOG
    directory.mkdir()
    sync_directory(Path(folder))
    disk = Disk(directory, **SETTINGS)
    disk.system.stop_clocks(NOW, 0)
    log = disk.open(clean=True)
    author = Author(MarkedLog(log), chance)
    for _ in range(int(steps)):
        step = chance.random()
        if step < 0.55:
            author.write(chance.randint(1, BATCHES_MAX))
        elif step < 0.75:
            flush(log)
        elif step < 0.82:
            log.roll()
        elif step < 0.90:
            compact(disk, log, chance)
        elif step < 0.95:
            if truncate(log, author.log.bases, chance):
                known = log.producers()
                author.sequences = {row.producer_id: row.last_sequence + 1 for row in known}
                author.open = {row.producer_id for row in known if row.txn_first_offset >= 0}
        else:
            log.close(clean=True)
            log = disk.open(clean=True)
            mark(repr(("flushed", log.flushed_offset)))
            author.log = MarkedLog(log)
    log.close(clean=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
