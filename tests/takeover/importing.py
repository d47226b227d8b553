"""Runs `barnabas storage import` in tests, and compares directories."""

import json

from barnabas.cli import main


def content(directory):
    """Returns the bytes, the time of the last change and the mode of each file and directory."""
    found = {}
    for path in sorted(directory.rglob("*")):
        stat = path.stat()
        data = path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(directory))] = (data, stat.st_mtime_ns, stat.st_mode)
    return found


def files(directory):
    """Returns the bytes of each file of a partition directory, by its name."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def storage(capsys, *words, status=0):
    """Runs a command with --json. Returns its document or, for another status, its lines."""
    capsys.readouterr()
    assert main(["storage", *map(str, words), "--json"]) == status
    said = capsys.readouterr()
    return json.loads(said.out) if status == 0 else said.err.splitlines()


def import_to(capsys, data, *words, status=0):
    return storage(capsys, "import", *words, "--set", f"log.dirs={data}", status=status)
