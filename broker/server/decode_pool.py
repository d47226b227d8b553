"""Decode threads: they decompress gzip and zstd batches, and compress batches again, for Produce.

For such a batch a network thread delays the request and queues a job; the decode threads decompress
with the packages of `barnabas.wire.compression`, which release the GIL while they work. Each piece
goes to cext (`decode.pyx`), which checks its records and does not keep them: a decompressed batch
is whole in memory only when it must be compressed again or passes interceptors.

A message set of format 0 or 1 (Produce 0 to 2) is whole in memory too: cext makes a batch of it,
which is then compressed with the codec of the set or of the topic.
"""

import logging
from collections.abc import Callable

from barnabas.cext.produce.decode import DecodeJob, DecodeQueue
from barnabas.server.job_threads import JobThreads
from barnabas.wire import compression

UNKNOWN_SERVER_ERROR = -1
CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
UNSUPPORTED_COMPRESSION_TYPE = 76

_log = logging.getLogger(__name__)


Intercept = Callable[[DecodeJob, bytes], object]


def level_for(job: DecodeJob, codec: int) -> int | None:
    """Returns the level for the records of a job, on the scale of `compress`."""
    return compression.level_of_setting(codec, job.target_level)


def recompress(job: DecodeJob, decoded: bytes) -> bytes:
    """Returns a records section, compressed as its topic wants it."""
    codec = job.target_codec
    assert codec is not None
    return compression.compress(codec, decoded, level=level_for(job, codec))


def answer_job(job: DecodeJob, intercept: Intercept | None = None) -> None:
    """Decompresses one batch and answers its job; a damaged batch gets an error code. `intercept`
    answers the jobs of topics with interceptors."""
    intercepted = job.intercepted is not None
    magic = job.old_magic
    try:
        if magic is None and job.target_codec is None and not intercepted:
            compression.decompress_into(job.check, job.codec, job.data, size_max=job.size_max)
            job.checked()
            return
        content = compression.decompress(
            job.codec, job.data, size_max=job.size_max, magic=2 if magic is None else magic
        )
        decoded = content if magic is None else job.up_convert(content)
    except compression.DecompressedTooLarge:
        job.failed(MESSAGE_TOO_LARGE)
    except compression.CorruptCompressedData:
        job.failed(CORRUPT_MESSAGE)
    except compression.UnknownCodec:
        job.failed(UNSUPPORTED_COMPRESSION_TYPE)
    else:
        if decoded is None:
            return  # refused
        if intercepted and intercept is not None:
            intercept(job, decoded)
        elif intercepted:
            job.reject("the interceptors of the topic do not run here")
        else:
            job.done(decoded, recompress(job, decoded))


def decode_threads(
    queue: DecodeQueue, thread_count: int = 2, intercept: Intercept | None = None
) -> JobThreads[DecodeJob]:
    """Makes `thread_count` threads for the jobs of a Produce handler; they end with stop(). The
    requests whose batches are not decompressed by then get their answer at their own deadline."""

    def carry_out(job: DecodeJob) -> None:
        try:
            answer_job(job, intercept)
        except Exception:
            _log.exception("cannot decode a batch")
            if not job.answered:
                job.failed(UNKNOWN_SERVER_ERROR)

    return JobThreads("decode", queue, carry_out, thread_count)
