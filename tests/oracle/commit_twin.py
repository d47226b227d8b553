"""The native handler of OffsetCommit in plain Python, for coordinators without network threads.

It does the same as cext/coordinator/offset_commit.pyx: it checks a commit against the table of
groups, appends it to the journal, and gives durable commits to the coordinator. Instead of a
partition's log it has the rig's journal, whose writes a test may delay or fail.
"""

from collections import Counter
from typing import NamedTuple

from barnabas.cext.coordinator.group_table import GroupTable
from barnabas.coordinator.groups.group_records import offset_key, offset_value
from barnabas.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    error_of,
)

MEMBER_EPOCHS_FROM = 9  # of OffsetCommit


class Producer(NamedTuple):
    """The producer to whose transaction the offsets belong."""

    producer_id: int
    producer_epoch: int


class TableTwin:
    """A GroupTable that also knows the members' last commits and the waiting commits."""

    new_count = 0  # the twin creates groups directly in the coordinator

    def __init__(self, now_ms):
        self._table = GroupTable()
        self._now_ms = now_ms
        self._heard_ms = {}
        self._holds = Counter()
        self._held = {}  # group: waiting commits

    def __getattr__(self, name):
        return getattr(self._table, name)

    def heard_ms(self, group_id, member_id):
        return self._heard_ms.get((group_id, member_id), -1)

    def hold(self, group_id):
        self._holds[group_id] += 1

    def release(self, group_id, partition):
        self._holds[group_id] -= 1
        if not self._holds[group_id]:
            for go_on in self._held.pop(group_id, []):
                go_on()

    def waits(self, group_id, go_on):
        """Returns whether the group is on hold; if so, `go_on` is called at the end of the hold."""
        if self._holds[group_id]:
            self._held.setdefault(group_id, []).append(go_on)
        return self._holds[group_id] > 0

    def heard(self, group_id, member_id):
        self._heard_ms[group_id, member_id] = self._now_ms()


class CommitTwin:
    """Commits of one rig. `topic_id`: returns the id of a topic, None for an unknown one."""

    def __init__(self, rig, table):
        self.rig = rig
        self.table = table
        self._durable = []
        self._writing = Counter()

    # -- calls by the coordinator ----------------------------------------------------------------

    @property
    def waiting(self):
        return len(self._durable)

    def take(self):
        rows, self._durable = self._durable, []
        return rows

    def has_waiting(self, group_id):
        return self._writing[group_id] > 0 or any(row[0] == group_id for row in self._durable)

    def forget(self, partition):
        of = self.rig.journal.partition_of
        self._durable = [row for row in self._durable if of(row[0]) != partition]

    # -- calls by clients ------------------------------------------------------------------------

    def commit(self, group_id, member_id, instance_id, epoch, commits, done, **more):
        """Calls `done` with the outcome of each commit: (topic, partition, Committed). Raises an
        error for the whole request. `more`: producer, version."""
        given = group_id, member_id, instance_id, epoch, commits, done
        with self.rig.coordinator.lock:
            if not self.table.waits(group_id, lambda: self._commit(*given, **more)):
                self._commit(*given, **more)

    def _commit(
        self,
        group_id,
        member_id,
        instance_id,
        epoch,
        commits,
        done,
        producer=None,
        version=MEMBER_EPOCHS_FROM,
    ):
        coordinator = self.rig.coordinator
        partition = coordinator.check(group_id)
        if coordinator.is_other(group_id):
            raise GroupIdNotFound()
        ids = [(self.rig.topic_id(topic), index) for topic, index, _ in commits]
        code = self.table.check(
            group_id, member_id, instance_id, epoch, version, producer is not None, ids
        )
        if producer is not None and code == StaleMemberEpoch.code:
            code = IllegalGeneration.code
        if code:
            raise error_of(code)()
        coordinator._group_or_new(group_id, partition)
        if producer is None:
            self.table.heard(group_id, member_id)
        self._append(group_id, partition, commits, done, producer)

    def _append(self, group_id, partition, commits, done, producer):
        largest = self.rig.settings.metadata_bytes_max
        outcomes = [
            OffsetMetadataTooLarge() if len(row.metadata.encode()) > largest else None
            for _, _, row in commits
        ]
        taken = [row for row, error in zip(commits, outcomes, strict=True) if error is None]
        if not taken:
            done(outcomes)
            return

        def finished(error):
            self._writing[group_id] -= 1
            if error is None:
                producer_id = -1 if producer is None else producer.producer_id
                self._durable += [
                    (group_id, topic, index, *row, producer_id) for topic, index, row in taken
                ]
            done([before or error for before in outcomes])

        self._writing[group_id] += 1
        entries = [(offset_key(group_id, t, p), offset_value(row)) for t, p, row in taken]
        try:
            self.rig.journal.append(partition, entries, finished, producer=producer)
        except Exception:
            self._writing[group_id] -= 1
            raise
