"""release/trial runs commands of README.md; the trial itself needs a network and minutes."""

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def trial():
    loader = importlib.machinery.SourceFileLoader("trial", str(ROOT / "release" / "trial"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("trial", loader))
    loader.exec_module(module)
    return module


def test_readme_has_the_commands_of_each_trial():
    module = trial()
    readme = (ROOT / "README.md").read_text()
    assert len(module.TRIALS) == 3
    for row in module.TRIALS:
        start, records = module.commands(readme, row.row)
        assert start.endswith("barnabas start"), start
        at = next(index for index, command in enumerate(records) if "consume" in command)
        assert at == 2 and module.FIRST_RECORD in records[1]
    with pytest.raises(ValueError, match="no row 'fly'"):
        module.commands(readme, "fly")
