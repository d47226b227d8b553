"""Log lines for records that a log held once and that no file of it holds any more.

The checkpoints of a log directory say how far each log reached (recovery point, high watermark, log
start). A log whose files end earlier, or whose directory is gone, has lost records: it goes on at
the offset that the checkpoints say, so that no offset is used twice, and the loss is an ERROR with
the way to repair it. A gap between two segments is one too, unless the partition was compacted:
compaction removes records and leaves gaps. Apache Kafka 2.7 to 4.3 logs none of this and uses the
offsets again. Segments that are missing at the start of a log look like retention: they are not
noticed.

Next: log_manager.py.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger("barnabas.logs")

RANGES_MAX = 10  # lines for one partition


def report_missing(path: Path, missing: Sequence[tuple[int, int]], end_offset: int) -> None:
    """Logs each range [first, end) of offsets that the log in `path` lost; `end_offset` is where
    its next record goes."""
    for first, end in missing[:RANGES_MAX]:
        log.error(
            "%s: the records at offsets %d to %d are missing: a segment in %s, or the directory,"
            " was deleted, emptied or cut while no broker ran. Consumers cannot read them; new"
            " records go on at offset %d. To repair it, stop the broker and put the missing files"
            " back from a copy.",
            path.name,
            first,
            end - 1,
            path,
            end_offset,
        )
    if len(missing) > RANGES_MAX:
        log.error("%s: %d more ranges of offsets are missing", path, len(missing) - RANGES_MAX)
