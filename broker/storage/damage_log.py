"""Logs damage in segments: each range of bad bytes once, a few lines for each call."""

import logging
from pathlib import Path

from barnabas.storage.log_manager import LogManager

log = logging.getLogger("barnabas.logs")

PERIOD_MS = 1000
LINES_MAX = 10  # a time; a segment full of bad batches would fill the log otherwise


def write_damage(logs: LogManager) -> int:
    """Logs the damage found since the last call; returns the number of finds."""
    finds = logs.take_damage()
    for find in finds[:LINES_MAX]:
        path = Path(find.path)
        log.error(
            "%s: bytes %d to %d of %s hold no valid batch; fetches that meet them are answered"
            " CORRUPT_MESSAGE. Consumers can continue after them. To repair the file, stop the"
            " broker and restore it from a backup",
            path.parent.name,
            find.first,
            find.end,
            path,
        )
    if len(finds) > LINES_MAX:
        log.error("%d more damaged ranges of bytes were found", len(finds) - LINES_MAX)
    return len(finds)
