"""Reads partitions by offset, without a group: from given offsets, to their end or for ever.

Each round sends one Fetch to every leader for all its partitions, without a fetch session. The
reader leaves out control records (transaction markers) and, with COMMITTED, records of aborted
transactions.

Limits: fetch_bytes an answer, or one batch when that is larger; batch_bytes_max for the
decompressed size of one batch.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from barnabas.cext.record.records import CorruptRecords, Record
from barnabas.client.cluster import Cluster
from barnabas.client.failures import ClientError, raise_for
from barnabas.client.offsets import LATEST, UNCOMMITTED, list_offsets
from barnabas.wire import Struct, request
from barnabas.wire.batches import Batch, decode_batches

FETCH = 1
FETCH_BYTES = 8 * 1024 * 1024
PARTITION_BYTES = 4 * 1024 * 1024
BATCH_BYTES_MAX = 256 * 1024 * 1024
WAIT_MS = 500
RECORD_V2, ZSTD_FROM = 4, 10  # versions of Fetch; 10 is the first that may have zstd
TRANSACTION_ABORTED = b"\x00\x00\x00\x00"  # key of a marker: version 0, type 0


class UnreadableRecords(ClientError):
    """A batch that the broker sent is damaged."""


@dataclass(slots=True)
class _Place:
    offset: int
    end: int | None  # None: no end
    aborting: set[int] = field(default_factory=set)  # producer ids inside an aborted transaction


class Reader:
    """An iterator of (partition, record). `offsets`: partition -> first offset to read.

    `to_end`: stops at the ends at the start of the reading; without it the iterator waits for more
    records. `wait_ms`: how long the broker may wait for data in one request. Raises
    UnreadableRecords, KafkaError, ClientError."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        offsets: Mapping[int, int],
        *,
        to_end: bool = False,
        isolation: int = UNCOMMITTED,
        wait_ms: int = WAIT_MS,
        fetch_bytes: int = FETCH_BYTES,
        partition_bytes: int = PARTITION_BYTES,
        batch_bytes_max: int = BATCH_BYTES_MAX,
    ) -> None:
        self.cluster, self.topic, self.isolation = cluster, topic, isolation
        self.wait_ms, self.fetch_bytes = wait_ms, fetch_bytes
        self.partition_bytes, self.batch_bytes_max = partition_bytes, batch_bytes_max
        ends: Mapping[int, int | None] = dict.fromkeys(offsets)
        if to_end:
            times = dict.fromkeys(offsets, LATEST)
            found = list_offsets(cluster, topic, times, isolation=isolation)
            ends = {index: row.offset for index, row in found.items()}
        self._places = {index: _Place(offset, ends[index]) for index, offset in offsets.items()}

    @property
    def offsets(self) -> dict[int, int]:
        """Returns the next offset to read in each partition."""
        return {index: place.offset for index, place in self._places.items()}

    @property
    def is_at_end(self) -> bool:
        """Returns whether all records up to the ends have been read."""
        return not self._open()

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        for found in self.portions():
            yield from found

    def portions(self) -> Iterator[Iterator[tuple[int, Record]]]:
        """Yields the records of __iter__ in portions: one portion for each round of requests."""
        while self._open():
            for partition, row in self.cluster.retrying(
                lambda: self._fetch(self._open()), topic=self.topic
            ):
                yield self._records(partition, row)

    def batches(self) -> Iterator[tuple[int, Batch]]:
        """Yields (partition, batch) for every batch as it is stored, also control batches and
        aborted transactions, which iteration over records leaves out. A batch may begin before the
        first offset. Raises UnreadableRecords, KafkaError, ClientError."""
        while self._open():
            for partition, row in self.cluster.retrying(
                lambda: self._fetch(self._open()), topic=self.topic
            ):
                place = self._places[partition]
                try:
                    for batch in decode_batches(
                        row.records or b"", size_max=self.batch_bytes_max, partial_tail=True
                    ):
                        if place.end is not None and batch.base_offset >= place.end:
                            break
                        place.offset = max(place.offset, batch.last_offset + 1)
                        yield partition, batch
                except CorruptRecords as error:
                    raise self._unreadable(partition, place, error) from error

    def _unreadable(
        self, partition: int, place: _Place, error: CorruptRecords
    ) -> UnreadableRecords:
        return UnreadableRecords(f"{self._what(partition)}, at offset {place.offset}: {error}")

    def _open(self) -> list[int]:
        return [
            index
            for index, place in self._places.items()
            if place.end is None or place.offset < place.end
        ]

    def _fetch(self, partitions: list[int]) -> list[tuple[int, Struct]]:
        by_leader: dict[int, list[int]] = defaultdict(list)
        for partition in partitions:
            self.cluster.leader(self.topic, partition)
            known = self.cluster.topic(self.topic).partitions[partition]
            by_leader[known.leader].append(partition)
        found = []
        for node_id, led in by_leader.items():
            # With several leaders, the reader waits for each no longer than its share of the time.
            body = self._request(led, self.wait_ms // len(by_leader))
            answer = self.cluster.connection_to(node_id).call(FETCH, body, low=RECORD_V2)
            raise_for(answer.errorCode, f"fetch from broker {node_id}")
            for row in (row for rows in answer.responses for row in rows.partitions):
                raise_for(row.errorCode, self._what(row.partitionIndex))
                found.append((row.partitionIndex, row))
        return found

    def _what(self, partition: int) -> str:
        return f"partition {partition} of topic {self.topic}"

    def _request(self, partitions: list[int], wait_ms: int) -> Struct:
        message = request(FETCH)
        row = message.struct("topics.partitions")
        rows = [
            row(
                partition=index,
                fetchOffset=self._places[index].offset,
                partitionMaxBytes=self.partition_bytes,
            )
            for index in partitions
        ]
        return message.cls(
            replicaId=-1,
            maxWaitMs=wait_ms,
            minBytes=1,
            maxBytes=self.fetch_bytes,
            isolationLevel=self.isolation,
            topics=[message.struct("topics")(topic=self.topic, partitions=rows)],
        )

    def _records(self, partition: int, row: Struct) -> Iterator[tuple[int, Record]]:
        place = self._places[partition]
        aborted = sorted(
            (txn.firstOffset, txn.producerId) for txn in (row.abortedTransactions or ())
        )
        try:
            batches = decode_batches(
                row.records or b"", size_max=self.batch_bytes_max, partial_tail=True
            )
            for batch in batches:
                wanted = self._is_wanted(batch, aborted, place.aborting)
                for record in batch.records if wanted else ():
                    if record.offset < place.offset:
                        continue  # brokers send whole batches, also for an offset in the middle
                    if place.end is not None and record.offset >= place.end:
                        break
                    place.offset = record.offset + 1
                    yield partition, record
                place.offset = max(place.offset, batch.last_offset + 1)
        except CorruptRecords as error:
            raise self._unreadable(partition, place, error) from error

    def _is_wanted(self, batch: Batch, aborted: list[tuple[int, int]], aborting: set[int]) -> bool:
        if self.isolation != UNCOMMITTED:
            while aborted and aborted[0][0] <= batch.last_offset:
                aborting.add(aborted.pop(0)[1])
            if batch.control and batch.producer_id in aborting:
                if batch.records and batch.records[0].key == TRANSACTION_ABORTED:
                    aborting.discard(batch.producer_id)
        if batch.control:
            return False
        return not (batch.transactional and batch.producer_id in aborting)
