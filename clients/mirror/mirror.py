"""Mirrors topics of many source clusters into one target cluster.

    mirror = Mirror(MirrorSettings(sources={"east": {"bootstrap.servers": "..."}}, target={...},
                                   topics=Whitelist("orders.*")))
    mirror.start(); mirror.wait(1.0); mirror.stop()

`sources`: name -> settings of a consumer connector (bootstrap.servers or zookeeper.connect, and
group.id, `mirror` by default). `target`: settings of the producer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.client.cluster import Cluster
from barnabas.client.delivery import FOREVER, Batch, Delivery
from barnabas.client.failures import ClientError
from barnabas.clients.consumer.config import consumer_config
from barnabas.clients.consumer.topic_filter import TopicFilter
from barnabas.clients.mirror.flights import Position
from barnabas.clients.mirror.source import MessageHandler, MirrorSource
from barnabas.clients.mirror.target_topics import TargetTopics
from barnabas.clients.producer.config import ProducerConfig
from barnabas.clients.producer.event_sender import EventSender
from barnabas.clients.producer.producer import brokers_of
from barnabas.errors import KafkaError
from barnabas.hooks.direct import ClientPlugins, caller

GROUP = "mirror"
STOP_S = 30.0
MESSAGE_BYTES_MAX = 1 << 29  # the target rejects messages that are too large for it


@dataclass(frozen=True, kw_only=True)
class MirrorSettings:
    """The settings of a mirror. `handler` names a plugin with the hook `handle_mirrored`;
    `partitioner` None keeps the partitions of the sources."""

    sources: Mapping[str, Mapping[str, Any]]
    target: Mapping[str, Any]
    topics: TopicFilter
    partitioner: str | None = None
    handler: Any = None
    plugin_options: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = -1
    commit_interval_ms: int = 1000


class Mirror:
    """Copies topics of all sources. The constructor raises InvalidConfig, CannotLoad and
    ClientError."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings
        self._plugins = ClientPlugins(settings.plugin_options)
        self._handler: MessageHandler | None = None
        if settings.handler is not None:
            plugin = self._plugins.plugin("--message-handler", settings.handler, "handle_mirrored")
            self._handler = caller(plugin, "handle_mirrored")
        self._over = threading.Event()
        self.failure: tuple[str, BaseException] | None = None
        self.sources: list[MirrorSource] = []
        try:
            for name, given in settings.sources.items():
                self.sources.append(self._source(name, given))
        except BaseException:
            self.stop(0)
            raise

    def start(self) -> None:
        """Starts all sources."""
        for source in self.sources:
            source.start()

    def wait(self, timeout_s: float) -> bool:
        """Waits at most `timeout_s` seconds for the failure of a source. Returns whether one has
        failed; `failure` then names the source and the error."""
        return self._over.wait(timeout_s)

    def stop(self, wait_s: float = STOP_S) -> None:
        """Stops reading, waits at most `wait_s` seconds until the target has all messages that were
        read, commits, and leaves the groups."""
        for source in self.sources:
            source.stop(wait_s)
        self._plugins.close()

    def lags(self) -> dict[tuple[str, Position], int]:
        """Returns the lag in messages, by source and partition. Raises ClientError, KafkaError."""
        return {
            (source.name, position): lag
            for source in self.sources
            for position, lag in source.lags().items()
        }

    def is_at_end(self) -> bool:
        """Returns whether the target has everything that the sources held at the first call.
        Reading stops at that point."""
        try:
            return all([source.reaches_ends() for source in self.sources])
        except (ClientError, KafkaError):
            return False

    # -- parts ------------------------------------------------------------------------------------

    def _source(self, name: str, given: Mapping[str, Any]) -> MirrorSource:
        settings = {
            "group.id": GROUP,
            "client.id": f"mirror-{name}",
            "auto.offset.reset": "smallest",
            "topic.metadata.refresh.interval.ms": 5000,
            "fetch.message.max.bytes": 4 * 1024 * 1024,
            **given,
            "auto.commit.enable": "false",
            "consumer.timeout.ms": 20,
            "serializer.class": "bytes",
        }
        checked = consumer_config(settings)
        servers, security = checked.bootstrap_servers, checked.security
        target = self._target_config()

        def cluster(addresses: str) -> Cluster:
            return Cluster(addresses, client_id=f"mirror-{name}", timeout_s=5.0, security=security)

        sources = cluster(servers or self._servers_of_registry(settings))
        return MirrorSource(
            name,
            settings,
            self._settings.topics,
            make_sender=lambda ended: self._sender(target, ended),
            topics=TargetTopics(
                brokers_of(target, lambda: None).cluster,
                sources,
                self._settings.replication_factor,
            ),
            observer=cluster(servers or self._servers_of_registry(settings)),
            handler=self._handler,
            keeps_partitions=self._settings.partitioner is None,
            commit_interval_ms=self._settings.commit_interval_ms,
            failed=self._failed,
        )

    def _servers_of_registry(self, settings: Mapping[str, Any]) -> str:
        from barnabas.clients.producer.zookeeper_brokers import registered

        made = consumer_config(settings)
        return registered(
            made.zookeeper_connect,
            made.zookeeper_session_timeout_ms,
            made.zookeeper_connection_timeout_ms,
            made.security,
        )

    def _target_config(self) -> ProducerConfig:
        partitioner = self._settings.partitioner
        return ProducerConfig(
            {
                "client.id": "mirror",
                "request.timeout.ms": 30_000,
                "max.message.size": MESSAGE_BYTES_MAX,
                "partitioner.class": partitioner or "murmur2",
                **self._settings.target,
                **self._settings.plugin_options,
                "request.required.acks": "-1",
                "message.send.max.retries": FOREVER,
                "serializer.class": "bytes",
                "key.serializer.class": "bytes",
            }
        )

    def _sender(
        self, target: ProducerConfig, ended: Callable[[Batch, Exception | None], None]
    ) -> tuple[EventSender, Delivery]:
        delivery = Delivery(
            brokers_of(target, lambda: None),
            ended,
            acks=target.acks,
            codec_of=target.codec_of,
            retries_max=target.retries_max,
            retry_backoff_ms=target.retry_backoff_ms,
            request_timeout_ms=target.request_timeout_ms,
            send_buffer_bytes=target.send_buffer_bytes,
        )
        return EventSender(target, self._plugins, delivery), delivery

    def _failed(self, source: MirrorSource, error: BaseException) -> None:
        if self.failure is None:
            self.failure = (source.name, error)
        self._over.set()
