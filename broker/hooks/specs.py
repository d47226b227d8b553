"""The hook specifications. Each docstring is the contract: when a hook is called, on which thread,
and what it returns.

The broker calls hooks per batch, per log, per segment or per decision, never per record. Every call
runs on a thread of the plugin (`plugin-NAME`), or in the plugin's own process with
`isolation=process`. The caller waits for the answer, at most for the budget of the hook or for
`plugin.NAME.budget.ms`, so a hook may block. Two calls of one hook may run at the same time. A call
fails when it raises, returns a value that the contract does not allow, or takes longer than the
budget. The broker counts a failure on /metrics and logs it (once a minute); the last part of each
contract says what the broker does then. A call that takes too long occupies its thread; the broker
switches a plugin off after `abandoned.max` such threads, and after `failures.max` failures in a
row.

The hooks of the clients, from choose_partitions on, differ: they run in the client's process,
directly on the thread that needs the answer, and the caller waits for as long as the call takes. A
client calls them of the plugins that its settings name.

An implementation may omit arguments that it does not need.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pluggy

from barnabas.hooks.client_specs import PROJECT, ClientSpecs, hook, hookspec
from barnabas.hooks.services import Services
from barnabas.hooks.views import (
    ConfigChange,
    ConnectionView,
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
    """The hooks that a plugin may implement. The broker calls the first three of the plugins that a
    topic names, in the order of its setting, authorize and build_principal of the plugin that a
    setting names, and the others of every plugin of `plugins`, in that order; the hooks of the
    clients (client_specs.py) follow."""

    @hook(budget_ms=1000)
    def deletable_segments(self, log: LogView, now_ms: int) -> int:
        """Returns how many of the oldest segments of a log the broker may delete.

        When: every `log.retention.check.interval.ms`, for each log whose `cleanup.policy` has
        `delete`, of the plugins in the topic's `retention.policy`.
        `log`: the log, oldest segment first; it has committed offsets for policies other than the
        built-in `time` and `size`. `now_ms`: the broker's wall clock.
        Returns: a number from 0 to len(log.segments). The broker calls all policies and uses the
        largest answer. It always keeps records above the high watermark; when all segments may go,
        it first rolls to an empty one.
        When it fails: the answer counts as 0.
        """
        raise NotImplementedError

    @hook(budget_ms=500)
    def intercept_produce(self, batch: RecordBatch) -> Reject | Replace | None:
        """Accepts, rejects or changes a producer's batch.

        When: after the broker has checked a batch of a topic that names the plugin in
        `produce.interceptors`, and before it appends the batch. The connection of the batch waits;
        others do not. A batch that a producer sends again causes another call.
        `batch`: the whole batch; `batch.records` and `batch.columns` decode it.
        Returns: None to accept the batch; Reject(message), which the client gets as INVALID_RECORD;
        Replace(records), one record or None for each record of the batch: offsets and sequence
        numbers stay as the producer counts them. The broker calls the plugins in the topic's order,
        each with the batch that the one before it returned; the first Reject ends the sequence.
        When it fails: with `on.failure=open` the broker skips this plugin. With `closed` it rejects
        the batch with INVALID_RECORD, which producers raise at once, or, when the call took longer
        than its budget, with REQUEST_TIMED_OUT, after which they send the batch again.
        """
        raise NotImplementedError

    @hook(budget_ms=500)
    def intercept_fetch(self, batch: RecordBatch) -> Replace | None:
        """Changes what a consumer gets of a batch.

        When: once for each batch that a fetch of a topic returns, if the topic names the plugin in
        `fetch.interceptors`; never for the control batches of transactions. The fetch waits. Each
        fetch of the batch causes another call; the log does not change.
        `batch`: the whole batch, with the offsets of the log.
        Returns: None to leave the batch unchanged; Replace(records), one record or None for each
        record of the batch: None hides the record, and the consumer continues after it. The broker
        calls the plugins in the topic's order, each with the batch that the one before it returned.
        When it fails: with `on.failure=closed` the broker answers the fetch of that partition with
        UNKNOWN_SERVER_ERROR and no records; with `open` it skips this plugin.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def should_roll(self, log: LogView, now_ms: int) -> bool:
        """Returns whether the broker shall close the active segment of a log and begin a new one.

        When: every `log.retention.check.interval.ms`, for each log whose active segment has
        records, before the retention check. Rolling by `segment.bytes` and `segment.ms` does not
        depend on the answer.
        `log`: the log, oldest segment first. `now_ms`: the broker's wall clock.
        Returns: a bool; one True is enough.
        When it fails: the answer counts as False.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def should_flush(self, log: UnflushedLog) -> bool:
        """Returns whether the broker shall flush the unflushed records of a log to disk now.

        When: every `log.flush.scheduler.interval.ms`, for each log with such records whose
        `flush.ms` is not over. The broker does not call the hook for flushes that a request waits
        for.
        `log`: the number of these records, and the age of the oldest.
        Returns: a bool; one True is enough.
        When it fails: the answer counts as False.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def may_compact(self, log: DirtyLog) -> bool:
        """Returns whether the broker may compact a log that is due for compaction now.

        When: a cleaner thread looks for the next log.
        `log`: the log and its dirty bytes.
        Returns: a bool; after one False the cleaner skips the log until its next search.
        When it fails: the answer counts as True with `on.failure=open`, otherwise as False.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def place_partitions(
        self, brokers: Sequence[int], partition_count: int, replication_factor: int, first: int
    ) -> Sequence[Sequence[int]] | None:
        """Chooses the brokers of the replicas of new partitions.

        When: a request creates a topic or adds partitions, and does not assign them to brokers.
        `brokers`: the ids of the running brokers, ascending. `partition_count`: the number of new
        partitions; `first`: the index of the first of them. `replication_factor`: replicas of each.
        Returns: for each partition its brokers, without duplicates, the preferred leader first; or
        None to leave the choice to the next plugin. The first answer counts; without an answer the
        broker chooses.
        When it fails: the answer counts as None.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def choose_log_directory(
        self, topic: str, partition: int, directories: Sequence[DirectoryView]
    ) -> str | None:
        """Chooses the log directory of a new partition.

        When: the broker creates a partition, and `log.dirs` has more than one directory.
        `directories`: the usable directories.
        Returns: the path of one of them, or None to leave the choice to the next plugin. The first
        answer counts; without an answer the broker uses the directory with the fewest partitions.
        When it fails: the answer counts as None.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def check_new_topic(self, topic: NewTopicView) -> str | None:
        """Allows or refuses a new topic.

        When: a client creates a topic, by CreateTopics or by using it, after all other checks. The
        broker does not call the hook for its internal topics.
        `topic`: the requested topic, with defaults filled in.
        Returns: None to allow the topic, or the reason for a refusal, which the client gets with
        POLICY_VIOLATION. The first reason counts.
        When it fails: `on.failure=closed` refuses the topic, `open` allows it.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def check_config_change(self, change: ConfigChange) -> str | None:
        """Allows or refuses a change of settings of a topic or a broker.

        When: a client alters settings, after the broker has checked the values.
        `change`: the topic or broker, and the values.
        Returns: None to allow the change, or the reason for a refusal, which the client gets with
        POLICY_VIOLATION. The first reason counts.
        When it fails: `on.failure=closed` refuses the change, `open` allows it.
        """
        raise NotImplementedError

    @hook(budget_ms=100)
    def client_quota(self, quota: str, user: str, client_id: str) -> float | None:
        """Returns the quota of a client, in place of those of the metadata tree.

        When: the first request of a connection or of a client id arrives, and the next request
        after quotas or plugins change. That request waits; others do not. For
        controller_mutation_rate: each request that creates or deletes partitions.
        `quota`: producer_byte_rate or consumer_byte_rate (bytes a second), request_percentage
        (percent of a thread), or controller_mutation_rate (partitions a second). `user`: the
        principal's name, ANONYMOUS without a login. `client_id`: "" when the client has none.
        Returns: a number above 0, which all connections of this user with this client id share;
        math.inf for no limit; None to leave it to the next plugin. The first number counts. When no
        plugin returns one, the quotas of the metadata tree count.
        When it fails: the answer counts as None.
        """
        raise NotImplementedError

    @hook(budget_ms=500)
    def authorize(
        self, principal: str, host: str, operation: str, resource_type: str, name: str | None
    ) -> bool | None:
        """Allows or denies an operation on a resource, or leaves it to the access rules (ACLs).

        When: a client uses a resource, of the plugin that `authorizer.class.name` names, before the
        rules are read; never for super.users. The request waits. The broker keeps the answers for
        produce, fetch, commits and steps of transactions, for all connections of a principal and a
        host, until the plugin calls `services.rules_changed()`, or a rule or a plugin changes; the
        same holds for cached responses (Metadata). It asks again for every other request, and for a
        client that was denied.
        `principal`: TYPE:NAME, User:ANONYMOUS without a login. `host`: the client's address.
        `operation`: Kafka's AclOperation; the plugin is asked for DESCRIBE even when it has allowed
        READ. `resource_type`: TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN or USER.
        `name`: kafka-cluster for CLUSTER; None asks whether the principal may do the operation with
        some resource of the type, as idempotent producers need it for WRITE of TOPIC.
        Returns: True to allow and False to deny, whatever the rules say; None to leave it to them.
        The plugin needs isolation=thread.
        When it fails: the broker denies the operation, with `on.failure=open` too. A plugin that is
        switched off denies everything.
        """
        raise NotImplementedError

    @hook(budget_ms=1000)
    def build_principal(self, connection: ConnectionView) -> str | Reject | None:
        """Names the principal of a connection.

        When: a login with SASL has succeeded, again at each re-authentication; or a client of an
        SSL listener has shown a certificate. Of the plugin that `principal.builder.class` names,
        before the client's next request. Connections without login or certificate have
        User:ANONYMOUS and cause no call.
        `connection`: who the client is by its login or certificate.
        Returns: TYPE:NAME, as in User:alice; Reject(message) to refuse the connection, after a SASL
        login with SASL_AUTHENTICATION_FAILED and the message; None for the principal without a
        plugin: User: and the name of the login, or of ssl.principal.mapping.rules.
        When it fails: the broker refuses the connection, with `on.failure=open` too.
        """
        raise NotImplementedError

    @hook(budget_ms=2000)
    def assign_partitions(
        self, assignor: str, group: GroupView
    ) -> Mapping[str, Mapping[bytes, Collection[int]]] | None:
        """Assigns the partitions of a group to its members (server-side assignors, KIP-848).

        When: a member joined, left or changed its subscription, or a topic of the group changed.
        All groups wait for the answer, which should take only milliseconds.
        `assignor`: the name that the members request, else the first of `group.consumer.assignors`;
        for a share group the first of `group.share.assignors`.
        `group`: the members with their last assignments, and the topics.
        Returns: member id -> topic id -> partitions; a missing member gets no partitions. None when
        the plugin does not implement this assignor: the broker then calls the next plugin, from the
        last of `plugins` to the first and the built-ins at the end. The first answer counts. Each
        partition may go to one member only, which must subscribe to its topic; in a share group
        several members may get the same partition.
        When it fails: the member gets UNKNOWN_SERVER_ERROR, as when no plugin implements the
        assignor, and the group keeps its present assignment.
        """
        raise NotImplementedError

    @hook(budget_ms=5000)
    def report_metrics(self, metrics: Mapping[str, float], now_ms: int) -> None:
        """Gets the broker's metrics, for a system that does not read /metrics.

        When: every `plugins.report.interval.ms`.
        `metrics`: name and labels as on /metrics -> value; a summary has `_count` and `_sum`.
        `now_ms`: the broker's wall clock.
        Returns: nothing.
        When it fails: that report is lost.
        """
        raise NotImplementedError

    @hook(budget_ms=500)
    def own_metrics(self) -> Mapping[str, Mapping[str, float]]:
        """Returns metrics of the plugin, for /metrics.

        When: a client reads the page.
        Returns: name of the metric -> topic -> value. The page shows them as
        `barnabas_plugin_metric` with the labels plugin, metric and topic.
        When it fails: the page omits them.
        """
        raise NotImplementedError

    @hook(budget_ms=10_000)
    def broker_started(self, services: Services | None) -> None:
        """Learns that the broker is ready for its first client.

        When: once, at the end of the start, before the broker serves clients; after a reload, when
        the new plugins replace the old ones.
        `services`: the services of the broker; None for a plugin in its own process.
        Returns: nothing.
        When it fails: the failure has no other effect.
        """
        raise NotImplementedError

    @hook(budget_ms=10_000)
    def broker_stopping(self) -> None:
        """Learns that the broker is about to stop, or that a reload is about to replace the plugin.

        When: after the broker has stopped serving clients, while the logs are open. The broker
        calls no hook after it. Returns: nothing. When it fails: the failure has no other effect.
        """
        raise NotImplementedError

    @hook(budget_ms=5000)
    def partition_led(self, topic: str, partition: int, leader_epoch: int) -> None:
        """Learns that this broker has become the leader of a partition.

        When: after the broker serves the partition; at the start once for each partition. Calls of
        this hook and of `partition_lost` come one at a time, in the order of the events.
        Returns: nothing.
        When it fails: the failure has no other effect.
        """
        raise NotImplementedError

    @hook(budget_ms=5000)
    def partition_lost(self, topic: str, partition: int) -> None:
        """Learns that this broker no longer leads a partition, or that the partition was deleted.

        When: after the change.
        Returns: nothing.
        When it fails: the failure has no other effect.
        """
        raise NotImplementedError


def names() -> list[str]:
    """Returns all hooks, in the order of the classes."""
    return [
        name
        for cls in (Specs, ClientSpecs)
        for name, value in vars(cls).items()
        if hasattr(value, "budget_ms")
    ]


def budget_ms(name: str) -> int:
    """Returns the time in ms that one call of this hook may take."""
    return int(getattr(Specs, name).budget_ms)
