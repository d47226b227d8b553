"""The progress of a streaming query: its start, and the end of each batch.

Spark calls, in the driver and from one thread: `initial` (for a new query), `latest` for the end of
the next batch, `tasks` for its ranges; then it runs the tasks and writes the batch's end into its
checkpoint. After a crash it runs the newest batch again: it calls `tasks` with the same range.

The range of the first batch is from `initial` to its end, and the checkpoint holds only the end. So
when the same options may mean other offsets later (latest, group, ...) the first batch is empty:
its end, which the checkpoint keeps, is the start of the query.

Every end contains the topic ids (offsets.py), so the query detects after a restart too that a topic
was deleted and created again. When an end lacks ids (spark-sql-kafka wrote it) the query uses the
ids that this object saw first.

Spark calls `latest` when everything before its `start` is in the checkpoint's commits: then this
class commits the offsets to the group. Spark calls it once more after the last batch of an
AvailableNow run, so that the group has the end of that batch.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from barnabas.client import ClientError, Cluster
from barnabas.client.groups import commit_offsets
from barnabas.errors import KafkaError
from barnabas.spark.batch import Task, tasks
from barnabas.spark.offsets import Offsets, TopicIds, id_marks, marked_ids
from barnabas.spark.options import SourceOptions
from barnabas.spark.planner import (
    DataLoss,
    Ends,
    MinOffsets,
    Positions,
    Start,
    latest_within,
    latest_within_bytes,
    starting,
    task_ranges,
)
from barnabas.spark.positions import first_offsets
from barnabas.spark.subscription import Seen, look, stored_bytes

log = logging.getLogger("barnabas.spark")

LAGGING_TRIES, LAGGING_PAUSE_S = 5, 0.2  # for a broker that has just become the leader


@dataclass(frozen=True, slots=True)
class Limit:
    """Spark's own limits for one batch, besides the options; None: no limit."""

    everything: bool = False  # overrides the options
    offsets_max: int | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """The position of a query."""

    offsets: Ends = field(default_factory=dict)
    ids: TopicIds = field(default_factory=dict)  # the known ids of its topics


