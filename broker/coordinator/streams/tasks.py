"""The tasks of a member: a task is a partition number of a subtopology. Plain values.

A member runs a task as active, which processes records, or keeps its state up to date as a standby.
A warm-up task is a standby of a task that is about to move to the member.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

Tasks = Mapping[str, frozenset[int]]  # subtopology: its partitions, at least one
TaskEpochs = Mapping[str, Mapping[int, int]]  # subtopology: partition: epoch of its assignment
Task = tuple[str, int]  # subtopology and partition
NO_TASKS: Tasks = {}
NO_EPOCHS: TaskEpochs = {}


class TaskSets(NamedTuple):
    """The tasks of a target assignment, or those that a member reports to own."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS


class OwnedTasks(NamedTuple):
    """The tasks that a member has. Only active tasks have epochs: commits are checked with them."""

    active: TaskEpochs = NO_EPOCHS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


NO_TARGET = TaskSets()
NOTHING_OWNED = OwnedTasks()


def each(tasks: Mapping[str, Iterable[int]]) -> Iterator[Task]:
    """Yields the tasks."""
    for subtopology, partitions in tasks.items():
        for partition in partitions:
            yield subtopology, partition


def grouped(tasks: Iterable[Task]) -> Tasks:
    """Returns tasks by subtopology."""
    found: dict[str, set[int]] = {}
    for subtopology, partition in tasks:
        found.setdefault(subtopology, set()).add(partition)
    return {subtopology: frozenset(found[subtopology]) for subtopology in sorted(found)}


def with_epochs(tasks: Mapping[Task, int]) -> TaskEpochs:
    """Returns active tasks and their epochs by subtopology."""
    found: dict[str, dict[int, int]] = {}
    for subtopology, partition in sorted(tasks):
        found.setdefault(subtopology, {})[partition] = tasks[subtopology, partition]
    return found


def of_rows(rows: Iterable[Any]) -> Tasks:
    """Reads rows of a request or a record, which have `subtopologyId` and `partitions`."""
    return grouped((row.subtopologyId, partition) for row in rows for partition in row.partitions)
