"""Options of the data source `barnabas`: names and defaults of spark-sql-kafka, and a few of ours.

| option | values; default |
|---|---|
| kafka.bootstrap.servers | HOST:PORT, several with commas; required |
| subscribe, subscribePattern, assign | one of: topics with commas, a pattern, {"topic":[0,1]} |
| startingOffsets | earliest, latest, {"topic":{"0":5}} (-2 earliest, -1 latest), group (the |
| | committed offsets of kafka.group.id); default of a batch earliest, of a stream latest. A |
| | batch cannot start at latest |
| endingOffsets | latest, or JSON (-1 latest); only for a batch |
| startingTimestamp, endingTimestamp | ms since 1970, for all partitions |
| startingOffsetsByTimestamp, endingOffsetsByTimestamp | {"topic":{"0":ms}} |
| startingOffsetsByTimestampStrategy | error, or latest: when no record is that late |
| failOnDataLoss | true |
| minPartitions, maxRecordsPerPartition | how tasks divide a partition |
| includeHeaders | false |
| maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay (15m) | the size of a micro-batch |
| maxBytesPerTrigger | the same in bytes of the log |
| commitOffsetsToGroup | a group to which a stream commits its offsets |
| kafka.group.id | only for startingOffsets=group; without it, the group of commitOffsetsToGroup |
| isolation, kafka.isolation.level | read_committed, or read_uncommitted |
| segments.dir | the broker's log directories as the tasks see them, with commas |
| source | auto (files where they are on this machine, else Fetch), files, wire |
| batchBytes | the bytes of an Arrow batch, 4 MiB |

Names are not case-sensitive, because Spark passes them in lower case. The `kafka.*` options for TLS
and SASL are in client/security_settings.py. Other `kafka.*` options configure the Java client; this
source ignores them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.client import BadSetting, Cluster
from barnabas.client.security import Security
from barnabas.client.security_settings import parse_security
from barnabas.spark.bad_option import BadOption
from barnabas.spark.offsets import Offsets, parse_offsets

DELAY_MS = 15 * 60 * 1000
BATCH_BYTES = 4 * 1024 * 1024
LATEST_MARK = -1  # in the JSON of offsets
EARLIEST, LATEST, GROUP = "earliest", "latest", "group"
BY_TOPIC = ("subscribe", "subscribepattern", "assign")
OF_BATCHES = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
OF_STREAMS = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "commitOffsetsToGroup",
)
SPAN = re.compile(r"(-?\d+)\s*(us|ms|s|m|min|h|d)?")
SPAN_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
SPAN_MS["d"] = 24 * SPAN_MS["h"]


@dataclass(frozen=True, slots=True)
class Servers:
    """A cluster and the settings of connections to it, in plain values, because Spark pickles it.
    Its repr omits secrets."""

    bootstrap: str
    security: Security | None = None

    def cluster(self, *, was_there: bool = False) -> Cluster:
        """Returns a client. `was_there`: the driver has just reached the brokers."""
        return Cluster(self.bootstrap, security=self.security, patient=was_there)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a source, checked. Times are in ms, sizes in bytes; None: not given."""

    servers: Servers
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None
    start: str | Offsets = EARLIEST
    end: str | Offsets = LATEST
    start_times: int | Offsets | None = None
    end_times: int | Offsets | None = None
    latest_when_too_late: bool = False
    fail_on_data_loss: bool = True
    tasks_min: int | None = None
    records_max: int | None = None
    headers: bool = False
    group_id: str | None = None
    committed: bool = True
    segment_dirs: tuple[str, ...] = ()
    source: str = "auto"
    batch_bytes: int = BATCH_BYTES
    offsets_max: int | None = None  # of a micro-batch, like the next fields
    offsets_min: int | None = None
    bytes_max: int | None = None
    delay_ms: int = DELAY_MS
    commit_group: str | None = None

    @property
    def start_moves(self) -> bool:
        """Whether the same options may mean other offsets at a later time."""
        if self.start_times is not None:
            return self.latest_when_too_late
        if isinstance(self.start, str):
            return self.start != EARLIEST
        return LATEST_MARK in (at for rows in self.start.values() for at in rows.values())


def parse_servers(given: Mapping[str, str]) -> Servers:
    """Returns the brokers and the settings of connections in the options. Raises BadOption."""
    low = {name.lower(): value for name, value in given.items()}
    servers = low.get("kafka.bootstrap.servers")
    if not servers:
        raise BadOption("kafka.bootstrap.servers is needed: HOST:PORT of a broker")
    try:
        return Servers(servers, parse_security(low, "kafka."))
    except BadSetting as error:
        raise BadOption(str(error)) from None


def wants_headers(given: Mapping[str, str]) -> bool:
    """Returns the value of includeHeaders. Raises BadOption."""
    return _flag({name.lower(): value for name, value in given.items()}, "includeHeaders", False)


