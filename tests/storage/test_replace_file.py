"""Small files that are replaced together: no new content is visible before all of it is on disk."""

import os
from pathlib import Path

import pytest

from barnabas.storage import replace_file
from barnabas.storage.replace_file import MANY, Replacements


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
