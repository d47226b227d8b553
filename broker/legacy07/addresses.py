"""The byte addresses of a partition's records, for clients of Kafka 0.7.

The address of a record is the number of bytes of the messages of 0.7 (cext/record/messages07.pyx)
of all records before it. The index is made when the first client asks, and covers the records
below the last stable offset: no later event changes their bytes. Control batches and records of
aborted transactions have no bytes. `extend` reads the log from the end of the index on, and adds
an entry to the file (storage/address_index.py) for every INTERVAL_BYTES; other addresses are found
by reading from the entry before them.

Events and addresses:

    retention, DeleteRecords: `keep` notes the address of the new start before records are removed
    truncation: entries behind it are dropped; the leader epoch of the record before an entry shows
        whether the entry is from before the truncation
    a start that moved while this node was a follower: the sizes of the removed records are not
        known; the new first record has an address SKIPPED_BYTES behind the last known one, so that
        no address of a removed record is used again
    import from 0.7: addresses below the end of the original segments are those of 0.7
        (original_segments.py)
    compaction: reading a range from which records were removed raises MissingRecords

Memory: a read takes at most READ_BYTES or one batch, its decompressed content, and the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from barnabas.cext.log.committed_reads import read_committed
from barnabas.cext.log.log_handle import LogHandle
from barnabas.cext.record.messages07 import (
    MissingRecords,
    messages_of,
    messages_size,
    whole_messages,
)
from barnabas.coordinator.share.share_partitions import unreadable_ranges
from barnabas.legacy07.original_segments import OriginalSegments
from barnabas.storage.address_index import AddressIndex, DamagedIndex
from barnabas.storage.partition_dirs import ADDRESSES
from barnabas.wire import compression
from barnabas.wire.batches import Batch, decode_batches

INTERVAL_BYTES = 65536
# More than the end of an index can be behind its last entry on disk: an interval and one batch.
SKIPPED_BYTES = 1 << 32
READ_BYTES = 65536


class AddressOutOfRange(ValueError):
    """No message begins at the address, or its record was removed."""


class PartitionAddresses:
    """The addresses of one partition of this node. Its caller holds `lock`."""

    def __init__(self, directory: Path, log: LogHandle, *, magic: int, content_max: int) -> None:
        """`magic`: of the messages, if the index has to be made; `content_max`: the largest
        decompressed size of a batch. Raises DamagedIndex, OSError."""
        self.lock = threading.Lock()
        self._log = log
        self._content_max = content_max
        path = directory / ADDRESSES
        found = AddressIndex.open(path)
        if found is None:
            start = log.start_offset
            found = AddressIndex.create(path, magic, start, self._epoch_before(start))
        self._index = found
        self._originals = OriginalSegments(directory, content_max)
        self._end_at(len(found.offsets) - 1)

    def use(self, directory: Path, log: LogHandle) -> None:
        """Goes on with the log in another directory, or opened again. Raises OSError."""
        self._log = log
        if self.directory != directory:
            self._index.path = directory / ADDRESSES
            self._index.write()
            self._originals = OriginalSegments(directory, self._content_max)

    @property
    def directory(self) -> Path:
        """The partition's directory."""
        return self._index.path.parent

    @property
    def end(self) -> int:
        """The address behind the last record that the index covers."""
        return self._address

    @property
    def end_offset(self) -> int:
        return self._offset

    def _end_at(self, at: int) -> None:
        """Sets the end of the index to one of its entries."""
        index = self._index
        self._offset, self._address = index.offsets[at], index.addresses[at]
        self._epoch = index.epochs[at]

    def _epoch_before(self, offset: int) -> int:
        """Returns the leader epoch of the record before `offset`; -1: not known."""
        known = [epoch for epoch, start in self._log.leader_epochs() if start < offset]
        return known[-1] if known else -1

    def _is_current(self, offset: int, epoch: int) -> bool:
        """Returns whether the records before an offset are those that were there when it was noted
        with that epoch."""
        if offset > self._log.end_offset:
            return False
        return offset <= self._log.start_offset or self._epoch_before(offset) == epoch

    def _follow_log(self) -> None:
        """Drops what a truncation removed, and goes on behind records that were removed before the
        index covered them."""
        index, log = self._index, self._log
        if not self._is_current(self._offset, self._epoch):
            furthest = self._address
            count = len(index.offsets)
            while count and not self._is_current(index.offsets[count - 1], index.epochs[count - 1]):
                count -= 1
            if count:
                index.cut_above(count)
                self._end_at(count - 1)
            else:
                start = log.start_offset
                index.begin_again(start, furthest + SKIPPED_BYTES, self._epoch_before(start))
                self._end_at(0)
            if self._address < self._originals.end:
                raise DamagedIndex(
                    f"{index.path}: records that were imported from Kafka 0.7 have been lost"
                )
        start = log.start_offset
        if self._offset < start:
            self._offset, self._epoch = start, self._epoch_before(start)
            self._address = index.addresses[-1] + SKIPPED_BYTES
            index.add(start, self._address, self._epoch)

    def extend(self, limit_offset: int, is_time_over: Callable[[], bool] = lambda: False) -> bool:
        """Extends the index to `limit_offset`, or until `is_time_over`. Returns whether it reaches
        so far. Raises MissingRecords, CorruptRecords, LogError, OSError."""
        self._follow_log()
        index = self._index
        try:
            for batch, content, is_visible in self._batches(self._offset, limit_offset):
                if self._address - index.addresses[-1] >= INTERVAL_BYTES:
                    index.add(self._offset, self._address, self._epoch_before(self._offset))
                if is_visible:
                    self._address += self._size(batch, content, self._offset)
                self._offset = batch.last_offset + 1
                if is_time_over():
                    break
        finally:
            self._epoch = self._epoch_before(self._offset)
        return self._offset >= limit_offset

    def _batches(
        self, offset: int, limit_offset: int
    ) -> Iterator[tuple[Batch, Callable[[], compression.Buffer | None], bool]]:
        """Yields the batches from `offset` to `limit_offset`: each with the function that returns
        its decompressed content, and whether consumers see its records. Raises as `extend`."""
        while offset < limit_offset:
            data, aborted = read_committed(self._log, offset, READ_BYTES, limit_offset=limit_offset)
            found = list(decode_batches(data, size_max=self._content_max, partial_tail=True))
            hidden = {last for _first, last in unreadable_ranges(found, aborted)}
            for batch in found:
                base = batch.stored_base_offset  # None: a wrapper, which messages_size() checks
                if base is not None and base > offset:
                    raise MissingRecords(
                        f"records from offset {offset} on were removed by compaction"
                    )
                yield batch, _content_of(batch), batch.last_offset not in hidden
                offset = batch.last_offset + 1
            if not found:
                return

    def earliest(self) -> int:
        """Returns the address of the first record that the log still has."""
        start = self._log.start_offset
        at = self._index.at_offset(start)
        if at >= 0 and self._index.offsets[at] == start:
            return self._index.addresses[at]
        at += 1
        return self._index.addresses[at] if at < len(self._index.addresses) else self._address

    def address_of(self, offset: int) -> int:
        """Returns the address of the record at an offset, or of the next visible one. The index
        must cover it. Raises AddressOutOfRange, and what `extend` raises."""
        if offset >= self._offset:
            return self._address
        at = self._index.at_offset(offset)
        if at < 0 or self._index.offsets[at] < self._log.start_offset:
            return self.earliest()
        expected, address = self._index.offsets[at], self._index.addresses[at]
        if expected < offset and self._originals.has(address):
            return self._originals.address_of(address, expected, offset)
        for batch, content, is_visible in self._batches(expected, self._offset):
            if expected >= offset:
                break
            if is_visible:
                address += self._size(batch, content, expected)
                if batch.last_offset >= offset:
                    address -= self._size(batch, content, offset)
            expected = batch.last_offset + 1
        return address

    def _size(
        self, batch: Batch, content: Callable[[], compression.Buffer | None], first_offset: int
    ) -> int:
        return messages_size(
            _bytes(batch), content(), first_offset=first_offset, magic=self._index.magic
        )

    def keep(self, start_offset: int) -> None:
        """Notes the address of `start_offset` on disk: the records before it are about to be
        removed. Raises what `extend` raises."""
        self._follow_log()
        if self._log.start_offset < start_offset <= self._offset:
            address = self.address_of(start_offset)
            self._index.add(start_offset, address, self._epoch_before(start_offset))
        self._index.sync()
        self._index.drop_below(self._log.start_offset)
        self._originals.drop_below(self.earliest())

    def read(self, address: int, size_max: int, first_max: int) -> bytes:
        """Returns whole messages from an address on, at most `size_max` bytes of those that the
        index covers. A larger first message is returned whole up to `first_max` bytes; otherwise
        that many bytes of it: clients of 0.7 then say that their fetch size is too small. Raises
        AddressOutOfRange, DamagedIndex, and what `extend` raises."""
        if not self.earliest() <= address <= self._address:
            raise AddressOutOfRange(
                f"address {address}: there are {self.earliest()} to {self._address}"
            )
        if address == self._address:
            return b""
        at = self._index.at_address(address)
        if address < self._originals.end:
            entry = self._index.addresses[at]
            messages = self._originals.read(entry, address, size_max, first_max)
            if messages is None:
                raise AddressOutOfRange(f"no message begins at address {address}")
            return messages
        offset, position = self._index.offsets[at], self._index.addresses[at]
        found: list[bytes] = []
        left = size_max
        for batch, content, is_visible in self._batches(offset, self._offset):
            if is_visible:
                messages = messages_of(
                    _bytes(batch), content(), first_offset=offset, magic=self._index.magic
                )
                start = max(address - position, 0)
                if start < len(messages):
                    end = whole_messages(messages, start, left)
                    if end < 0:
                        raise AddressOutOfRange(f"address {address} is inside a message")
                    if end == start and not found:
                        size = 4 + int.from_bytes(messages[start : start + 4], "big")
                        return messages[start : start + min(size, first_max)]
                    found.append(messages[start:end])
                    left -= end - start
                    if end < len(messages):
                        break
                position += len(messages)
            offset = batch.last_offset + 1
            self._check(offset, position)
        return b"".join(found)

    def _check(self, offset: int, position: int) -> None:
        """Raises DamagedIndex when an entry gives the offset another address."""
        at = self._index.at_offset(offset)
        if self._index.offsets[at] == offset and self._index.addresses[at] != position:
            raise DamagedIndex(
                f"{self._index.path}: offset {offset} has address {self._index.addresses[at]},"
                f" but the log has {position}"
            )


def _bytes(batch: Batch) -> memoryview:
    return batch.data[batch.start : batch.start + batch.size_bytes]


def _content_of(batch: Batch) -> Callable[[], compression.Buffer | None]:
    return batch.body if batch.codec != compression.NONE else lambda: None
