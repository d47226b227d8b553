"""File names that a crash leaves while a compaction's output replaces segments, and what opening
the log does with them."""

import pytest
from oracle.log_builder import batch

from barnabas.cext.log.log_files import tidy

NEW, OLD = batch(b"new"), batch(b"old")
STEM = "00000000000000000000"


def left(folder, names):
    for name, content in names.items():
        (folder / f"{STEM}{name}").write_bytes(content)


def found(folder):
    return {path.name.removeprefix(STEM): path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("names", "after"),
    [
        pytest.param(
            {".log": OLD, ".index": b"old", ".txnindex.swap": b"new", ".log.cleaned": NEW},
            {".log": OLD, ".index": b"old"},
            id="before the .log became .swap: nothing is replaced",
        ),
        pytest.param(
            {".log": OLD, ".txnindex": b"old", ".index.swap": b"new", ".log.swap": NEW},
            {".log": NEW, ".index": b"new"},
            id="before the old files went: they go, also what has no successor",
        ),
        pytest.param(
            {
                ".log": OLD,
                ".txnindex.deleted": b"old",
                ".txnindex.swap": b"new",
                ".index.deleted": b"old",
                ".log.swap": NEW,
            },
            {".log": NEW, ".txnindex": b"new"},
            id="half of the old files went",
        ),
        pytest.param(
            {
                ".log.deleted": OLD,
                ".txnindex": b"new",
                ".index": b"new",
                ".timeindex.swap": b"new",
                ".log.swap": NEW,
            },
            {".log": NEW, ".txnindex": b"new", ".index": b"new", ".timeindex": b"new"},
            id="half of the new files have their names: they stay",
        ),
    ],
)
def test_an_opening_ends_what_was_begun(tmp_path, names, after):
    left(tmp_path, names)
    assert tidy(str(tmp_path)) == [0]
    assert found(tmp_path) == after
    assert tidy(str(tmp_path)) == [0]
    assert found(tmp_path) == after
