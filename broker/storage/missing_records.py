"""Logs the loss of records that a log held before and that none of its files holds now.

The checkpoints of a log directory have the last known end of each log (recovery point, high
watermark, log start). A log whose files end earlier, or whose directory is missing, has lost
records: it continues at the offset of the checkpoints, so that no offset is used twice. The loss is
an ERROR line with the remedy. A gap between two segments is a loss too, unless the partition was
compacted: compaction leaves gaps. A gap above what the checkpoints say was flushed comes from a
power cut, and the log ends before it (cext/log/log_handle.pyx). Apache Kafka 2.7 to 4.3 logs none
of this and uses the offsets again. Segments that are missing at the start of a log look like
retention and are not detected.

A replica whose log ends earlier does not skip offsets: it fetches them again, if another replica
has their records.

Next: log_manager.py.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from barnabas.cext.log.cut_files import Cut

log = logging.getLogger("barnabas.logs")

RANGES_MAX = 10  # lines for one partition


def report_cuts(path: Path, cuts: Sequence[Cut]) -> None:
    """Logs where the bytes are that recovery cut off the log in `path`. Valid batches among them
    may have been acknowledged, so the line is an ERROR; without valid batches the cause is usually
    a torn write."""
    for cut in cuts:
        if cut.path:
            log.log(
                logging.ERROR if cut.batches else logging.WARNING,
                "%s: %d bytes from the first damaged byte on were cut off the log and are kept in"
                " %s; %d records in %d sound batches are among them. `barnabas log dump` reads the"
                " file; remove it when you do not need it.",
                path.name,
                cut.size_bytes,
                cut.path,
                cut.records,
                cut.batches,
            )


def report_missing(path: Path, missing: Sequence[tuple[int, int]], end_offset: int) -> None:
    """Logs each range [first, end) of offsets that the log in `path` lost; `end_offset` is where
    its next record goes."""
    for first, end in missing[:RANGES_MAX]:
        log.error(
            "%s: the records at offsets %d to %d are missing: no segment in %s holds them, because"
            " files were deleted or emptied, or bytes behind damage were cut off (*.cut files)."
            " Consumers cannot read them; new records go on at offset %d. To repair it, stop the"
            " broker and put the missing files back from a copy.",
            path.name,
            first,
            end - 1,
            path,
            end_offset,
        )
    if len(missing) > RANGES_MAX:
        log.error("%s: %d more ranges of offsets are missing", path, len(missing) - RANGES_MAX)


def report_short(path: Path, end_offset: int, known_end: int) -> None:
    """Logs that the log of a replica in `path` ends before the offset of its checkpoints."""
    log.warning(
        "%s: ends at offset %d, and its checkpoints say %d: the records between are not on this"
        " disk, as after a power failure with log.durability=os. This broker fetches them again"
        " from another replica; they are lost if none has them.",
        path.name,
        end_offset,
        known_end,
    )
