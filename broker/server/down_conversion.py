"""Threads that convert records to the message formats 0 and 1 for Fetch 0 to 3.

cext converts batches without the GIL (cext/fetch/down_conversion.pyx); these threads decompress and
compress those that are compressed, with the packages of `barnabas.wire.compression`, which release
the GIL while they work. They are not the decode threads, so that a consumer which reads a whole
topic does not delay producers.
"""

import logging

from barnabas.cext.fetch.down_conversion import DownConversion, DownConversionQueue
from barnabas.server.job_threads import JobThreads
from barnabas.wire import compression

UNKNOWN_SERVER_ERROR = -1
CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10

_log = logging.getLogger(__name__)


def convert_range(job: DownConversion) -> None:
    """Converts one range and answers its job. The result ends before a damaged batch."""
    while (packed := job.convert()) is not None:
        try:
            content = compression.decompress(
                job.codec, packed, size_max=job.size_max, magic=job.stored_magic
            )
        except compression.DecompressedTooLarge:
            job.stop(MESSAGE_TOO_LARGE)
        except (compression.CorruptCompressedData, compression.UnknownCodec):
            job.stop(CORRUPT_MESSAGE)
        else:
            messages = job.content(content)
            if messages is not None:
                job.wrap(compression.compress(job.codec, messages, magic=job.magic))
    job.done()


def down_conversion_threads(
    queue: DownConversionQueue, thread_count: int = 2
) -> JobThreads[DownConversion]:
    """Makes `thread_count` threads for the ranges of a Fetch handler; they end with stop()."""

    def carry_out(job: DownConversion) -> None:
        try:
            convert_range(job)
        except Exception:
            _log.exception("cannot convert records to message format %d", job.magic)
            job.failed(UNKNOWN_SERVER_ERROR)

    return JobThreads("down-convert", queue, carry_out, thread_count)
