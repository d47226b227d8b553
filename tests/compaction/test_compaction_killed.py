"""The process is killed before system calls of a compaction: the log opens, every key has its
last value, deleted keys stay deleted, and aborted records are still known as aborted."""

import itertools
import os
import random
import shutil
import signal
from contextlib import closing

import pytest
from compaction.test_compaction_model import NOW, Author, Disk, one_pass, rows
from long_form import pick
from oracle.compaction import aborted_spans, is_aborted
from oracle.disk import parse_transactions

STEP = pick(short=3, long=1)  # of the calls of each kind


def committed_state(found, spans):
    state = {}
    for row in found:
        if row.commit is None and not is_aborted(row, spans):
            for _, _, key, value in row.records:
                state[key] = value
    return {key: value for key, value in state.items() if value is not None}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A log of several segments with all kinds of batches, and its state."""
    folder = tmp_path_factory.mktemp("prepared")
    disk = Disk(folder, segment_bytes=2500, index_interval_bytes=300)
    with closing(disk.open()) as log:
        author = Author(log, random.Random(11))
        author.write(110)
        author.end_all()
        log.roll()
        spans = aborted_spans(rows(log))
        state = committed_state(rows(log), spans)
    return folder, spans, state


def compact_in_a_child(folder, call, nth):
    """Returns whether the fault killed the child; False: it made fewer such calls."""
    child = os.fork()
    if child == 0:
        try:
            disk = Disk(folder, segment_bytes=2500, index_interval_bytes=300)
            log = disk.open(clean=True)
            disk.system.fault(call, "kill", nth=nth)
            one_pass(disk, log, 0, NOW)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize("clean", [True, False], ids=["not walked", "walked"])
@pytest.mark.parametrize("call", ["rename", "fdatasync", "pwritev", "open", "fsync_directory"])
def test_a_kill_before_any_call_loses_nothing(prepared, tmp_path, call, clean):
    source, spans, state = prepared
    for nth in itertools.count(1, STEP):
        folder = tmp_path / str(nth)
        shutil.copytree(source, folder)
        killed = compact_in_a_child(folder, call, nth)
        disk = Disk(folder, segment_bytes=2500, index_interval_bytes=300)
        with closing(disk.open(clean=clean)) as log:
            found = rows(log)
            assert committed_state(found, spans) == state
            assert log.end_offset == log.segments()[-1].base_offset
            assert not [name for name in disk.names() if name.endswith((".cleaned", ".swap"))]
            known = {
                entry
                for path in folder.glob("*.txnindex")
                for entry in parse_transactions(path.read_bytes())
            }
            for row in found:
                if row.commit is None and is_aborted(row, spans):
                    assert any(e[0] == row.producer and e[1] <= row.base <= e[2] for e in known)
            # And the next pass succeeds.
            one_pass(disk, log, 0, NOW)
            assert committed_state(rows(log), spans) == state
        shutil.rmtree(folder)
        if not killed:
            break
    assert nth > 1, "the fault never fired"
