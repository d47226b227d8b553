"""Child process of test_moves_killed: runs a `barnabas` command, and kills itself at one change.

    killed_move.py NUMBER WORD...      SIGKILL before (even NUMBER) or after (odd) change NUMBER / 2
    killed_move.py -1 WORD...          no kill; prints the number of changes on standard output

A change is a multi on either store, or a directory that is renamed or removed. Multis are small, so
that a copy needs several.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from barnabas.cli import main
from barnabas.metadata import zookeeper
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import Limits

OPERATIONS_MAX = 15


class Killer:
    """Counts the changes, and ends the process at the chosen one."""

    def __init__(self, at):
        self.at, self.count = at, 0

    def around(self, function):
        def changed(*arguments, **options):
            self._reach(2 * self.count)
            try:
                return function(*arguments, **options)
            finally:
                self._reach(2 * self.count + 1)
                self.count += 1

        return changed

    def _reach(self, number):
        if number == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    killer = Killer(int(sys.argv[1]))
    zookeeper.OPERATIONS_MAX = OPERATIONS_MAX
    EmbeddedTree.limits = Limits(OPERATIONS_MAX, 1 << 20)
    for owner, name in (
        (zookeeper.ZooKeeperTree, "multi"),
        (EmbeddedTree, "multi"),
        (Path, "rename"),
        (shutil, "rmtree"),
    ):
        setattr(owner, name, killer.around(getattr(owner, name)))
    status = main(sys.argv[2:])
    print(killer.count)
    sys.exit(status)
