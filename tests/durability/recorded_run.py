"""The run of test_killed_at_each_call.py in one process with its broker, for the recorder.

    python -m durability.recorded_run FOLDER

The log directory is LOGS below the folder. What the run has asked for, and what it has got an
answer for, are marks in the recording.
"""

import ast
import sys

from durability import recording
from durability.test_killed_at_each_call import SETTINGS, Acknowledged, run

from barnabas import Broker

LOGS = "broker/logs"
SMALLER = {"log.durability": "fsync", "log.index.size.max.bytes": "4096"}


class MarkedDict(dict):
    def __init__(self, name):
        self.name = name

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        recording.mark(repr((self.name, key, value)))


class Marked(Acknowledged):
    """Each change becomes a mark."""

    def __init__(self):
        super().__init__()
        self.plain, self.kept = MarkedDict("plain"), MarkedDict("kept")

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name not in ("plain", "kept"):
            recording.mark(repr((name, None, value)))


def add_mark(done: Acknowledged, text: bytes) -> None:
    """Makes the change of a mark."""
    name, key, value = ast.literal_eval(text.decode())
    if key is None:
        setattr(done, name, value)
    else:
        getattr(done, name)[key] = value


def main(folder: str) -> None:
    given = {"log.dirs": f"{folder}/{LOGS}", "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(given | SETTINGS | SMALLER) as broker:
        run(broker.bootstrap_servers, Marked())


if __name__ == "__main__":
    main(*sys.argv[1:])
