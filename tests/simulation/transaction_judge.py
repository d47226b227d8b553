"""Checks the transactions of a simulated cluster.

- A transaction has one end: all its markers, in all partitions, and the answer to its producer say
  the same.
- A producer that was fenced writes nothing: behind a marker or a batch of a later epoch, a log has
  no batch of an earlier one. A batch of the next transaction follows the marker of the last one.
- A reader of committed records gets a record only when its transaction is committed, each once and
  in order; at the end, it has got all of them: no transaction is partly visible.

After a power cut with log.durability=os (simulation/losses.py), the logs of a transaction whose end
was not in all of them, and on the disk, may differ, as with Apache Kafka: such a transaction is
unsure. Within one log it is still visible only behind a marker that commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from simulation.log_rows import Row, Violation, number_of

if TYPE_CHECKING:
    from simulation.judge import Log


class TransactionJudge:
    """Follows the transactions through the committed records of all logs."""

    def __init__(self) -> None:
        self._ends: dict[int, bool] = {}  # whether a transaction commits, by its number
        self.unsure: set[int] = set()
        # The transactions of a producer in a log; several only when all but one are unsure.
        self._open: dict[tuple[Log, int], list[int]] = {}
        self._epochs: dict[tuple[Log, int], int] = {}  # the last one of a producer in a log
        self._seen: set[tuple[Log, bytes]] = set()
        self._ended: dict[tuple[Log, int], bool] = {}  # have a marker in this log: its kind
        self._visible: dict[Log, list[tuple[int, bytes]]] = {}  # that readers must get, at the end
        self._pending: dict[tuple[Log, int], list[tuple[int, bytes]]] = {}

    @property
    def ends(self) -> Mapping[int, bool]:
        return self._ends

    def is_hanging_in(self, log: Log) -> bool:
        """Returns whether a log may lack the marker of a transaction for good."""
        return any(at[0] == log and self.unsure >= set(row) for at, row in self._open.items())

    def ends_in(self, log: Log) -> bool:
        """Returns whether each transaction has its marker in a log that is to get one."""
        return all(at[0] != log or self.unsure >= set(row) for at, row in self._open.items())

    def open_in(self, number: int) -> set[Log]:
        """Returns the logs in which a transaction has records and no marker."""
        return {log for (log, _), numbers in self._open.items() if number in numbers}

    def after_loss(self, unsure: set[int]) -> TransactionJudge:
        """Returns a judge that knows the ends of the transactions that are sure, and no record."""
        judge = TransactionJudge()
        judge.unsure = self.unsure | unsure
        judge._ends = {row: end for row, end in self._ends.items() if row not in judge.unsure}
        return judge

    def decided(self, number: int, commits: bool) -> None:
        """Notes the answer to the producer of a transaction, or one of its markers."""
        if number in self.unsure:
            return
        if self._ends.setdefault(number, commits) != commits:
            raise Violation(f"transaction {number} is committed and aborted")

    def record(self, name: str, log: Log, row: Row) -> None:
        """Checks a record of a transaction that no broker had below its high watermark before."""
        self._check_epoch(name, log, row)
        number, at = number_of(row.value), (log, row.producer_id)
        if (log, row.value) in self._seen:
            raise Violation(f"{name}: a duplicate: {row.value!r} at offset {row.offset}")
        self._seen.add((log, row.value))
        numbers = self._open.setdefault(at, [])
        others = [other for other in numbers if other not in (number, *self.unsure)]
        if others or ((log, number) in self._ended and number not in self.unsure):
            raise Violation(f"{name}: {row.value!r} at offset {row.offset} is in the transaction"
                            f" {numbers}, or behind its own marker")  # fmt: skip
        if number not in numbers:
            numbers.append(number)
        self._pending.setdefault(at, []).append((row.offset, row.value))

    def marker(self, name: str, log: Log, row: Row) -> None:
        """Checks a marker in the same way."""
        self._check_epoch(name, log, row)
        at = log, row.producer_id
        numbers = self._open.pop(at, None)
        if numbers is None:
            return  # a repeated marker
        assert row.commits is not None
        for number in numbers:
            self.decided(number, row.commits)
            self._ended[log, number] = row.commits
        rows = self._pending.pop(at)
        if row.commits:
            self._visible.setdefault(log, []).extend(rows)

    def _check_epoch(self, name: str, log: Log, row: Row) -> None:
        at = log, row.producer_id
        if row.producer_epoch < self._epochs.get(at, -1):
            raise Violation(f"{name}: producer {row.producer_id} wrote {row.value!r} with epoch"
                            f" {row.producer_epoch} behind epoch {self._epochs[at]}")  # fmt: skip
        self._epochs[at] = row.producer_epoch

    def check_read(self, name: str, log: Log, row: Row) -> None:
        """Checks a record that a reader of committed records has got."""
        number = number_of(row.value)
        if not self._ended.get((log, number)):
            raise Violation(f"{name}: a reader of committed records got {row.value!r} of a"
                            " transaction that is not committed")  # fmt: skip

    def check_end(
        self, read: Mapping[Log, list[tuple[int, bytes]]], stable: Mapping[Log, int]
    ) -> None:
        """Checks at the end what readers of committed records have got, in the order of logs.
        `stable`: the last stable offsets of logs that have open transactions for good."""
        for (log, _), numbers in self._open.items():
            if log not in stable or not self.unsure >= set(numbers):
                raise Violation(f"transactions without an end: {self._open}")
        for log, visible in self._visible.items():
            rows = sorted(row for row in visible if log not in stable or row[0] < stable[log])
            if rows != read.get(log, []):
                raise Violation(f"{log}: readers of committed records got {read.get(log)}, and"
                                f" {rows} are committed")  # fmt: skip