class Stream:
    """The stream of one query. Raises BadOption, DataLoss, and errors of client and brokers."""

    def __init__(
        self, options: SourceOptions, now_ms: Callable[[], int] = lambda: time.time_ns() // 10**6
    ) -> None:
        self.options, self._now_ms = options, now_ms
        self._cluster: Cluster | None = None
        self._ids: TopicIds = {}  # the first ids that this object saw
        self._initial: Point | None = None
        self._first_is_empty = False
        self._target: Ends | None = None  # where an AvailableNow run ends
        self._newest: Ends | None = None
        self._in_group: Offsets = {}
        self._there: TopicIds = {}  # the ids at the last look
        self._held = MinOffsets(options.offsets_min or 0, options.delay_ms)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    # ------------------------------------------------------------------------- start

    def initial(self) -> Point:
        """Returns the start of a new query; Spark calls it repeatedly, and the result stays the
        same."""
        if self._initial is None:
            seen = self._look()
            asked = first_offsets(self._connected(), self.options, seen)
            begin = self._starting(asked, self._ids, seen)
            self._initial = Point(begin.offsets, seen.known_ids())
            self._first_is_empty = self.options.start_moves
        return self._initial

    def _starting(self, asked: Positions, before: TopicIds, seen: Seen) -> Start:
        return starting(
            asked,
            seen.earliest(),
            seen.high(),
            fail_on_data_loss=self.options.fail_on_data_loss,
            ids_before=before,
            ids_now=seen.known_ids(),
        )

    # ------------------------------------------------------------------------- end of a batch

    def stop_at_latest(self) -> None:
        """Ends the query at the current ends (AvailableNow)."""
        self._target = self._look().latest(self.options.committed)

    def newest(self) -> Ends | None:
        """Returns the ends of the partitions at the last call of `latest`, for the lag; None before
        it."""
        return self._newest

    def latest(self, start: Point, limit: Limit = Limit()) -> Point:
        """Returns the end of the next batch; `start` when no batch is to run now."""
        if self._first_is_empty:
            self._first_is_empty = False
            return start
        seen = self._look_from(start)
        self._commit(start)
        begin = self._starting(start.offsets, self._ids | start.ids, seen).offsets
        latest = seen.latest(self.options.committed)
        self._newest = latest
        if self._target is not None:
            kept = self._target.keys() | start.offsets.keys()
            latest = {
                tp: min(at, self._target.get(tp, at)) for tp, at in latest.items() if tp in kept
            }
        # The query may have read uncommitted records before the user changed the isolation level.
        latest = {tp: max(at, begin[tp]) for tp, at in latest.items()}
        ends = self._within(begin, latest, seen, limit)
        return start if ends is None else Point(ends, seen.known_ids())

    def _within(self, begin: Positions, latest: Ends, seen: Seen, limit: Limit) -> Ends | None:
        """Returns the end of a batch within the limits; None when the batch has to wait."""
        options = self.options
        if limit.everything:
            return latest
        if options.offsets_min is not None and self._target is None:
            if not self._held.is_due(begin, latest, now_ms=self._now_ms()):
                return None
        most = [n for n in (options.offsets_max, limit.offsets_max) if n is not None]
        if most:
            latest = latest_within(begin, latest, min(most))
        if options.bytes_max is not None:
            between = stored_bytes(self._connected(), options, seen)
            latest = latest_within_bytes(begin, latest, options.bytes_max, between)
        return latest

    # ------------------------------------------------------------------------- tasks

    def tasks(self, start: Point, end: Point) -> list[Task]:
        """Returns the tasks of a batch that the checkpoint holds."""
        if self._first_is_empty:
            self._first_is_empty = False
            return []  # the first batch runs again after a crash: see above
        seen = self._look_from(end)
        there = Seen({tp: row for tp, row in seen.bounds.items() if tp in end.offsets}, seen.ids)
        # The topic was created again after this batch was planned: none of the batch's records
        # exist any more, and the next batch begins at the start of the new topic.
        ids = there.known_ids()
        others = {topic: i for topic, i in end.ids.items() if ids.get(topic, i) != i}
        begin = self._starting(start.offsets, self._ids | start.ids | others, there)
        ends = {tp: at for tp, at in end.offsets.items() if tp[0] not in others}
        high = there.high()
        lost = [
            f"partition {tp[1]} of topic {tp[0]}: offsets up to {at} are wanted, but the log has"
            f" offsets {there.bounds[tp].earliest} to {high[tp]}"
            if tp in high
            else f"partition {tp[1]} of topic {tp[0]} was deleted (it was to be read to {at})"
            for tp, at in sorted(ends.items())
            if at > high.get(tp, -1)
        ]
        if lost and self.options.fail_on_data_loss:
            raise DataLoss(lost)
        if lost or begin.lost:
            log.warning("records were lost: %s", "; ".join([*begin.lost, *lost]))
        ends = {tp: min(at, high[tp]) for tp, at in ends.items() if tp in high}
        return tasks(self._connected(), self.options, there, task_ranges(begin.offsets, ends))

    # ------------------------------------------------------------------------- the group

    def done(self, end: Point) -> None:
        """Commits to the group: everything before `end` is in the checkpoint's commits."""
        self._commit(end)

    def _commit(self, point: Point) -> None:
        group = self.options.commit_group
        rows: Offsets = {}
        for (topic, index), offset in point.offsets.items():
            there = self._there.get(topic)
            if there is not None and there == point.ids.get(topic, there):
                rows.setdefault(topic, {})[index] = offset
        if group is None or rows == self._in_group or not rows:
            return
        try:
            commit_offsets(self._connected(), group, rows)
        except (KafkaError, ClientError) as error:
            # The query's position is in its checkpoint, and the next batch commits to the group
            # again.
            log.warning("could not commit the query's offsets to group %s: %s", group, error)
            return
        self._in_group = rows

    # ------------------------------------------------------------------------- the cluster

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = self.options.servers.cluster()
        return self._cluster

    def _look(self) -> Seen:
        cluster = self._connected()
        for topic in self._there:
            cluster.forget(topic)  # it may have more partitions, or be another topic
        seen = look(cluster, self.options)
        self._there = seen.ids
        self._ids = seen.known_ids() | self._ids
        return seen

    def _look_from(self, known: Point) -> Seen:
        """Fetches the ends. When they lie below the known ones, repeats it up to LAGGING_TRIES
        times."""
        before = self._ids | known.ids
        for _ in range(LAGGING_TRIES):
            seen = self._look()
            high = seen.high()
            if any(before.get(topic, i) != i for topic, i in seen.known_ids().items()):
                return seen
            if all(high[tp] >= at for tp, at in known.offsets.items() if tp in high):
                return seen
            time.sleep(LAGGING_PAUSE_S)
        return seen


def point(document: Mapping[str, Mapping[str, int]]) -> Point:
    """Returns the offsets in a line of Spark's JSON."""
    return Point(
        {(t, int(index)): at for t, rows in document.items() for index, at in rows.items()},
        marked_ids(document),
    )


def document(point: Point) -> dict[str, dict[str, int]]:
    """Returns the line of Spark's JSON for offsets, in order."""
    found: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(point.offsets.items()):
        found.setdefault(topic, {})[str(index)] = offset
    return found | id_marks(point.ids)
