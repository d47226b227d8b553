"""The hook specifications. Each docstring is the contract: when a hook is called, on which thread,
and what it returns.

Hooks run per batch, per log, per segment or per decision, never per record. Every call runs on a
thread of the plugin (`plugin-NAME`), or in the plugin's own process with `isolation=process`, and
the caller waits for the answer: not longer than the budget, which is that of the hook unless
`plugin.NAME.budget.ms` says otherwise. So a hook may block. Two calls of one hook may run at the
same time. When a call raises, answers what the contract does not allow, or takes longer, it has
failed: it is counted on /metrics, written to the log (once a minute), and its answer is what the
last lines of the contract say. A call that takes too long leaves its thread behind; with
`abandoned.max` of them the plugin is switched off, as after `failures.max` failures in a row.

The hooks of the clients, from choose_partitions on, differ: they run in the client's process,
directly on the thread that needs the answer, and the caller waits for as long as the call takes.
They are called on the plugins that the client's settings name.

An implementation may leave out arguments that it does not need.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pluggy

from barnabas.hooks.client_specs import PROJECT, ClientSpecs, hook, hookspec
from barnabas.hooks.services import Services
from barnabas.hooks.views import (
    ConfigChange,
    DirectoryView,
    DirtyLog,
    GroupMemberView,
    GroupTopicView,
    GroupView,
    LogView,
    NewTopicView,
    RecordBatch,
    Reject,
    Replace,
    SegmentView,
    UnflushedLog,
)

__all__ = [
    "GroupMemberView",
    "GroupTopicView",
    "GroupView",
    "LogView",
    "SegmentView",
    "Specs",
    "hookimpl",
    "hookspec",
]
hookimpl = pluggy.HookimplMarker(PROJECT)


class Specs(ClientSpecs):
    """What a plugin may implement. The first three are asked of the plugins that a topic names, in
    the order of its setting; the others of every plugin of `plugins`, in that order; those of the
    clients (client_specs.py) stand behind them."""

    @hook(budget_ms=1000)
    def deletable_segments(self, log: LogView, now_ms: int) -> int:
        """How many of the oldest segments of a log may be deleted.

        When: every `log.retention.check.interval.ms`, for each log whose `cleanup.policy` has
        `delete`, of the plugins in the topic's `retention.policy`.
        `log`: the log, oldest segment first; its committed offsets are filled in for policies
        other than the built-in `time` and `size`. `now_ms`: the broker's wall clock.
        Returns: a number from 0 to len(log.segments). All are asked and the largest answer counts.
        The broker keeps what lies above the high watermark whatever is answered; when all segments
        may go, it rolls to an empty one first.
        When it fails: taken as 0.
        """
        raise NotImplementedError

    @hook(budget_ms=500)
    def intercept_produce(self, batch: RecordBatch) -> Reject | Replace | None:
        """Whether a producer's batch may be appended, and what is in it.

        When: a batch of a topic that names the plugin in `produce.interceptors` has been checked
        and is about to be appended. Its connection waits; others do not. A batch that a producer
        sends again comes here again.
        `batch`: the whole batch; `batch.records` and `batch.columns` open it.
        Returns: None to accept it; Reject(message), which the client sees as INVALID_RECORD;
        Replace(records), one record or None for each of its own: offsets and sequence numbers stay
        those that the producer counts. The plugins are asked in the topic's order, each with what
        the one before it made; the first Reject ends it.
        When it fails: with `on.failure=open` this plugin is left out. With `closed` the batch is
        rejected: by INVALID_RECORD, which producers raise at once, or, when the call took longer
        than its budget, by REQUEST_TIMED_OUT, after which they send the batch again.
        """
        raise NotImplementedError

    @hook(budget_ms=500)
    def intercept_fetch(self, batch: RecordBatch) -> Replace | None:
        """What a consumer sees of a batch.

        When: a fetch of a topic that names the plugin in `fetch.interceptors` has found records,
        once for each batch; never for the control batches of transactions. The fetch waits. It
        is asked again whenever the batch is fetched again; nothing is changed on disk.
        `batch`: the whole batch, offsets as in the log.
        Returns: None to leave it as it is; Replace(records), one record or None for each of its
        own: None hides it, and the consumer goes on behind it. The plugins are asked in the
        topic's order, each with what the one before it made.
        When it fails: with `on.failure=closed` the fetch of that partition is answered with
        UNKNOWN_SERVER_ERROR and no records, with `open` this plugin is left out.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def should_roll(self, log: LogView, now_ms: int) -> bool:
        """Whether the active segment of a log is to be closed and a new one begun.

        When: every `log.retention.check.interval.ms`, for each log whose active segment has
        records, before retention looks at it. Rolling by `segment.bytes` and `segment.ms` goes on
        whatever is answered.
        `log`: the log, oldest segment first. `now_ms`: the broker's wall clock.
        Returns: a bool; one True is enough.
        When it fails: taken as False.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def should_flush(self, log: UnflushedLog) -> bool:
        """Whether the records of a log that are not on disk are to be brought there now.

        When: every `log.flush.scheduler.interval.ms`, for each log with such records whose
        `flush.ms` is not over. The hook is not called for flushes that a request waits for.
        `log`: how many records, and for how long.
        Returns: a bool; one True is enough.
        When it fails: taken as False.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def may_compact(self, log: DirtyLog) -> bool:
        """Whether a log that is due for compaction may be compacted now.

        When: a cleaner thread looks for the next log.
        `log`: how dirty it is.
        Returns: a bool; one False is enough to leave the log alone until the next look.
        When it fails: taken as True with `on.failure=open`, else as False.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def place_partitions(
        self, brokers: Sequence[int], partition_count: int, replication_factor: int, first: int
    ) -> Sequence[Sequence[int]] | None:
        """Which brokers hold the replicas of new partitions.

        When: a topic is made or gets more partitions, and the request left the placement open.
        `brokers`: ids of those that live, ascending. `partition_count`: how many are new; `first`:
        the index of the first of them. `replication_factor`: replicas of each.
        Returns: None to leave it to the next, or for each partition its brokers, the preferred
        leader first, none of them twice. The first answer counts; without one the broker places.
        When it fails: taken as None.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def choose_log_directory(
        self, topic: str, partition: int, directories: Sequence[DirectoryView]
    ) -> str | None:
        """In which log directory a new partition lives.

        When: a partition is made on this broker, and `log.dirs` has more than one directory.
        `directories`: what there is to choose from.
        Returns: the path of one of them, or None to leave it to the next. The first answer counts;
        without one the directory with the fewest partitions is taken.
        When it fails: taken as None.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def check_new_topic(self, topic: NewTopicView) -> str | None:
        """Whether a topic may be made.

        When: a client asks for a topic, by name or by using it, after all other checks. Topics
        that the broker makes for itself are not asked about.
        `topic`: what is asked for, defaults filled in.
        Returns: None to allow it, or the reason why not, which the client sees with
        POLICY_VIOLATION. The first reason counts.
        When it fails: with `on.failure=closed` refused, with `open` allowed.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def check_config_change(self, change: ConfigChange) -> str | None:
        """Whether settings of a topic or a broker may be changed.

        When: a client alters them, after the values were found to be allowed.
        `change`: of what, and the values.
        Returns: None to allow it, or the reason why not, which the client sees with
        POLICY_VIOLATION. The first reason counts.
        When it fails: with `on.failure=closed` refused, with `open` allowed.
        """
        raise NotImplementedError

    @hook(budget_ms=2000)
    def assign_partitions(
        self, assignor: str, group: GroupView
    ) -> Mapping[str, Mapping[bytes, Collection[int]]] | None:
        """Which member of a group is to read which partitions (server-side assignors, KIP-848).

        When: a member came, left or subscribed to something else, or a topic of the group changed.
        All groups wait for the answer, which should come within milliseconds.
        `assignor`: the name that the members ask for, else the first of `group.consumer.assignors`.
        `group`: members, what each was assigned last, and the topics.
        Returns: partitions by topic id by member id; a member left out gets nothing. None when the
        name is not yours: the next plugin is asked, the last of `plugins` first and the built-ins
        in the end, and the first answer counts. A partition may be given to one member alone, which
        subscribes to its topic; share groups ask for the first of `group.share.assignors`, and
        there several members may be given one partition.
        When it fails: the member gets UNKNOWN_SERVER_ERROR, as when no plugin knows the name,
        and the group keeps the assignment it has.
        """
        raise NotImplementedError

    @hook(budget_ms=5000)
    def report_metrics(self, figures: Mapping[str, float], now_ms: int) -> None:
        """The broker's metrics, for a system that does not read /metrics.

        When: every `plugins.report.interval.ms`.
        `figures`: value by name and labels as /metrics writes them; of summaries `_count` and
        `_sum`. `now_ms`: the broker's wall clock.
        Returns: nothing.
        When it fails: that report is lost.
        """
        raise NotImplementedError

    @hook(budget_ms=500)
    def own_figures(self) -> Mapping[str, Mapping[str, float]]:
        """Metrics of the plugin's own, for /metrics.

        When: a client reads the page.
        Returns: value by topic, by the figure's name; shown as `barnabas_plugin_figure` with the
        labels plugin, figure and topic.
        When it fails: the page is without them.
        """
        raise NotImplementedError

    @hook(budget_ms=10_000)
    def broker_started(self, services: Services | None) -> None:
        """The broker is ready for its first client.

        When: once, at the end of the start, before a client is served; for the plugins that a
        reload brings, when they take over.
        `services`: what a plugin may do with the broker; None in a process of its own.
        Returns: nothing.
        When it fails: nothing else happens.
        """
        raise NotImplementedError

    @hook(budget_ms=10_000)
    def broker_stopping(self) -> None:
        """The broker is about to stop, or the plugin is about to be replaced by a reload.

        When: clients are served no more, logs are still open. After it no hook is called.
        Returns: nothing.
        When it fails: nothing else happens.
        """
        raise NotImplementedError

    @hook(budget_ms=5000)
    def partition_led(self, topic: str, partition: int, leader_epoch: int) -> None:
        """This broker leads a partition from now on.

        When: after the partition is served; at the start once for each. Calls of this and of
        `partition_lost` come one at a time, in the order of what happened.
        Returns: nothing.
        When it fails: nothing else happens.
        """
        raise NotImplementedError

    @hook(budget_ms=5000)
    def partition_lost(self, topic: str, partition: int) -> None:
        """This broker leads a partition no more, or the partition is gone.

        When: after the fact.
        Returns: nothing.
        When it fails: nothing else happens.
        """
        raise NotImplementedError


def names() -> list[str]:
    """All hooks, in the order of the classes."""
    return [
        name
        for cls in (Specs, ClientSpecs)
        for name, value in vars(cls).items()
        if hasattr(value, "budget_ms")
    ]


def budget_ms(name: str) -> int:
    return int(getattr(Specs, name).budget_ms)
