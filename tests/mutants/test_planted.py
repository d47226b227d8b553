"""The planted bugs of tests/mutants can still be planted. `make mutants` runs them."""

import re
from pathlib import Path

import pytest
from mutants import run
from mutants.planted import PACKAGES, PRODUCT, Mutant, mutants, place, sources

ROOT = Path(__file__).resolve().parents[2]
COUNT_MIN = 60
# A change of the code may remove a bug's text; `make mutants` lists it. Replace it before a second
# one is missing.
MISSING_MAX = 1


def test_nearly_all_bugs_can_be_planted() -> None:
    planted, texts = mutants(), sources(ROOT)
    missing = [mutant.damage for mutant in planted if place(mutant, ROOT, texts) is None]
    assert len(planted) >= COUNT_MIN
    assert PACKAGES == {"cext", "groups", "transactions", "storage", "spark"}
    assert len(missing) <= MISSING_MAX, missing


def test_each_bug_changes_something_and_its_tests_exist() -> None:
    for mutant in mutants():
        assert mutant.old != mutant.new, mutant.damage
        assert all((ROOT / name).exists() for name in mutant.tests), mutant.tests


def test_the_tests_that_caught_them_exist() -> None:
    lines = (ROOT / "tests/mutants/results.md").read_text().splitlines()
    table = [line.split("|") for line in lines if line.startswith("| ")]
    column = table[0].index(" caught by ")  # the other column names tests of v0.1.0
    found = [re.match(r" (tests/\S+\.py)::(\w+)", cells[column]) for cells in table[1:]]
    rows = [row.groups() for row in found if row]
    assert len(rows) >= COUNT_MIN
    gone = [row for row in rows if f"def {row[1]}(" not in (ROOT / row[0]).read_text()]
    assert not gone


def test_a_text_that_moved_is_found_and_one_that_is_ambiguous_is_missing(tmp_path: Path) -> None:
    mutant = Mutant("groups", "d", "broker/old_name.py", "if a < b:", "if a <= b:", ())
    for top in PRODUCT:
        (tmp_path / top).mkdir()
    moved = tmp_path / "cext" / "new_name.pyx"
    moved.write_text("if a < b:\n")
    assert place(mutant, tmp_path, sources(tmp_path)) == moved
    (tmp_path / "broker" / "other.py").write_text("if a < b:\n")
    assert place(mutant, tmp_path, sources(tmp_path)) is None
    moved.write_text("if a > b:\n")
    (tmp_path / "broker" / "other.py").write_text("")
    assert place(mutant, tmp_path, sources(tmp_path)) is None


def test_a_bug_leaves_nothing_that_was_compiled_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the bug in build/lib came back with the next build: later rows were of two bugs."""
    source = tmp_path / "cext" / "log" / "a.pyx"
    compiled = [
        source.with_suffix(".c"),
        source.with_suffix(".so"),
        tmp_path / "build" / "lib.linux-x86_64" / "barnabas" / "cext" / "log" / "a.so",
    ]
    for file in (source, *compiled):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("if a < b:\n")
    before = {file: (file.read_text(), file.stat().st_mtime_ns) for file in (source, *compiled)}

    def build() -> str:
        for file in compiled:
            file.write_text(source.read_text())
        return ""

    def verdict(tests: tuple[str, ...], limit_s: float, path: Path) -> tuple[str, float]:
        assert all(file.read_text() == "if a <= b:\n" for file in (source, *compiled))
        return "passed", 1.0

    monkeypatch.setattr(run, "COPY", tmp_path)
    monkeypatch.setattr(run, "build", build)
    monkeypatch.setattr(run, "verdict", verdict)
    bug = Mutant("cext", "d", "cext/log/a.pyx", "a < b", "a <= b", ())
    assert run.planted(bug, source, 1.0) == ("passed", 1.0)
    assert before == {
        file: (file.read_text(), file.stat().st_mtime_ns) for file in (source, *compiled)
    }


def test_the_tests_of_a_module_are_those_that_have_its_name_or_import_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "COPY", tmp_path)
    texts = {
        "test_a_sessions.py": "",
        "test_b.py": "from barnabas.cext.fetch.sessions import Sessions\nimport os\n",
        "test_c.py": "from barnabas.cext.fetch import sessions\n",
        "test_d.py": "from barnabas.cext.fetch import fetch\n",
    }
    (tmp_path / "tests").mkdir()
    for name, text in texts.items():
        (tmp_path / "tests" / name).write_text(text)
    found = run.nearest(tmp_path / "cext" / "fetch" / "sessions.pyx", ("tests",))
    assert found == ["tests/test_a_sessions.py", "tests/test_c.py", "tests/test_b.py"]
