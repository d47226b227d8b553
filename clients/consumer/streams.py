"""KafkaStream: an iterator over the messages of the partitions that a consumer thread owns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from barnabas.cext.records import CorruptRecords
from barnabas.clients.consumer.chunks import Chunk, ChunkQueue, PartitionInfo, QueueEmpty
from barnabas.clients.consumer.messages import Decoder, MessageAndMetadata, Source
from barnabas.clients.error_mapping import InvalidMessageException

_NOTHING: Iterator[MessageAndMetadata] = iter(())


class ConsumerTimeout(Exception):
    """No message came within consumer.timeout.ms; the stream can be asked again."""


class KafkaStream:
    """`for message in stream` waits for messages until the connector is shut down.

    A message counts as read from when it is given out. One thread at a time iterates. Raises
    ConsumerTimeout, InvalidMessageException at a damaged batch (behind which its partition is
    not read further), and the error of a partition that cannot be read any more."""

    def __init__(
        self, queue: ChunkQueue, timeout_s: float | None, key_decoder: Decoder, value: Decoder
    ) -> None:
        self.queue = queue
        self._timeout_s = timeout_s
        self._decoders = (key_decoder, value)
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
        """Forgets what was fetched and not given out: its partitions go to somebody else."""
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
            name = chunk.info.name
            try:
                records = chunk.records()
            except CorruptRecords as error:
                raise InvalidMessageException(f"{name} from {chunk.offset} on: {error}") from error
            source = Source(name.topic, name.partition, *self._decoders)
            self._chunk, self._info = chunk, chunk.info
            self._messages = map(MessageAndMetadata, repeat(source), records)
            if chunk.info.is_revoked:  # while it was between the queue and here
                self.clear()
                continue
            for message in self._messages:
                chunk.info.in_hand = message
                return message

    def _finish_chunk(self) -> None:
        """A chunk that was cleared away meanwhile is not counted as read to its end."""
        chunk, self._chunk = self._chunk, None
        if chunk is not None:
            chunk.info.consumed = chunk.next_offset
            chunk.info.in_hand = None
