"""The planted bugs of tests/mutants can still be planted. `make mutants` runs them."""

from pathlib import Path

from mutants.planted import PRODUCT, Mutant, mutants, place, sources

ROOT = Path(__file__).resolve().parents[2]
COUNT_MIN = 60
PACKAGES = {"cext", "groups", "transactions", "storage", "spark"}
# A change of the code may remove a bug's text; `make mutants` lists it. Replace it before too many
# are missing.
MISSING_MAX = 12


def test_nearly_all_bugs_can_be_planted() -> None:
    planted, texts = mutants(), sources(ROOT)
    missing = [mutant.damage for mutant in planted if place(mutant, ROOT, texts) is None]
    assert len(planted) >= COUNT_MIN and {mutant.package for mutant in planted} == PACKAGES
    assert len(missing) <= MISSING_MAX, missing


def test_each_bug_changes_something_and_its_tests_exist() -> None:
    for mutant in mutants():
        assert mutant.old != mutant.new, mutant.damage
        assert all((ROOT / name).exists() for name in mutant.tests), mutant.tests


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
