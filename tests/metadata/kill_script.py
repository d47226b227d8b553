"""Child process of test_embedded_kill: writes to a store and prints each step once it is committed.

    kill_script.py DIRECTORY        run; prints the number of each committed step
As a module: `steps` gives the same operations, and `model_after` the tree after them.
"""

import os
import sys
from pathlib import Path

from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import CreateNode, DeleteNode, SetData

WAL_PAGES_MAX = 4  # checkpoints fall within the script


def steps():
    """Each step is one multi. The three nodes of a step are always created and deleted together."""
    found = [[CreateNode("/t")]]
    for number in range(3):
        triple = [f"/t/{number}", f"/t/{number}/x", f"/t/{number}/y"]
        found.append([CreateNode(path, b"created" * 300) for path in triple])
        found.append([SetData(path, b"changed%d" % number) for path in triple])
        if number % 2:
            found.append([DeleteNode(path) for path in reversed(triple)])
    found.append([CreateNode("/t/e", ephemeral=True)])
    return found


def model_after(count):
    model = {"/": b""}
    for operations in steps()[:count]:
        for operation in operations:
            if isinstance(operation, DeleteNode):
                del model[operation.path]
            elif not getattr(operation, "ephemeral", False):
                model[operation.path] = operation.data
    return model


if __name__ == "__main__":
    tree = EmbeddedTree(Path(sys.argv[1]), clock_ms=lambda: 1, wal_pages_max=WAL_PAGES_MAX)
    for number, operations in enumerate(steps(), start=1):
        tree.multi(operations)
        os.write(1, b"%d\n" % number)
    tree.close()
