"""Runs the interceptors of a topic on its batches.

Produce: a decode thread takes a job whose topic names `produce.interceptors`
(cext/produce/decode.pyx). It checks the batch like any other and calls the plugins; the network
thread continues with their result. Fetch: separate threads take the byte ranges of topics with
`fetch.interceptors` (cext/fetch/interception.pyx). Control batches pass unchanged; a batch that is
cut off at the end of the range is left out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.cext.fetch.interception import RewriteJob, RewriteQueue
from barnabas.cext.memory.threads import NamedThread
from barnabas.cext.produce.decode import DecodeJob
from barnabas.cext.record.records import CorruptRecords
from barnabas.config import TopicConfig
from barnabas.errors import UnknownServerError
from barnabas.hooks.registry import FetchRefused, Later
from barnabas.hooks.views import RecordBatch, Reject
from barnabas.server.decode_pool import level_for, recompress
from barnabas.wire.batches import decode_batches

if TYPE_CHECKING:
    from barnabas.hooks.registry import Registry

log = logging.getLogger("barnabas.hooks")

PRODUCE = "produce.interceptors"
FETCH = "fetch.interceptors"
FETCH_THREADS = 2


class Interceptors:
    """The interceptors of one broker's topics."""

    def __init__(self, registry: Registry, topic_config: Callable[[str], TopicConfig]) -> None:
        self._registry = registry
        self._topic_config = topic_config
        self._threads: list[threading.Thread] = []

    def produce(self, job: DecodeJob, decoded: bytes) -> None:
        """Calls the topic's produce interceptors on one batch and answers its job. `decoded`: the
        batch's decompressed records section."""
        assert job.intercepted is not None
        topic, partition = job.intercepted
        target = job.target_codec
        if not job.look(decoded):
            job.done(decoded)
            return
        batch = RecordBatch(topic, partition, job.batch, job.size_max, decoded)
        names = self._topic_config(topic).names(PRODUCE)
        found = self._registry.intercept_produce(names, batch)
        if isinstance(found, Reject):
            job.reject(found.message)
        elif isinstance(found, Later):
            job.reject(found.message, is_final=False)
        elif found is None:
            job.done(decoded, None if target is None else recompress(job, decoded))
        else:
            if target is not None and target != batch.stored.codec:
                level = level_for(job, target)
                found = RecordBatch(topic, partition, found, job.size_max).recoded(target, level)
            job.replace(found)

    def fetch(self, job: RewriteJob) -> None:
        """Calls the topic's fetch interceptors on the batches of one range and answers its job.
        Damaged batches and I/O errors are logged and answered with UNKNOWN_SERVER_ERROR."""
        config = self._topic_config(job.topic)
        names = config.names(FETCH)
        size_max = config.integer("max.decompressed.message.bytes")
        try:
            job.done(self._seen(job, names, size_max))
        except FetchRefused:
            job.failed(UnknownServerError.code)
        except (CorruptRecords, OSError) as error:
            log.error(
                "%s-%d: a fetch interceptor refused a fetch: %s", job.topic, job.partition, error
            )
            job.failed(UnknownServerError.code)

    def _seen(self, job: RewriteJob, names: tuple[str, ...], size_max: int) -> bytes:
        data = job.read()
        pieces = []
        for stored in decode_batches(data, size_max=size_max, partial_tail=True):
            piece = data[stored.start : stored.start + stored.size_bytes]
            if stored.magic != 2:
                raise FetchRefused(
                    "the log has messages of format 0 or 1, which interceptors do not read"
                )
            if not stored.control and stored.count:
                batch = RecordBatch(job.topic, job.partition, piece, size_max)
                made = self._registry.intercept_fetch(names, batch)
                piece = piece if made is None else made
            pieces.append(piece)
        return b"".join(pieces)

    def begin_fetches(self, queue: RewriteQueue) -> None:
        """Starts the threads that serve `queue`; later calls do nothing."""
        if self._threads:
            return
        for number in range(FETCH_THREADS):
            thread = NamedThread(
                target=self._run, args=(queue,), name=f"fetch-interceptors-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Waits until the threads have ended. Call this after the queue was closed."""
        for thread in self._threads:
            thread.join()

    def _run(self, queue: RewriteQueue) -> None:
        while (job := queue.next()) is not None:
            try:
                self.fetch(job)
            except Exception:
                log.exception(
                    "a fetch of %s-%d through interceptors failed", job.topic, job.partition
                )
            del job
