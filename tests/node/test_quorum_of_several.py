"""A KRaft file that names several voters."""

import subprocess
import sys
from pathlib import Path

from api.admin_calls import admin_on

BARNABAS = Path(sys.executable).parent / "barnabas"
VOTERS = "1@a:9093,2@b:9093,3@c:9093"


def test_several_voters_do_not_start_clusters_of_one(tmp_path):
    """F9: each of the three nodes started a cluster of its own, with one line about it."""
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path / 'data'}\ncontroller.quorum.voters={VOTERS}\n")
    command = [str(BARNABAS), "start", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "controller.quorum.voters" in line and "names 3 nodes" in line
    assert not (tmp_path / "data").exists()


def test_several_voters_start_when_allowed(tmp_path):
    settings = {"controller.quorum.voters": VOTERS, "allow.cluster.of.one": "true"}
    with admin_on(tmp_path, **settings) as a:
        a.create("t")
        assert a.names() == ["t"]
