"""The sticky assignor of streams groups: balanced, and with few moves.

Active tasks: a member keeps what it has up to its quota; a task that is left goes to a member that
has its state as a standby, else to the member with the fewest tasks. The counts of two members
differ by one task at most. Standbys: each stateful task gets replicas in other processes, where its
state is already if possible. With rack tags (client tags that name zones, racks and so on) a
replica goes where as many tags as possible differ from those of the task's other holders. A process
has a task in one role only. Kafka: StickyTaskAssignor, which ignores the tags.

A plain function of its arguments; equal input gives equal output. Next: streams_heartbeats.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.coordinator.streams.tasks import NO_TARGET, Task, TaskSets, each, grouped


class Assignee(NamedTuple):
    """A member that gets tasks."""

    member_id: str
    process_id: str
    tags: Mapping[str, str]
    before: TaskSets = NO_TARGET
    offsets: Mapping[Task, int] = {}  # of tasks whose state it has on disk, as it reported


class SubtopologyTasks(NamedTuple):
    """The tasks of one subtopology: partitions 0 to `task_count` - 1."""

    subtopology: str
    task_count: int
    is_stateful: bool


def assigned(
    members: Sequence[Assignee],
    subtopologies: Iterable[SubtopologyTasks],
    standby_count: int,
    rack_tags: Sequence[str] = (),
) -> dict[str, TaskSets]:
    """Returns the tasks of every member. `standby_count`: replicas of each stateful task, of which
    there are fewer without enough processes."""
    if not members:
        return {}
    rows = list(subtopologies)
    work = _Work(members)
    work.assign_active([(row.subtopology, p) for row in rows for p in range(row.task_count)])
    if standby_count:
        stateful = [
            (row.subtopology, p) for row in rows if row.is_stateful for p in range(row.task_count)
        ]
        work.assign_standbys(stateful, standby_count, rack_tags)
    return {
        member_id: TaskSets(grouped(work.active[member_id]), grouped(work.standby[member_id]))
        for member_id in work.active
    }


class _Quota:
    """How many tasks a member may keep: the total divided by the members, rounded up for as many
    members as the remainder needs."""

    def __init__(self, task_count: int, member_count: int) -> None:
        self._tasks, self._members = task_count, member_count

    @property
    def count(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def taken(self, count: int) -> None:
        """Call it with the count of a member that has got a task."""
        if count == self.count:
            self._tasks -= count
            self._members -= 1


class _Work:
    """The assignment while it is made."""

    def __init__(self, members: Sequence[Assignee]) -> None:
        rows = sorted(members)
        self.members = {row.member_id: row for row in rows}
        self.active: dict[str, list[Task]] = {row.member_id: [] for row in rows}
        self.standby: dict[str, list[Task]] = {row.member_id: [] for row in rows}
        self.processes: dict[str, list[str]] = {}
        for row in rows:
            self.processes.setdefault(row.process_id, []).append(row.member_id)
        self.had_active: dict[Task, str] = {}
        ranks: dict[Task, list[tuple[bool, int, str]]] = {}
        for row in rows:
            self.had_active |= dict.fromkeys(each(row.before.active), row.member_id)
            standbys = set(each(row.before.standby))
            for task in standbys | row.offsets.keys():
                rank = task not in standbys, -row.offsets.get(task, 0), row.member_id
                ranks.setdefault(task, []).append(rank)
        # Members that have the state of a task: former standbys first, then by offset.
        self.had_state = {task: [row[2] for row in sorted(found)] for task, found in ranks.items()}
        self.holders: dict[Task, list[str]] = {}  # processes
        self._process_counts = dict.fromkeys(self.processes, 0)

    def count(self, member_id: str) -> int:
        return len(self.active[member_id]) + len(self.standby[member_id])

    def _load(self, member_id: str) -> tuple[int, float, str]:
        """Returns what the member with the smallest gets the next task by: its tasks, then those of
        its process for each member."""
        process_id = self.members[member_id].process_id
        share = self._process_counts[process_id] / len(self.processes[process_id])
        return self.count(member_id), share, member_id

    def _give(self, task: Task, member_id: str, to: dict[str, list[Task]]) -> None:
        to[member_id].append(task)
        process_id = self.members[member_id].process_id
        self.holders.setdefault(task, []).append(process_id)
        self._process_counts[process_id] += 1

    # -- active tasks ---------------------------------------------------------------------------

    def assign_active(self, tasks: Sequence[Task]) -> None:
        quota = _Quota(len(tasks), len(self.members))

        def keep(task: Task, candidates: Iterable[str]) -> bool:
            found = min((m for m in candidates if m in self.members), key=self._load, default=None)
            if found is None or self.count(found) >= quota.count:
                return False
            self._give(task, found, self.active)
            quota.taken(self.count(found))
            return True

        by_partition = sorted(tasks, key=lambda task: (task[1], task[0]))
        left = [t for t in by_partition if not keep(t, _of(self.had_active.get(t)))]
        left = [t for t in left if not keep(t, self.had_state.get(t, ()))]
        loads = [self._load(member_id) for member_id in self.members]
        heapq.heapify(loads)
        for task in sorted(left):
            while True:
                old = heapq.heappop(loads)
                now = self._load(old[2])
                if now == old:
                    break
                heapq.heappush(loads, now)  # its process has got tasks; loads only grow
            self._give(task, old[2], self.active)
            heapq.heappush(loads, self._load(old[2]))

    # -- standby tasks --------------------------------------------------------------------------

    def assign_standbys(self, tasks: Sequence[Task], count: int, rack_tags: Sequence[str]) -> None:
        total = sum(map(len, self.active.values())) + len(tasks) * count
        quota = _Quota(total, len(self.members))
        waiting: list[Task] = []
        for task in sorted(tasks, key=lambda task: (task[1], task[0]), reverse=True):
            for _ in range(count):
                processes = self._processes_for(task, rack_tags)
                found = self._kept(task, processes, quota)
                if found is None:
                    waiting.append(task)  # after all tasks that stay where they are
                    continue
                self._give(task, found, self.standby)
                quota.taken(self.count(found))
        for task in sorted(waiting, reverse=True):
            processes = self._processes_for(task, rack_tags)
            if processes:
                found = min((m for p in processes for m in self.processes[p]), key=self._load)
                self._give(task, found, self.standby)

    def _kept(self, task: Task, processes: set[str], quota: _Quota) -> str | None:
        """Returns the member that has the task's state and may keep it; None: no such member."""
        for member_id in (*_of(self.had_active.get(task)), *self.had_state.get(task, ())):
            member = self.members[member_id]
            if member.process_id in processes and self.count(member_id) < quota.count:
                return member_id
        return None

    def _processes_for(self, task: Task, rack_tags: Sequence[str]) -> set[str]:
        """Returns the processes that may get a replica of a task: those without it, and of these
        the ones with the most tags that differ from the tags of its holders."""
        holders = self.holders.get(task, [])
        free = self.processes.keys() - holders
        if not rack_tags or not free:
            return free
        taken = [{self._tag(process_id, tag) for process_id in holders} for tag in rack_tags]

        def differing(process_id: str) -> int:
            pairs = zip(rack_tags, taken, strict=True)
            return sum(self._tag(process_id, tag) not in values for tag, values in pairs)

        scores = {process_id: differing(process_id) for process_id in free}
        best = max(scores.values())
        return {process_id for process_id, score in scores.items() if score == best}

    def _tag(self, process_id: str, tag: str) -> str | None:
        return self.members[self.processes[process_id][0]].tags.get(tag)


def _of(member_id: str | None) -> tuple[str, ...]:
    return () if member_id is None else (member_id,)
