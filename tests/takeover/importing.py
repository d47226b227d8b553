"""Runs `barnabas storage import` in tests, also killed before a call, and compares directories."""

import json
import subprocess
import sys

from long_form import pick

from barnabas.cli import main

_KILLED = """\
import os, sys
from barnabas.cli import main

left, place = int(sys.argv[1]), sys.argv[2]
COUNTED = ("open", "os.mkdir", "os.rename", "os.link", "os.utime", "sqlite3.connect")
REMOVED = ("os.remove", "os.rmdir")  # also by names in an open directory

def count(event, arguments):
    global left
    inside = str(arguments[0]).startswith(place) if arguments else False
    if (event in COUNTED and inside) or (event in REMOVED and (inside or arguments[1] != -1)):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)

sys.addaudithook(count)
status = main(sys.argv[3:])
print(-left, file=sys.stderr)
sys.exit(status)
"""


def killed_before(call, place, *words):
    """Runs `barnabas storage` with --json and kills it before its nth call that opens, makes,
    renames or removes something in a directory. The call must exist."""
    child = _run(call, place, words)
    assert child.returncode == -9, child.stderr


def calls_of(place, *words):
    """Runs the command to its end. Returns how many such calls it makes."""
    child = _run(0, place, words)
    assert child.returncode == 0, child.stderr
    return int(child.stderr.split()[-1])


def _run(call, place, words):
    command = [sys.executable, "-c", _KILLED, str(call), str(place), "storage"]
    command += [*map(str, words), "--json"]
    return subprocess.run(command, capture_output=True, text=True)


def kills(calls, *short, last):
    """Returns before which of the calls a test kills: in the short form before some, and before
    each of the last ones, where a command ends its work."""
    assert max(short) <= calls - last
    return pick(short=[*short, *range(calls - last + 1, calls + 1)], long=range(1, calls + 1))


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
