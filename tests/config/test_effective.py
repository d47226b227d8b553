"""A setting counts as effective only when a test of its effect exists and names it."""

import ast
from pathlib import Path

import pytest

from barnabas.config.settings import (
    EFFECTIVE,
    EFFECTIVE_PATH,
    fits,
    read_effective,
    read_reasons,
    settings_of,
    unsupported,
)

ROOT = Path(__file__).resolve().parents[2]


def effective_problems(effective, root):
    wrong = []
    for (scope, name), test in effective.items():
        setting = settings_of(scope).get(name) if scope in ("broker", "topic", "group") else None
        path, _, function = test.partition("::")
        file = root / path
        if setting is None:
            wrong.append(f"{scope} {name}: not in the table")
        elif path.startswith("tests/config/"):
            wrong.append(f"{name}: {path} tests the value, not its effect")
        elif not file.is_file():
            wrong.append(f"{name}: {path} does not exist")
        elif not names_setting(file.read_text(), function, name):
            wrong.append(f"{name}: {test} is not a test that names the setting")
    return wrong


def names_setting(source, function, name):
    """Whether the test function, or one of its decorators, contains the setting's name as a
    string."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == function.split("::")[-1]:
            inside = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
            texts = [text for text in inside if isinstance(text, str)]
            return function.startswith("test_") and any(
                name == text or f"{name}=" in text for text in texts
            )
    return False


def test_every_effective_setting_has_a_test_of_its_effect():
    assert effective_problems(EFFECTIVE, ROOT) == []


def test_the_list_is_sorted_so_that_branches_merge():
    lines = [ln for ln in Path(EFFECTIVE_PATH).read_text().splitlines() if not ln.startswith("#")]
    assert lines == sorted(set(lines))


def reason_problems(reasons, effective, without):
    wrong = []
    for pattern, why in reasons:
        if not why or why.endswith("."):
            wrong.append(f"{pattern}: no reason, or one with a full stop")
        if not any(fits(name, pattern) for name in without):
            wrong.append(f"{pattern}: fits no setting without effect")
        if pattern in effective:
            wrong.append(f"{pattern}: has an effect")
    patterns = [pattern for pattern, _ in reasons]
    if patterns != sorted(set(patterns)):
        wrong.append("not sorted")
    return wrong


def test_reasons_stand_only_for_settings_without_effect():
    without = {setting.name for setting in unsupported()}
    effective = {name for _, name in EFFECTIVE}
    assert reason_problems(read_reasons(), effective, without) == []
    damaged = [("listeners", "no"), ("a*", ""), ("z.*", "no.")]
    assert len(reason_problems(damaged, effective, without)) == 6


def test_every_setting_without_effect_has_a_reason():
    """F23: 153 rows said only "not built yet"."""
    assert [s.name for s in unsupported() if not s.why_without_effect] == []
    assert all("\n" not in s.why_without_effect for s in unsupported())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("topic retention.ms tests/storage/test_absent.py::test_x", "does not exist"),
        ("topic nosuch tests/storage/test_a.py::test_effect", "not in the table"),
        ("topic retention.ms tests/storage/test_a.py::test_other", "names the setting"),
        ("topic retention.ms tests/storage/test_a.py::helper", "names the setting"),
        ("topic retention.bytes tests/storage/test_a.py::test_effect", "names the setting"),
        ("topic retention.ms tests/config/test_a.py::test_effect", "not its effect"),
        ("topic retention.ms tests/storage/test_a.py::test_effect", None),
    ],
)
def test_a_claim_without_its_test_is_seen(tmp_path, line, reason):
    (tmp_path / "tests" / "storage").mkdir(parents=True)
    (tmp_path / "tests" / "storage" / "test_a.py").write_text(
        'def test_effect():\n    log = log_of(settings={"retention.ms": "1"})\n'
        "def test_other():\n    pass\n"
        'def helper():\n    return "retention.ms"\n'
    )
    (tmp_path / "effective.txt").write_text(line + "\n")
    problems = effective_problems(read_effective(str(tmp_path / "effective.txt")), tmp_path)
    assert problems == [] if reason is None else reason in problems[0]
