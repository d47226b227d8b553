"""The projects of docs/examples: their own tests pass, and they need what they say they need."""

import re
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from testing.test_pytest_plugin import run

ROOT = Path(__file__).resolve().parents[2] / "docs" / "examples"
PROJECTS = sorted(path.parent.name for path in ROOT.glob("*/requirements.txt"))


def test_the_page_lists_every_project():
    assert len(PROJECTS) == 3
    listed = re.findall(r"^\| \[([\w-]+)\]\(\1/\w+\.py\) ", (ROOT / "README.md").read_text(), re.M)
    assert sorted(listed) == PROJECTS


@pytest.mark.parametrize("project", PROJECTS)
def test_its_tests_pass(project, tmp_path):
    for line in (ROOT / project / "requirements.txt").read_text().splitlines():
        wanted = Requirement(line)
        assert wanted.specifier.contains(version(wanted.name), prereleases=True), line
    for path in (ROOT / project).glob("*.py"):
        shutil.copy(path, tmp_path)
    code, output = run(tmp_path)
    assert code == 0, output
    assert "1 passed" in output
