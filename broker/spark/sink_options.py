"""Options of the sink `barnabas`: spark-sql-kafka's names, and a few of ours.

| option | values; default |
|---|---|
| kafka.bootstrap.servers | HOST:PORT, several with commas; required |
| topic | the topic of all rows; it takes precedence over a column `topic` |
| kafka.transaction.timeout.ms | 900000, the largest value that brokers accept by default |
| batchLimitMs | 600000: the time until a batch is decided; less than the transaction timeout |
| ledgerTopic | __barnabas_sink: the compacted topic with the decisions |
| failOnLostRows | true; false: goes on after decided transactions that timed out |
| kafka.compression.type | none, gzip, snappy, lz4, zstd |
| kafka.batch.size | bytes of a partition's batch before compression, 524288 |
| kafka.delivery.timeout.ms | 60000: the time for retries of one request |
| serializer.class, key.serializer.class | an encoder plugin for any type of value or key |
| partitioner.class | a partitioner plugin; without it murmur2 of the key, as Java's producer |
| plugin.NAME.OPTION | an option of such a plugin |
| kafka.security.protocol, kafka.ssl.*, kafka.sasl.* | TLS and SASL: client/security_settings.py |

Names are not case-sensitive. The sink refuses options that would break exactly-once delivery, or
that it decides itself. Other `kafka.*` options configure the Java client; the sink ignores them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from barnabas.client import Cluster
from barnabas.spark.options import BadOption, Servers, parse_servers
from barnabas.wire.compression import CODECS

LEDGER = "__barnabas_sink"
TIMEOUT_MS, BATCH_LIMIT_MS, DELIVERY_MS = 900_000, 600_000, 60_000
BATCH_BYTES = 512 * 1024
VALUE_ENCODER, KEY_ENCODER = "serializer.class", "key.serializer.class"
PARTITIONER = "partitioner.class"
REFUSED = {
    "kafka.transactional.id": "the sink names its transactional ids itself",
    "kafka.key.serializer": f"{KEY_ENCODER} names an encoder",
    "kafka.value.serializer": f"{VALUE_ENCODER} names an encoder",
    "kafka.partitioner.class": f"{PARTITIONER} names a partitioner",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of the sink. Times are in ms, sizes in bytes."""

    servers: Servers
    topic: str | None = None
    transaction_timeout_ms: int = TIMEOUT_MS
    batch_limit_ms: int = BATCH_LIMIT_MS
    ledger: str = LEDGER
    fail_on_lost_rows: bool = True
    codec: str = "none"
    batch_bytes: int = BATCH_BYTES
    delivery_ms: int = DELIVERY_MS
    plugins: Mapping[str, str] = field(default_factory=dict)  # by the setting that names them
    plugin_options: Mapping[str, str] = field(default_factory=dict)

    def cluster(self, timeout_ms: int | None = None) -> Cluster:
        """Returns a client that retries for at most delivery_ms, and at most `timeout_ms`, when
        brokers are unreachable."""
        limit_ms = self.delivery_ms if timeout_ms is None else min(timeout_ms, self.delivery_ms)
        return Cluster(
            self.servers.bootstrap,
            client_id="barnabas-sink",
            timeout_s=limit_ms / 1000,
            patient=True,
            security=self.servers.security,
        )


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Returns the options. Raises BadOption."""
    low = {name.lower(): value for name, value in given.items()}
    for name, why in REFUSED.items():
        if name in low:
            raise BadOption(f"{name} cannot be set: {why}")
    if low.get("kafka.acks", "all") not in ("all", "-1"):
        raise BadOption("kafka.acks must be all: the sink writes in transactions")
    if low.get("kafka.enable.idempotence", "true").lower() != "true":
        raise BadOption("kafka.enable.idempotence must be true: the sink writes in transactions")
    codec = low.get("kafka.compression.type", "none").lower()
    if codec not in CODECS:
        raise BadOption(f"kafka.compression.type must be one of {', '.join(CODECS)}, not {codec!r}")
    lost = low.get("failonlostrows", "true").lower()
    if lost not in ("true", "false"):
        raise BadOption(f"failOnLostRows must be true or false, not {lost!r}")
    plugins = {name: low[name] for name in (VALUE_ENCODER, KEY_ENCODER, PARTITIONER) if name in low}
    found = SinkOptions(
        servers=parse_servers(low),
        topic=low.get("topic"),
        transaction_timeout_ms=_count(low, "kafka.transaction.timeout.ms", TIMEOUT_MS),
        batch_limit_ms=_count(low, "batchLimitMs", 0),
        ledger=low.get("ledgertopic", LEDGER),
        fail_on_lost_rows=lost == "true",
        codec=codec,
        batch_bytes=_count(low, "kafka.batch.size", BATCH_BYTES),
        delivery_ms=_count(low, "kafka.delivery.timeout.ms", DELIVERY_MS),
        plugins=plugins,
        plugin_options=_plugin_options(low, plugins.values()),
    )
    return _with_limit(found)


def _with_limit(options: SinkOptions) -> SinkOptions:
    """Returns the options with the time limit of a batch; its default is two thirds of the
    transaction timeout. Raises BadOption."""
    timeout_ms = options.transaction_timeout_ms
    if options.batch_limit_ms >= timeout_ms:
        raise BadOption(
            f"batchLimitMs={options.batch_limit_ms} is not below kafka.transaction.timeout.ms="
            f"{timeout_ms}: the broker would abort what a batch has written before it is decided"
        )
    if options.batch_limit_ms:
        return options
    return replace(options, batch_limit_ms=max(1, timeout_ms * 2 // 3))


def _plugin_options(low: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Returns the options of plugins with the plugin's own name: Spark passes option names in lower
    case, but names of plugins may have capitals."""
    found = {}
    for name in (name.rpartition(":")[2] for name in names):
        start = f"plugin.{name.lower()}."
        for key, value in low.items():
            if key.startswith(start):
                found[f"plugin.{name}.{key[len(start) :]}"] = value
    return found


def _count(low: Mapping[str, str], name: str, default: int) -> int:
    text = low.get(name.lower())
    if text is None:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise BadOption(f"{name} must be a number above 0, not {text!r}")
    return int(text)
