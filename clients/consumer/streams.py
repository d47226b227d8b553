"""KafkaStream: an iterator over the messages of the partitions that a consumer thread owns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, repeat

from barnabas.cext.record.records import CorruptRecords
from barnabas.clients.consumer.chunks import Chunk, ChunkQueue, PartitionInfo, QueueEmpty
from barnabas.clients.consumer.decoders import Column
from barnabas.clients.consumer.messages import (
    DecodedMessage,
    MessageAndMetadata,
    records_from,
)
from barnabas.clients.error_mapping import InvalidMessageException
from barnabas.wire.batches import Batch

_NOTHING: Iterator[MessageAndMetadata] = iter(())


class ConsumerTimeout(Exception):
    """No message arrived within consumer.timeout.ms. The caller may continue to iterate."""


class KafkaStream:
    """`for message in stream` waits for messages until the connector is shut down.

    A message counts as consumed when the stream returns it. One thread at a time may iterate.
    Iterating raises ConsumerTimeout, InvalidMessageException at a damaged batch, and the error of a
    partition that can no longer be read; the stream continues with the other partitions."""

    def __init__(
        self, queue: ChunkQueue, timeout_s: float | None, decoders: tuple[Column | None, ...]
    ) -> None:
        self.queue = queue
        self._timeout_s = timeout_s
        self._keys, self._values = decoders
        self._messages = _NOTHING
        self._chunk: Chunk | None = None
        self._info: PartitionInfo | None = None

    def __iter__(self) -> KafkaStream:
        return self

    def __next__(self) -> MessageAndMetadata:
        for message in self._messages:
            self._info.in_hand = message  # type: ignore[union-attr]
            return message
        return self._next_chunk()

    def clear(self) -> None:
        """Drops the fetched messages that it has not returned, because other members get the
        partitions."""
        self._messages, self._chunk = _NOTHING, None
        self.queue.clear()

    def _next_chunk(self) -> MessageAndMetadata:
        while True:
            self._finish_chunk()
            try:
                chunk = self.queue.get(self._timeout_s)
            except QueueEmpty:
                raise ConsumerTimeout(f"no message within {self._timeout_s:g} s") from None
            if chunk is None:
                raise StopIteration
            if chunk.error is not None:
                raise chunk.error
            self._chunk, self._info = chunk, chunk.info
            # Decodes a whole batch when the caller reads its first message.
            self._messages = chain.from_iterable(map(partial(self._of, chunk), chunk.batches))
            if chunk.info.is_over:  # the chunk was dropped after it had left the queue
                self._messages, self._chunk = _NOTHING, None
                continue
            for message in self._messages:
                chunk.info.in_hand = message
                return message

    def _finish_chunk(self) -> None:
        """Counts a chunk as consumed, unless it was dropped while the caller read it."""
        chunk, self._chunk = self._chunk, None
        if chunk is not None:
            chunk.info.consumed = chunk.next_offset
            chunk.info.in_hand = None

    def _of(self, chunk: Chunk, batch: Batch) -> Iterable[MessageAndMetadata]:
        """Returns the messages of a batch. Raises InvalidMessageException."""
        if batch.control:
            return ()
        name = chunk.info.name
        try:
            records = records_from(batch, chunk.offset)
        except CorruptRecords as error:
            chunk.info.is_over = True
            self._messages, self._chunk = _NOTHING, None
            raise InvalidMessageException(f"{name} from {chunk.offset} on: {error}") from error
        if self._keys is None and self._values is None:
            return map(MessageAndMetadata, repeat(name), records)
        keys = [record.key for record in records]
        values = [record.value for record in records]
        return map(
            DecodedMessage,
            repeat(name),
            records,
            keys if self._keys is None else self._keys(name.topic, keys),
            values if self._values is None else self._values(name.topic, values),
        )
