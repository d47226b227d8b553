"""Threads that open gzip and zstd batches, and compress batches anew, for the Produce lane.

A network thread that meets such a batch parks the request and queues a job; these threads inflate
with the packages of `barnabas.wire.compression`, which give the GIL away while they work, and hand
the bytes back. The records are checked in cext (`decode.pyx`), on the same path as all others.
"""

import logging
import threading

from barnabas.cext.decode import DecodeJob
from barnabas.cext.partitions import PartitionTable
from barnabas.wire import compression

UNKNOWN_SERVER_ERROR = -1
CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
UNSUPPORTED_COMPRESSION_TYPE = 76

_log = logging.getLogger(__name__)


def answer_job(job: DecodeJob) -> None:
    """Opens one batch and answers its job, whatever is in it."""
    try:
        decoded = compression.decompress(job.codec, job.data, size_max=job.size_max)
    except compression.DecompressedTooLarge:
        job.failed(MESSAGE_TOO_LARGE)
    except compression.CorruptCompressedData:
        job.failed(CORRUPT_MESSAGE)
    except compression.UnknownCodec:
        job.failed(UNSUPPORTED_COMPRESSION_TYPE)
    else:
        if job.target_codec is None:
            job.done(decoded)
        else:
            job.done(decoded, compression.compress(job.target_codec, decoded))


class DecodePool:
    """`thread_count` threads on one table's jobs; they end with stop() or the table's close()."""

    def __init__(self, table: PartitionTable, thread_count: int = 2) -> None:
        assert thread_count > 0
        self.table = table
        self.threads = [
            threading.Thread(target=self._run, name=f"decode-{i}", daemon=True)
            for i in range(thread_count)
        ]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Requests whose batches are not opened yet are answered at their own deadline."""
        self.table.decode_queue.close()
        for thread in self.threads:
            thread.join()

    def _run(self) -> None:
        while (job := self.table.next_decode()) is not None:
            try:
                answer_job(job)
            except Exception:
                _log.exception("a batch could not be opened")
                if not job.answered:
                    job.failed(UNKNOWN_SERVER_ERROR)
            del job
