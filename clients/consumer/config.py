"""The settings of a ConsumerConnector, under the names of Kafka 0.8 and of 0.7.

A setting is a field of ConsumerConfig: its type, its default, and its names, the newest first.
Values may be text, as in a properties file, or Python's own. An unknown name causes a warning and
has no effect, as in Kafka; an invalid value raises InvalidConfig with one line.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from barnabas.client.cluster import parse_addresses
from barnabas.client.failures import BadAddress, BadSetting
from barnabas.client.security import Security
from barnabas.client.security_settings import FAMILIES, parse_security
from barnabas.clients.failures import InvalidConfig
from barnabas.hooks.options import PREFIX

log = logging.getLogger(__name__)

SMALLEST, LARGEST = "smallest", "largest"
ZOOKEEPER, KAFKA = "zookeeper", "kafka"
RANGE = "range"
INT_MAX = 2**31 - 1
# The names of these values in current consumers.
SAME_WORDS = {"earliest": SMALLEST, "latest": LARGEST}


def _setting(
    *names: str, default: Any = None, low: int | None = None, words: tuple[str, ...] = ()
) -> Any:
    return field(default=default, metadata={"names": names, "low": low, "words": words})


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerConfig:
    """The settings of a connector. `consumer_config` creates it and adds the defaults that depend
    on other settings."""

    group_id: str = _setting("group.id", "groupid", default="")
    consumer_id: str = _setting("consumer.id", "consumerid", default="")
    client_id: str = _setting("client.id", default="")  # default: the name of the group
    zookeeper_connect: str = _setting("zookeeper.connect", "zk.connect", default="")
    bootstrap_servers: str = _setting(
        "bootstrap.servers", "metadata.broker.list", "broker.list", default=""
    )
    socket_timeout_ms: int = _setting("socket.timeout.ms", default=30_000, low=1)
    socket_receive_buffer_bytes: int = _setting(
        "socket.receive.buffer.bytes", "socket.buffersize", default=64 * 1024, low=0
    )
    fetch_message_max_bytes: int = _setting(
        "fetch.message.max.bytes", "fetch.size", default=1024 * 1024, low=1
    )
    num_consumer_fetchers: int = _setting("num.consumer.fetchers", default=1, low=1)
    fetch_min_bytes: int = _setting("fetch.min.bytes", default=1, low=0)
    fetch_wait_max_ms: int = _setting("fetch.wait.max.ms", default=100, low=0)
    queued_max_message_chunks: int = _setting(
        "queued.max.message.chunks", "queuedchunks.max", default=2, low=1
    )
    refresh_leader_backoff_ms: int = _setting(
        "refresh.leader.backoff.ms", "backoff.increment.ms", default=200, low=0
    )
    topic_refresh_ms: int = _setting(
        "topic.metadata.refresh.interval.ms", "metadata.max.age.ms", default=300_000, low=1
    )
    auto_commit_enable: bool = _setting("auto.commit.enable", "autocommit.enable", default=True)
    auto_commit_interval_ms: int = _setting(
        "auto.commit.interval.ms", "autocommit.interval.ms", default=60_000, low=1
    )
    auto_offset_reset: str = _setting(
        "auto.offset.reset", "autooffset.reset", default=LARGEST, words=(SMALLEST, LARGEST)
    )
    consumer_timeout_ms: int = _setting("consumer.timeout.ms", default=-1, low=-1)
    exclude_internal_topics: bool = _setting("exclude.internal.topics", default=True)
    partition_assignment_strategy: str = _setting(
        "partition.assignment.strategy", default=RANGE, words=(RANGE,)
    )
    rebalance_max_retries: int = _setting(
        "rebalance.max.retries", "rebalance.retries.max", default=4, low=1
    )
    # Default: the sync time.
    rebalance_backoff_ms: int = _setting("rebalance.backoff.ms", default=-1, low=0)
    offsets_storage: str = _setting("offsets.storage", default="", words=(ZOOKEEPER, KAFKA))
    # Default: true with Kafka.
    dual_commit_enabled: bool = _setting("dual.commit.enabled", default=None)
    offsets_channel_backoff_ms: int = _setting("offsets.channel.backoff.ms", default=1000, low=0)
    offsets_channel_socket_timeout_ms: int = _setting(
        "offsets.channel.socket.timeout.ms", default=10_000, low=1
    )
    offsets_commit_max_retries: int = _setting("offsets.commit.max.retries", default=5, low=0)
    zookeeper_session_timeout_ms: int = _setting(
        "zookeeper.session.timeout.ms", "zk.sessiontimeout.ms", default=6000, low=1
    )
    zookeeper_connection_timeout_ms: int = _setting(  # default: the session timeout
        "zookeeper.connection.timeout.ms", "zk.connectiontimeout.ms", default=-1, low=1
    )
    zookeeper_sync_time_ms: int = _setting(
        "zookeeper.sync.time.ms", "zk.synctime.ms", default=2000, low=0
    )
    # For membership at the group's coordinator, without ZooKeeper.
    session_timeout_ms: int = _setting("session.timeout.ms", default=10_000, low=1)
    heartbeat_interval_ms: int = _setting("heartbeat.interval.ms", default=3000, low=1)
    # Decoder plugins of streams for which the caller passes no decoder (decoders.py).
    serializer_class: str = _setting("serializer.class", default="bytes")
    # Default: serializer.class.
    key_serializer_class: str = _setting("key.serializer.class", default="")
    # Options of plugins, plugin.NAME.key, without a check.
    plugin_options: Mapping[str, str] = field(default_factory=dict, metadata={"names": ()})
    # The value of security.protocol, ssl.* and sasl.*, which have the names of current clients.
    security: Security | None = field(default=None, metadata={"names": ()})

    @property
    def has_zookeeper(self) -> bool:
        return bool(self.zookeeper_connect)


def consumer_config(properties: Mapping[str, Any]) -> ConsumerConfig:
    """Returns the checked settings. Raises InvalidConfig with one line for each problem."""
    given = {str(name): value for name, value in properties.items() if value is not None}
    options = {name: str(given.pop(name)) for name in list(given) if name.startswith(PREFIX)}
    protection = {name: str(given.pop(name)) for name in list(given) if name.startswith(FAMILIES)}
    try:
        security = parse_security(protection)
    except BadSetting as error:
        raise InvalidConfig([str(error)]) from None
    values: dict[str, Any] = {"plugin_options": options, "security": security}
    for row in fields(ConsumerConfig):
        names = [name for name in row.metadata["names"] if name in given]
        found = {_value(row, name, given.pop(name)) for name in names}
        if len(found) > 1:
            raise InvalidConfig(
                [f"{' and '.join(names)} are names of one setting and have different values"]
            )
        if found:
            values[row.name] = found.pop()
    for name in sorted(given):
        log.warning("unknown setting %s: it has no effect", name)
    return _completed(values)


def _completed(values: dict[str, Any]) -> ConsumerConfig:
    """Adds the defaults that depend on other settings. Raises InvalidConfig."""
    made = ConsumerConfig(**values)
    if not made.group_id or "/" in made.group_id:
        raise InvalidConfig(["group.id must be set and must not contain a /"])
    if not made.zookeeper_connect and not made.bootstrap_servers:
        raise InvalidConfig(["set zookeeper.connect or bootstrap.servers"])
    if made.offsets_storage == ZOOKEEPER and not made.has_zookeeper:
        raise InvalidConfig(["offsets.storage=zookeeper needs zookeeper.connect"])
    if made.dual_commit_enabled and not made.has_zookeeper:
        raise InvalidConfig(["dual.commit.enabled=true needs zookeeper.connect"])
    if made.heartbeat_interval_ms >= made.session_timeout_ms:
        raise InvalidConfig(["heartbeat.interval.ms must be less than session.timeout.ms"])
    storage = made.offsets_storage or (ZOOKEEPER if made.has_zookeeper else KAFKA)
    follows: dict[str, Any] = {
        "client_id": made.group_id,
        "offsets_storage": storage,
        "dual_commit_enabled": storage == KAFKA and made.has_zookeeper,
        "rebalance_backoff_ms": made.zookeeper_sync_time_ms,
        "zookeeper_connection_timeout_ms": made.zookeeper_session_timeout_ms,
        "key_serializer_class": made.serializer_class,
    }
    return ConsumerConfig(**(follows | {k: v for k, v in values.items() if v != ""}))


def _value(row: Any, name: str, value: Any) -> Any:
    text = str(value).strip()
    if row.name == "bootstrap_servers":
        return _addresses(name, text)
    if row.type == "bool":
        if text.lower() not in ("true", "false"):
            raise InvalidConfig([f"{name}={text} must be true or false"])
        return text.lower() == "true"
    if row.type == "int":
        try:
            number = int(text)
        except ValueError:
            raise InvalidConfig([f"{name}={text} must be a whole number"]) from None
        if not row.metadata["low"] <= number <= INT_MAX:
            raise InvalidConfig(
                [f"{name}={number} must be from {row.metadata['low']} to {INT_MAX}"]
            )
        return number
    words = row.metadata["words"]
    if words and (text := SAME_WORDS.get(text.lower(), text.lower())) not in words:
        raise InvalidConfig([f"{name}={text} must be one of {', '.join(words)}"])
    return text


def _addresses(name: str, text: str) -> str:
    """Returns HOST:PORT pairs, separated by commas; Kafka 0.7 wrote ID:HOST:PORT."""
    places = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, _, rest = part.partition(":")
        places.append(rest if first.isdecimal() and rest.count(":") == 1 else part)
    found = ",".join(places)
    try:
        parse_addresses(found)
    except BadAddress as error:
        raise InvalidConfig([f"{name}: {error}"]) from error
    return found
