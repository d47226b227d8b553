"""A Copier of workload H as a program of its own, which can be killed when it hangs.

It prints a line of JSON for each operation: "decides" before it asks for a commit, "ended" after an
operation. It ends when its standard input does, and prints its stacks on SIGUSR1.

    python -m history.copier ADDRESS SEED NAME FIRST_VALUE SETTINGS
"""

import faulthandler
import json
import signal
import sys
import threading
from types import SimpleNamespace

from history.model import History, Operation, dump
from history.workload import Copier


class Told(History):
    """A history that is printed. Its values begin at `first_value`."""

    def __init__(self, first_value: int) -> None:
        super().__init__()
        self._values = first_value

    def add(self, operation: Operation) -> None:
        print(f"ended {dump(operation)}", flush=True)

    def decides(self, operation: Operation) -> None:
        print(f"decides {dump(operation)}", flush=True)


def main(address: str, seed: str, name: str, first_value: str, settings: str) -> None:
    faulthandler.register(signal.SIGUSR1, sys.stdout)
    stopping = threading.Event()
    workload = SimpleNamespace(
        address=address,
        seed=int(seed),
        more=json.loads(settings),
        history=Told(int(first_value)),
        stopping=stopping,
        errors=[],
    )
    copier = Copier(workload, name)
    threading.Thread(target=stop_at_end, args=(stopping,), daemon=True).start()
    copier.run()
    for _name, error in workload.errors:
        raise error


def stop_at_end(stopping: threading.Event) -> None:
    sys.stdin.read()
    stopping.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
