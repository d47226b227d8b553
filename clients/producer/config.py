"""Settings of the old producer: the names of 0.7 and of 0.8, their defaults and limits.

    0.7                                   0.8
    broker.list (id:host:port,...)        metadata.broker.list (host:port,...)
    zk.connect                            (also zookeeper.connect)
    queue.time                            queue.buffering.max.ms
    queue.size                            queue.buffering.max.messages
    batch.size                            batch.num.messages
    queue.enqueueTimeout.ms               queue.enqueue.timeout.ms
    num.retries                           message.send.max.retries
    buffer.size                           send.buffer.bytes

Values are text, as in a properties file, or Python's types. Two names of one setting must not have
different values. The producer logs an unknown name once, and ignores the names in OBSOLETE, which
no longer have a meaning.

Where the two generations had different defaults, those of 0.8 apply, with one exception:
`request.required.acks` is -1 here (0.8: 0), so that the messages are stored when `send` returns.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.client.cluster import parse_addresses
from barnabas.client.failures import BadAddress, BadSetting
from barnabas.client.security import Security
from barnabas.client.security_settings import FAMILIES, parse_security
from barnabas.clients.producer.failures import InvalidConfig
from barnabas.wire.compression import CODEC_NAMES, CODECS, NONE

log = logging.getLogger("barnabas.clients")

FOREVER = -1  # no limit of retries, or of the wait for a full queue
INT_MAX = 2**31 - 1


class Setting(NamedTuple):
    """Describes a setting that is a whole number with a unit."""

    names: tuple[str, ...]  # the name of 0.8 first
    default: int
    least: int
    most: int = INT_MAX


NUMBERS = {
    "queue_ms": Setting(("queue.buffering.max.ms", "queue.time"), 5000, 0),
    "queue_events_max": Setting(("queue.buffering.max.messages", "queue.size"), 10_000, 1),
    "batch_events": Setting(("batch.num.messages", "batch.size"), 200, 1),
    "enqueue_timeout_ms": Setting(
        ("queue.enqueue.timeout.ms", "queue.enqueueTimeout.ms"), FOREVER, FOREVER
    ),
    "retries_max": Setting(("message.send.max.retries", "num.retries"), 3, FOREVER),
    "retry_backoff_ms": Setting(("retry.backoff.ms",), 100, 0),
    "request_timeout_ms": Setting(("request.timeout.ms", "socket.timeout.ms"), 10_000, 1),
    "connect_timeout_ms": Setting(("connect.timeout.ms",), 5000, 1),
    "refresh_ms": Setting(("topic.metadata.refresh.interval.ms",), 600_000, -1),
    "send_buffer_bytes": Setting(("send.buffer.bytes", "buffer.size"), -1, -1),
    "message_bytes_max": Setting(("max.message.size", "message.max.bytes"), 1_000_000, 1),
    "session_timeout_ms": Setting(
        ("zookeeper.session.timeout.ms", "zk.sessiontimeout.ms"), 6000, 1
    ),
    "zookeeper_timeout_ms": Setting(
        ("zookeeper.connection.timeout.ms", "zk.connectiontimeout.ms"), 6000, 1
    ),
}
TEXTS = {
    "producer_type": (("producer.type",), "sync"),
    "client_id": (("client.id", "clientid"), "barnabas-producer"),
    "compression": (("compression.codec",), "none"),
    "compressed_topics": (("compressed.topics",), ""),
    "acks": (("request.required.acks",), "-1"),
    "brokers": (("metadata.broker.list", "bootstrap.servers"), ""),
    "broker_list": (("broker.list",), ""),
    "zookeeper": (("zookeeper.connect", "zk.connect"), ""),
}
PLUGINS = {
    "serializer": (("serializer.class",), "kafka.serializer.DefaultEncoder"),
    "key_serializer": (("key.serializer.class",), ""),
    "partitioner": (("partitioner.class",), "kafka.producer.DefaultPartitioner"),
    "event_handler": (("event.handler",), ""),
    "callback_handler": (("callback.handler",), ""),
}
OBSOLETE = {
    "reconnect.interval",
    "reconnect.time.interval.ms",
    "zk.synctime.ms",
    "zookeeper.sync.time.ms",
    "zk.read.num.retries",
    "producer.retry.count",
    "callback.handler.props",
    "event.handler.props",
}
ACKS = {"0": 0, "1": 1, "-1": -1, "all": -1}


class ProducerConfig:
    """The checked settings of a producer. The constructor raises InvalidConfig with all
    problems."""

    queue_ms: int
    queue_events_max: int
    batch_events: int
    enqueue_timeout_ms: int
    retries_max: int
    retry_backoff_ms: int
    request_timeout_ms: int
    connect_timeout_ms: int
    refresh_ms: int
    send_buffer_bytes: int
    message_bytes_max: int
    session_timeout_ms: int
    zookeeper_timeout_ms: int
    client_id: str
    zookeeper: str
    serializer: Any
    key_serializer: Any
    partitioner: Any
    event_handler: Any
    callback_handler: Any

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = {name: value for name, value in given.items() if not name.startswith(FAMILIES)}
        self._problems: list[str] = []
        self._known: set[str] = set(OBSOLETE)
        self.security = self._security(given)
        for attribute, row in NUMBERS.items():
            setattr(self, attribute, self._number(row))
        texts = {name: str(self._given(*row)).strip() for name, row in TEXTS.items()}
        self.client_id, self.zookeeper = texts["client_id"], texts["zookeeper"]
        for attribute, (names, default) in PLUGINS.items():
            setattr(self, attribute, self._given(names, default))
        self.is_async = self._is_async(texts["producer_type"])
        self.acks = self._acks(texts["acks"])
        self.codec = self._codec(texts["compression"])
        self.compressed_topics = frozenset(
            part.strip() for part in texts["compressed_topics"].split(",") if part.strip()
        )
        self.broker_list = self._broker_list(texts["brokers"], texts["broker_list"])
        # 0.7 did not know partitions with a static list: keys have no effect, see
        # docs/old-clients.md.
        self.is_random = bool(texts["broker_list"]) and not texts["brokers"]
        self._check_together()
        if self._problems:
            raise InvalidConfig(self._problems)
        self._tell_unknown()

    def codec_of(self, topic: str) -> int:
        """Returns the codec of a topic. With compressed.topics, only the topics there are
        compressed."""
        wanted = not self.compressed_topics or topic in self.compressed_topics
        return self.codec if wanted else NONE

    # -- reading ----------------------------------------------------------------------------------

    def _security(self, given: Mapping[str, Any]) -> Security | None:
        """Parses security.protocol, ssl.* and sasl.*. `given` does not keep these settings, because
        plugins see it. Returns None when they are invalid, and adds the problem."""
        found = {name: str(text) for name, text in given.items() if name.startswith(FAMILIES)}
        try:
            return parse_security(found)
        except BadSetting as error:
            self._problems.append(str(error))
            return None

    def _given(self, names: tuple[str, ...], default: Any) -> Any:
        self._known.update(names)
        found = [name for name in names if self.given.get(name) not in (None, "")]
        values = [self.given[name] for name in found]
        if any(str(value) != str(values[0]) for value in values[1:]):
            self._problems.append(
                f"{' and '.join(found)} are names of one setting: set one of them."
            )
        return values[0] if values else default

    def _number(self, row: Setting) -> int:
        value = self._given(row.names, row.default)
        try:
            number = int(str(value).strip())
        except ValueError:
            self._problems.append(f"{row.names[0]}: {value!r} must be a whole number.")
            return row.default
        if not row.least <= number <= row.most:
            self._problems.append(
                f"{row.names[0]}: {number} must be from {row.least} to {row.most}."
            )
        return number

    def _is_async(self, text: str) -> bool:
        if text not in ("sync", "async"):
            self._problems.append(f"producer.type: {text!r} must be sync or async.")
        return text == "async"

    def _acks(self, text: str) -> int:
        if text not in ACKS:
            self._problems.append(f"request.required.acks: {text!r} must be 0, 1, -1 or all.")
        return ACKS.get(text, -1)

    def _codec(self, text: str) -> int:
        name = CODEC_NAMES.get(int(text), text) if text.isdecimal() else text.lower()
        if name not in CODECS:
            self._problems.append(
                f"compression.codec: {text!r} must be one of {', '.join(CODECS)}, or its number."
            )
        return CODECS.get(name, NONE)

    def _broker_list(self, newer: str, older: str) -> str:
        """Returns HOST:PORT pairs separated by commas, without the ids of 0.7."""
        parts = []
        for part in (newer or older).split(","):
            pieces = part.strip().split(":")
            numbered = len(pieces) == 3 and pieces[0].isdecimal() and not newer
            parts.append(":".join(pieces[1:] if numbered else pieces))
        addresses = ",".join(parts)
        if addresses:
            try:
                parse_addresses(addresses)
            except BadAddress as error:
                setting = "metadata.broker.list" if newer else "broker.list"
                self._problems.append(f"{setting}: {error}.")
        return addresses

    def _check_together(self) -> None:
        if bool(self.broker_list) == bool(self.zookeeper):
            word = "both are" if self.broker_list else "none is"
            self._problems.append(
                "broker.list (or metadata.broker.list) or zk.connect says where the brokers are:"
                f" {word} set, give one."
            )
        partitioner = self.given.get("partitioner.class")
        if self.is_random and partitioner not in (None, "", "kafka.producer.DefaultPartitioner"):
            self._problems.append(
                "partitioner.class has no effect with broker.list, which sends to partitions at"
                " random: use metadata.broker.list or zk.connect."
            )
        if self.message_bytes_max > INT_MAX // 2:
            self._problems.append("max.message.size: no broker accepts messages of this size.")

    def _tell_unknown(self) -> None:
        for name in sorted(self.given.keys() - self._known):
            if not name.startswith("plugin."):
                log.warning("unknown setting %s: it has no effect", name)
