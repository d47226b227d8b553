"""No pickle, exec, eval or unsafe YAML in the package, where bytes of clients, ZooKeeper or disks
could reach it: ruff refuses them (pyproject.toml), and these tests see it do so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLANTED = {
    "S301": "import pickle\n\npickle.loads(b'')\n",
    "S102": "exec('1')\n",
    "S307": "eval('1')\n",
    "S506": "import yaml\n\nyaml.load('a')\n",
}
EXCEPT = re.compile(r"# noqa: S(301|102|307|506)")


@pytest.mark.parametrize("rule", PLANTED)
def test_ruff_refuses_what_could_run_the_bytes_of_others(rule):
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--no-cache",
        "--stdin-filename",
        "broker/planted.py",
        "-",
    ]
    ran = subprocess.run(command, input=PLANTED[rule], cwd=ROOT, capture_output=True, text=True)
    assert rule in ran.stdout and ran.returncode == 1


def test_nothing_in_the_package_is_excepted():
    for folder in ("broker", "clients", "plugins"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not EXCEPT.search(path.read_text()), path
