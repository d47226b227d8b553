"""A correct broker in forty lines, and the histories of its clients.

Some responses are lost, whether or not the operation was
done. For the tests of checker.py; `damage` names one fault of the broker.
"""

import random
from itertools import count

from history.model import Operation, Outcome, Read, Send

PARTITIONS = ("a/0", "a/1")
COPIES = {"a/0": "b/0", "a/1": "b/1"}
TICKS = 10
Row = tuple[int, bool]  # a value, and whether it was committed


class SoundBroker:
    """Operations run one after the other: these histories have no concurrency."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.logs: dict[str, list[Row]] = {name: [] for name in (*PARTITIONS, *COPIES.values())}
        self.committed: dict[str, int] = {}  # of the group "copiers"
        self.at: dict[tuple[str, str], int] = {}
        self.incarnations = {"plain": 0}
        self.history: list[Operation] = []
        self.damaged = False
        self._values = count(1)
        self._now = 0

    def run(self, steps: int, damage: str = "") -> list[Operation]:
        actions = [self.plain, self.transaction, self.poll, self.poll, self.copy, self.fetch]
        for _ in range(steps):
            self.chance.choice(actions)()
        self.scan("before")
        if damage:
            getattr(self, damage)()
        self.fetch()
        self.scan("after")
        return self.history

    # -- clients --------------------------------------------------------------------------------

    def plain(self) -> None:
        name = f"plain-{self.incarnations['plain']}"
        outcome = self.chance.choice([Outcome.OK, Outcome.OK, Outcome.UNKNOWN, Outcome.FAIL])
        partition = self.chance.choice(PARTITIONS)
        values = [next(self._values) for _ in range(self.chance.randint(1, 4))]
        sent = [Send(partition, value) for value in values]
        if outcome == Outcome.OK:
            sent = [Send(partition, value, self._append(partition, value)) for value in values]
        elif outcome == Outcome.UNKNOWN:
            for value in values[: self.chance.randint(0, len(values))]:
                self._append(partition, value)
            self.incarnations["plain"] += 1  # it does not know where it was: a new producer
        self._note(name, outcome, sends=tuple(sent))

    def transaction(self) -> None:
        commits = self.chance.random() < 0.7
        sent = [
            Send(partition, value, self._append(partition, value, commits))
            for partition in self.chance.choices(PARTITIONS, k=self.chance.randint(1, 4))
            for value in [next(self._values)]
        ]
        self._end("txn", sent, commits)

    def poll(self) -> None:
        name, partition = self.chance.choice(["p", "q"]), self.chance.choice(PARTITIONS)
        if self.chance.random() < 0.1:
            self.at.clear()  # all members get a new assignment
            for other in ("p", "q", "copier"):
                self._note(other, fresh=True)
        at = self.at.get((name, partition), 0)
        reads, at = self._read(partition, at, self.chance.randint(1, 5))
        self.at[name, partition] = at
        self._note(name, reads=reads)

    def copy(self) -> None:
        partition = self.chance.choice(PARTITIONS)
        start, commits = self.committed.get(partition, 0), self.chance.random() < 0.7
        reads, end = self._read(partition, start, self.chance.randint(1, 4))
        target = COPIES[partition]
        sent = []
        for read in reads:
            value = next(self._values)
            offset = self._append(target, value, commits)
            sent.append(Send(target, value, offset, source=read.value))
        if commits:
            self.committed[partition] = end
        more = {"group": "copiers", "commits": {partition: end}, "fresh": True}
        self._end("copier", sent, commits, reads=reads, **more)

    def fetch(self) -> None:
        positions = {partition: self.committed.get(partition) for partition in PARTITIONS}
        self._note("copier", positions=positions, group="copiers")

    def scan(self, name: str) -> None:
        for partition, log in self.logs.items():
            reads, _ = self._read(partition, 0, len(log))
            self._note(f"scan-{name}", reads=reads, scan=True, scanned=(partition,))

    # -- the broker -----------------------------------------------------------------------------

    def _append(self, partition: str, value: int, committed: bool = True) -> int:
        self.logs[partition].append((value, committed))
        return len(self.logs[partition]) - 1

    def _read(self, partition: str, at: int, most: int) -> tuple[tuple[Read, ...], int]:
        log, found = self.logs[partition], []
        while at < len(log) and len(found) < most:
            value, committed = log[at]
            if committed:
                found.append(Read(partition, at, value))
            at += 1
        return tuple(found), at

    def _end(self, name: str, sent: list[Send], done: bool, **more: object) -> None:
        told = Outcome.OK if done else Outcome.FAIL
        if self.chance.random() < 0.2:
            told = Outcome.UNKNOWN  # the response was lost, or the client died
        self._note(name, told, sends=tuple(sent), transactional=True, **more)

    def _note(self, process: str, outcome: Outcome = Outcome.OK, **more: object) -> None:
        began, self._now = self._now, self._now + TICKS
        ended = None if outcome == Outcome.UNKNOWN else began + TICKS - 1
        deciding = began + 1 if more.get("transactional") else None
        self.history.append(
            Operation(
                process=process,
                began=began,
                ended=ended,
                outcome=outcome,
                deciding=deciding,
                **more,
            )
        )

    # -- faults ---------------------------------------------------------------------------------

    def lose_a_read_record(self) -> None:
        places = [
            (partition, offset)
            for partition, log in self.logs.items()
            for offset, (_, committed) in enumerate(log)
            if committed
        ]
        if places:
            partition, offset = self.chance.choice(places)
            self.logs[partition][offset] = (0, False)
            self.damaged = True

    def show_an_aborted_record(self) -> None:
        aborted = {
            send.value for one in self.history if one.outcome == Outcome.FAIL for send in one.sends
        }
        for log in self.logs.values():
            for offset, (value, _) in enumerate(log):
                if value in aborted:
                    log[offset] = (value, True)
                    self.damaged = True
                    return

    def store_a_record_twice(self) -> None:
        for log in self.logs.values():
            for value, committed in log:
                if committed:
                    log.append((value, True))
                    self.damaged = True
                    return

    def forget_a_commit(self) -> None:
        sure = {}
        for one in self.history:
            if one.outcome == Outcome.OK:
                sure |= dict.fromkeys(one.commits, True)
        for partition in sure:
            del self.committed[partition]
            self.damaged = True
            return
