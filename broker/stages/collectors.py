"""Makes the collectors of a running broker's metrics. The first read of /metrics imports this
file."""

from __future__ import annotations

from barnabas import __version__
from barnabas.stages.running import Running
from barnabas.telemetry.broker_collector import BrokerCollector, BrokerParts
from barnabas.telemetry.cleaner_metrics import CleanerCollector
from barnabas.telemetry.group_metrics import GroupCollector
from barnabas.telemetry.login_metrics import LoginCollector
from barnabas.telemetry.network_metrics import NetworkCollector
from barnabas.telemetry.plugin_metrics import PluginCollector
from barnabas.telemetry.process_metrics import ProcessCollector
from barnabas.telemetry.quota_metrics import QuotaCollector
from barnabas.telemetry.registry import Collector
from barnabas.telemetry.replication_metrics import ReplicationCollector
from barnabas.telemetry.share_metrics import ShareCollector


def collectors(node: Running) -> list[Collector]:
    """Returns the collectors of the metrics of a running broker."""
    serving, bound, loaded = node.before, node.before.before, node.before.before.before
    opened, start = loaded.before, loaded.before.before
    coordinators = serving.coordinators

    def partitions_max() -> int:
        return start.config.integer("metrics.max.partitions")

    def unclean_elections() -> int:
        is_shared = opened.tree.is_shared  # a single node elects only itself
        return serving.administration.control.elections().unclean_count if is_shared else 0

    broker = BrokerParts(
        node_id=opened.node_id,
        table=loaded.table,
        cluster=lambda: opened.reader.state,
        replicas=loaded.replicas,
        unclean_elections=unclean_elections,
        logs=loaded.logs,
        fetch=bound.native.fetch,
        sessions=bound.sessions,
        commits=loaded.group_commits,
        flush_times=node.flush_times.read,
        partitions_max=partitions_max,
        began_ns=start.began_ns,
    )
    network = NetworkCollector(
        bound.reactor,
        serving.errors,
        lambda: serving.handlers.thread_count,
        lambda: opened.dynamic.integer("queued.max.request.bytes"),
        start.began_ns,
    )
    groups = GroupCollector(
        coordinators.groups, loaded.replicas.high_watermark, partitions_max, start.began_ns
    )
    share_log = coordinators.share_log
    return [
        BrokerCollector(broker),
        groups,
        CleanerCollector(node.cleaner, start.system.monotonic_ns),
        LoginCollector(bound.logins, start.clock.monotonic_ns),
        network,
        PluginCollector(loaded.plugins),
        ProcessCollector(__version__),
        QuotaCollector(serving.quotas.used),
        ReplicationCollector(loaded.replicas, loaded.logs, start.system.monotonic_ns),
        ShareCollector(coordinators.share, share_log.led_partitions, start.began_ns),
    ]
