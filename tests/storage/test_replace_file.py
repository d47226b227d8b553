"""Small files that are replaced together: no new content is visible before all of it is on disk."""

import os
import shutil
from pathlib import Path

import pytest

from barnabas.storage import replace_file
from barnabas.storage.replace_file import MANY, Replacements, commit_each


@pytest.fixture
def steps(monkeypatch) -> list[tuple[str, str]]:
    """The syncs and renames, in order."""
    seen: list[tuple[str, str]] = []
    replace, fsync, fdatasync = os.replace, os.fsync, os.fdatasync
    sync_filesystem = replace_file.sync_filesystem

    def name_of(fd: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{fd}")).name

    def spy(kind, real, name):
        def call(*arguments):
            seen.append((kind, name(*arguments)))
            return real(*arguments)

        return call

    monkeypatch.setattr(os, "replace", spy("replace", replace, lambda a, b: Path(b).name))
    monkeypatch.setattr(os, "fsync", spy("sync", fsync, name_of))
    monkeypatch.setattr(os, "fdatasync", spy("sync", fdatasync, name_of))
    monkeypatch.setattr(
        replace_file, "sync_filesystem", spy("sync", sync_filesystem, lambda path: "all")
    )
    return seen


def filled(tmp_path: Path, count: int) -> Replacements:
    made = Replacements()
    for number in range(count):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / f"f{number}").write_bytes(b"old")
        made.add(tmp_path / str(number) / f"f{number}", b"new")
    return made


def contents(tmp_path: Path) -> set[bytes]:
    return {path.read_bytes() for path in tmp_path.glob("*/f*") if path.suffix != ".tmp"}


def test_every_content_is_on_disk_before_the_first_name_changes(tmp_path, steps):
    made = filled(tmp_path, 2)
    assert contents(tmp_path) == {b"old"} and not steps
    made.commit()
    assert contents(tmp_path) == {b"new"}
    assert steps == [
        ("sync", "f0.tmp"),
        ("sync", "f1.tmp"),
        ("replace", "f0"),
        ("replace", "f1"),
        ("sync", "0"),
        ("sync", "1"),
    ]


def test_many_files_share_two_syncs(tmp_path, steps):
    filled(tmp_path, MANY).commit()
    assert contents(tmp_path) == {b"new"}
    assert [kind for kind, _ in steps] == ["sync", *["replace"] * MANY, "sync"]


def test_without_sync_of_a_file_system_each_file_has_its_own(tmp_path, steps, monkeypatch):
    made = filled(tmp_path, MANY)
    monkeypatch.setattr(replace_file, "sync_filesystem", lambda path: False)
    made.commit()
    assert contents(tmp_path) == {b"new"}
    assert [kind for kind, _ in steps] == ["sync"] * MANY + ["replace"] * MANY + ["sync"] * MANY


def test_a_failed_sync_changes_no_file(tmp_path, monkeypatch):
    def fail(path):
        raise OSError(5, "Input/output error")

    made = filled(tmp_path, MANY)
    monkeypatch.setattr(replace_file, "sync_filesystem", fail)
    with pytest.raises(OSError):
        made.commit()
    assert contents(tmp_path) == {b"old"}


def test_a_commit_leaves_nothing_for_the_next(tmp_path, steps):
    made = filled(tmp_path, 1)
    made.commit()
    steps.clear()
    made.commit()
    assert steps == []


def failing_once(monkeypatch, name: str) -> None:
    """Lets the next sync of a file with this name fail."""
    real, left = replace_file._sync_file, [name]

    def sync(path: Path) -> None:
        if path.name in left:
            left.remove(path.name)
            raise OSError(5, "Input/output error", str(path))
        real(path)

    monkeypatch.setattr(replace_file, "_sync_file", sync)


def test_a_commit_after_a_failed_one_writes_the_contents_again(tmp_path, monkeypatch):
    """The kernel takes them for clean after the failure."""
    made = filled(tmp_path, 2)
    failing_once(monkeypatch, "f1.tmp")
    with pytest.raises(OSError):
        made.commit()
    for path in tmp_path.glob("*/*.tmp"):
        path.write_bytes(b"lost")
    made.commit()
    assert contents(tmp_path) == {b"new"}


def test_a_commit_after_a_failed_one_leaves_out_what_was_removed(tmp_path, monkeypatch):
    made = filled(tmp_path, 2)
    failing_once(monkeypatch, "f1.tmp")
    with pytest.raises(OSError):
        made.commit()
    shutil.rmtree(tmp_path / "0")
    made.commit()
    assert contents(tmp_path) == {b"new"}


def test_directories_whose_files_can_be_replaced_do_not_wait_for_the_others(tmp_path, monkeypatch):
    rows = {}
    for number in range(3):
        path = tmp_path / str(number)
        path.mkdir()
        rows[path] = Replacements()
        rows[path].add(path / f"f{number}", b"new")
    (tmp_path / "1" / "f1").mkdir()  # no file can be renamed over a directory
    failed = commit_each(rows)
    assert list(failed) == [tmp_path / "1"]
    assert (tmp_path / "0" / "f0").read_bytes() == (tmp_path / "2" / "f2").read_bytes() == b"new"
    (tmp_path / "1" / "f1").rmdir()
    assert not commit_each({path: rows[path] for path in failed})
    assert (tmp_path / "1" / "f1").read_bytes() == b"new"