def parse_options(given: Mapping[str, str], *, stream: bool = False) -> SourceOptions:
    """Returns the options of a batch, or with `stream` those of a stream. Raises BadOption."""
    low = {name.lower(): value for name, value in given.items()}
    servers = parse_servers(low)
    if sum(name in low for name in BY_TOPIC) != 1:
        raise BadOption("give exactly one of subscribe, subscribePattern and assign")
    for name in OF_BATCHES if stream else OF_STREAMS:
        if name.lower() in low:
            raise BadOption(f"{name} is an option of {'batches' if stream else 'streams'} only")
    offsets_max, offsets_min = (
        _count(low, "maxOffsetsPerTrigger"),
        _count(low, "minOffsetsPerTrigger"),
    )
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise BadOption(
            f"minOffsetsPerTrigger {offsets_min} is above maxOffsetsPerTrigger {offsets_max}"
        )
    starts = (LATEST, EARLIEST, GROUP) if stream else (EARLIEST, GROUP)
    isolation = low.get("isolation", low.get("kafka.isolation.level", "read_committed"))
    source = low.get("source", "auto")
    return SourceOptions(
        servers=servers,
        topics=_words(low.get("subscribe", "")),
        pattern=low.get("subscribepattern"),
        assigned=_assigned(low.get("assign")),
        start=_place(low, "startingOffsets", starts),
        end=_place(low, "endingOffsets", (LATEST,)),
        start_times=_times(low, "starting"),
        end_times=_times(low, "ending"),
        latest_when_too_late=_one_of(
            low.get("startingoffsetsbytimestampstrategy", "error"),
            "startingOffsetsByTimestampStrategy",
            ("error", "latest"),
        )
        == "latest",
        fail_on_data_loss=_flag(low, "failOnDataLoss", True),
        tasks_min=_count(low, "minPartitions"),
        records_max=_count(low, "maxRecordsPerPartition"),
        headers=_flag(low, "includeHeaders", False),
        group_id=low.get("kafka.group.id", low.get("commitoffsetstogroup")),
        committed=_one_of(isolation, "isolation", ("read_committed", "read_uncommitted"))
        == "read_committed",
        segment_dirs=_words(low.get("segments.dir", "")),
        source=_one_of(source, "source", ("auto", "files", "wire")),
        batch_bytes=_count(low, "batchBytes") or BATCH_BYTES,
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        bytes_max=_count(low, "maxBytesPerTrigger"),
        delay_ms=_span_ms(low, "maxTriggerDelay", DELAY_MS),
        commit_group=low.get("commitoffsetstogroup"),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _one_of(value: str, name: str, known: tuple[str, ...]) -> str:
    if value.lower() not in known:
        raise BadOption(f"{name} must be one of {', '.join(known)}, not {value!r}")
    return value.lower()


def _flag(low: Mapping[str, str], name: str, default: bool) -> bool:
    value = low.get(name.lower(), str(default))
    return _one_of(value, name, ("true", "false")) == "true"


def _count(low: Mapping[str, str], name: str) -> int | None:
    text = low.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise BadOption(f"{name} must be a number above 0, not {text!r}")
    return int(text)


def _span_ms(low: Mapping[str, str], name: str, default: int) -> int:
    text = low.get(name.lower())
    if text is None:
        return default
    found = SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise BadOption(f"{name} must be a number with us, ms, s, m, h or d, not {text!r}")
    return int(int(found[1]) * SPAN_MS[found[2] or "ms"])


def _offsets(name: str, text: str) -> Offsets:
    try:
        return parse_offsets(text)
    except ValueError as error:
        raise BadOption(f'{name} must be JSON like {{"topic":{{"0":5}}}}: {error}') from None


def _place(low: Mapping[str, str], name: str, words: tuple[str, ...]) -> str | Offsets:
    text = low.get(name.lower(), words[0]).strip()
    if text.lower() in words:
        return text.lower()
    if not text.startswith("{"):
        kind = "stream" if LATEST in words and EARLIEST in words else "batch"
        raise BadOption(f"{name} of a {kind} must be {', '.join(words)} or JSON, not {text!r}")
    return _offsets(name, text)


def _times(low: Mapping[str, str], which: str) -> int | Offsets | None:
    alone = low.get(f"{which}timestamp")
    if alone is not None:
        if not alone.isdecimal():
            raise BadOption(f"{which}Timestamp must be ms since 1970, not {alone!r}")
        return int(alone)
    by_partition = low.get(f"{which}offsetsbytimestamp")
    return None if by_partition is None else _offsets(f"{which}OffsetsByTimestamp", by_partition)


def _assigned(text: str | None) -> dict[str, tuple[int, ...]] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
        return {topic: tuple(int(index) for index in rows) for topic, rows in found.items()}
    except (ValueError, TypeError, AttributeError):
        raise BadOption(f'assign must be JSON like {{"topic":[0,1]}}, not {text!r}') from None
