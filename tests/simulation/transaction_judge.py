"""Checks the transactions of a simulated cluster.

- A transaction has one end: all its markers, in all partitions, and the answer to its producer say
  the same.
- A producer that was fenced writes nothing: behind a marker or a batch of a later epoch, a log has
  no batch of an earlier one. A batch of the next transaction follows the marker of the last one.
- A reader of committed records gets a record only when its transaction is committed, each once and
  in order; at the end, it has got all of them: no transaction is partly visible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.log_rows import Row, Violation, number_of

if TYPE_CHECKING:
    from simulation.judge import Log


class TransactionJudge:
    """Follows the transactions through the committed records of all logs."""

    def __init__(self) -> None:
        self._ends: dict[int, bool] = {}  # whether a transaction commits, by its number
        self._open: dict[tuple[Log, int], int] = {}  # the transaction of a producer in a log
        self._epochs: dict[tuple[Log, int], int] = {}  # the last one of a producer in a log
        self._seen: set[tuple[Log, bytes]] = set()
        self._ended: set[tuple[Log, int]] = set()  # have a marker in this log
        self._visible: dict[Log, list[tuple[int, bytes]]] = {}  # that readers must get, at the end
        self._pending: dict[tuple[Log, int], list[tuple[int, bytes]]] = {}

    def decided(self, number: int, commits: bool) -> None:
        """Notes the answer to the producer of a transaction, or one of its markers."""
        if self._ends.setdefault(number, commits) != commits:
            raise Violation(f"transaction {number} is committed and aborted")

    def record(self, name: str, log: Log, row: Row) -> None:
        """Checks a record of a transaction that no broker had below its high watermark before."""
        self._check_epoch(name, log, row)
        number, at = number_of(row.value), (log, row.producer_id)
        if (log, row.value) in self._seen:
            raise Violation(f"{name}: a duplicate: {row.value!r} at offset {row.offset}")
        self._seen.add((log, row.value))
        if self._open.setdefault(at, number) != number or (log, number) in self._ended:
            raise Violation(f"{name}: {row.value!r} at offset {row.offset} is in the transaction"
                            f" {self._open[at]}, or behind its own marker")  # fmt: skip
        self._pending.setdefault(at, []).append((row.offset, row.value))

    def marker(self, name: str, log: Log, row: Row) -> None:
        """Checks a marker in the same way."""
        self._check_epoch(name, log, row)
        at = log, row.producer_id
        number = self._open.pop(at, None)
        if number is None:
            return  # a repeated marker
        assert row.commits is not None
        self.decided(number, row.commits)
        self._ended.add((log, number))
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
        if (log, number) not in self._ended or not self._ends[number]:
            raise Violation(f"{name}: a reader of committed records got {row.value!r} of a"
                            " transaction that is not committed")  # fmt: skip

    def check_end(self, read: dict[Log, list[tuple[int, bytes]]]) -> None:
        """Checks at the end what readers of committed records have got, in the order of logs."""
        if self._open:
            raise Violation(f"transactions without an end: {self._open}")
        for log, rows in self._visible.items():
            if sorted(rows) != read.get(log, []):
                raise Violation(f"{log}: readers of committed records got {read.get(log)}, and"
                                f" {sorted(rows)} are committed")  # fmt: skip
