"""A log whose flush fails, for the recorder.

    python -m durability.failing_flush FOLDER

The marks `flushed` and `failed` come behind a flush of each kind.
"""

import sys
from pathlib import Path

from durability.recording import OwnCalls, mark
from oracle.log_builder import Disk, batch

from barnabas.cext.log.log_handle import LogError
from barnabas.storage.replace_file import sync_directory


def main(folder: str) -> None:
    directory = Path(folder) / "t-0"
    directory.mkdir()
    sync_directory(Path(folder))
    log = Disk(directory).open(clean=True)
    log.append(bytearray(batch(b"flushed")))
    log.flush()
    mark("flushed")
    log.append(bytearray(batch(b"lost")))
    OwnCalls().fail(directory, ["sync"], 0, 1)
    try:
        log.flush()
    except LogError:
        mark("failed")
    log.close(clean=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
