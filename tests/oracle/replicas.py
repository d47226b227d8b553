"""The followers of a partition in plain Python, and the high watermark that they allow.

The rules are those of cext/partition/replicas.pyx, for durability os, without locks.
"""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass
class Follower:
    end: int = -1
    leader_end: int = -1
    fetched_ms: int = 0
    caught_up_ms: int | None = None


@dataclass
class Replicas:
    leader: int
    lag_ms_max: int
    isr_size_min: int = 1
    end: int = 0
    high_watermark: int = 0
    now_ms: int = 0
    epoch: int = 0
    epoch_start: int = 0
    isr: frozenset[int] = frozenset()
    joining: frozenset[int] = frozenset()
    followers: dict[int, Follower] = field(default_factory=dict)
    someone_may_join: bool = False

    def lead(self, replicas: Collection[int], isr: Collection[int], epoch: int) -> None:
        before, was = self.followers, self.isr
        is_new = epoch != self.epoch
        if is_new:
            before, self.joining = {}, frozenset()
            self.epoch, self.epoch_start = epoch, self.end
        self.isr = frozenset(isr)
        self.followers = {}
        for n in replicas:
            if n != self.leader:
                self.followers[n] = before.get(n, Follower())
                if n in isr and self.followers[n].caught_up_ms is None:
                    self.followers[n].caught_up_ms = self.now_ms
                elif n in was and n not in isr:
                    self.followers[n].caught_up_ms = None
        self.joining = (self.joining & self.followers.keys()) - self.isr
        self.rise()

    def append(self, records: int) -> None:
        self.end += records
        self.rise()

    def fetch(self, broker: int, offset: int) -> None:
        f = self.followers[broker]
        if offset >= self.end:
            f.caught_up_ms = self.now_ms
        elif f.end >= 0 and offset >= f.leader_end:
            f.caught_up_ms = max(f.fetched_ms, f.caught_up_ms or 0)
        f.end, f.fetched_ms, f.leader_end = offset, self.now_ms, self.end
        self.someone_may_join |= broker not in self.isr and self.may_join(broker)
        self.rise()

    def may_join(self, broker: int) -> bool:
        return self.followers[broker].end >= max(self.high_watermark, self.epoch_start)

    def set_isr(self, isr: Collection[int], is_pending: bool) -> bool:
        members = frozenset(isr) & {*self.followers, self.leader}
        if is_pending:
            new = members - self.isr - {self.leader}
            if not all(self.may_join(n) for n in new):
                return False
            self.joining = new
        else:
            for n in self.isr - members - {self.leader}:
                self.followers[n].caught_up_ms = None
            self.isr, self.joining = members, frozenset()
        self.rise()
        return True

    def holds(self, broker: int) -> bool:
        caught_up_ms = self.followers[broker].caught_up_ms
        return broker in self.isr | self.joining or (
            caught_up_ms is not None and self.now_ms - caught_up_ms <= self.lag_ms_max
        )

    def rise(self) -> None:
        if len(self.isr) >= min(self.isr_size_min, len(self.followers) + 1):
            ends = [f.end for n, f in self.followers.items() if self.holds(n)]
            self.high_watermark = max(self.high_watermark, min([self.end, *ends]))

    def lagging(self) -> list[int]:
        return [
            n
            for n, f in self.followers.items()
            if n in self.isr
            and f.end != self.end
            and (f.caught_up_ms is None or self.now_ms - f.caught_up_ms > self.lag_ms_max)
        ]

    def caught_up(self) -> list[int]:
        asked, self.someone_may_join = self.someone_may_join, False
        return [n for n in self.followers if asked and n not in self.isr and self.may_join(n)]
