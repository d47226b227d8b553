"""docs/install.md has one table of the extras: each of pyproject.toml, and whether the one-file
executable has its packages (release/onefile.spec)."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


ROW = re.compile(r"^\| `([a-z0-9-]+)` \| .* \| (yes|no) \|$", re.M)


def test_the_table_of_extras_is_that_of_the_project_and_of_the_one_file():
    rows = ROW.findall((ROOT / "docs/install.md").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {name for name, _ in rows} == set(project["optional-dependencies"])
    collected = re.search(r"^EXTRAS = (.*)$", (ROOT / "release/onefile.spec").read_text(), re.M)
    assert collected and {name for name, inside in rows if inside == "yes"} == set(
        re.findall(r'"(.*?)"', collected[1])
    )
