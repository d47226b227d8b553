"""Temporary directories of brokers: what other processes do at the same time."""

import os
from contextlib import contextmanager

from barnabas.storage.scratch_dir import make_scratch_dir


def test_a_directory_that_its_process_removes_while_it_is_looked_at(tmp_path, monkeypatch):
    """Two brokers at a time, of which one ends when the other one starts."""
    gone = tmp_path / "barnabas-gone"
    gone.mkdir()
    scandir = os.scandir

    @contextmanager
    def removed_afterwards(path):
        with scandir(path) as rows:
            found = list(rows)
        gone.rmdir()
        yield iter(found)

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(os, "scandir", removed_afterwards)
    made = make_scratch_dir(durable=True)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [made]
