"""Options of the data source `barnabas`: names and defaults of spark-sql-kafka, and a few of ours.

| option | values; without it |
|---|---|
| kafka.bootstrap.servers | HOST:PORT, several with commas; needed |
| subscribe, subscribePattern, assign | one of: topics with commas, a pattern, {"topic":[0,1]} |
| startingOffsets | earliest, {"topic":{"0":5}} (-2 earliest), group (where kafka.group.id stands) |
| endingOffsets | latest, or JSON (-1 latest) |
| startingTimestamp, endingTimestamp | ms since 1970, for all partitions |
| startingOffsetsByTimestamp, endingOffsetsByTimestamp | {"topic":{"0":ms}} |
| startingOffsetsByTimestampStrategy | error, or latest: when no record is so late |
| failOnDataLoss | true |
| minPartitions, maxRecordsPerPartition | how a partition is cut among tasks |
| includeHeaders | false |
| kafka.group.id | for startingOffsets=group alone |
| isolation, kafka.isolation.level | read_committed, or read_uncommitted |
| segments.dir | where the broker's log directories are seen by the tasks, with commas |
| source | auto (files where they are here, else Fetch), files, wire |
| batchBytes | of an Arrow batch, 4 MiB |

Names are compared without regard to case, because Spark hands them over in lower case. An option
that asks for a protection which this reader does not have is refused, other `kafka.*` options are
the Java client's own affairs and are passed over.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.spark.offsets import Offsets, parse_offsets

BATCH_BYTES = 4 * 1024 * 1024
EARLIEST, LATEST, GROUP = "earliest", "latest", "group"
BY_TOPIC = ("subscribe", "subscribepattern", "assign")


class BadOption(ValueError):
    """An option that is missing, contradicts another, or has a value that it cannot have."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap_servers: str
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


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises BadOption."""
    low = {name.lower(): value for name, value in given.items()}
    protocol = low.get("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise BadOption(f"kafka.security.protocol {protocol} is not served: only PLAINTEXT is")
    servers = low.get("kafka.bootstrap.servers")
    if not servers:
        raise BadOption("kafka.bootstrap.servers is needed: HOST:PORT of a broker")
    if sum(name in low for name in BY_TOPIC) != 1:
        raise BadOption("give exactly one of subscribe, subscribePattern and assign")
    isolation = low.get("isolation", low.get("kafka.isolation.level", "read_committed"))
    source = low.get("source", "auto")
    return SourceOptions(
        bootstrap_servers=servers,
        topics=_words(low.get("subscribe", "")),
        pattern=low.get("subscribepattern"),
        assigned=_assigned(low.get("assign")),
        start=_place(low, "startingOffsets", (EARLIEST, GROUP)),
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
        group_id=low.get("kafka.group.id"),
        committed=_one_of(isolation, "isolation", ("read_committed", "read_uncommitted"))
        == "read_committed",
        segment_dirs=_words(low.get("segments.dir", "")),
        source=_one_of(source, "source", ("auto", "files", "wire")),
        batch_bytes=_count(low, "batchBytes") or BATCH_BYTES,
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _one_of(value: str, name: str, known: tuple[str, ...]) -> str:
    if value.lower() not in known:
        raise BadOption(f"{name} is one of {', '.join(known)}, not {value!r}")
    return value.lower()


def _flag(low: Mapping[str, str], name: str, default: bool) -> bool:
    value = low.get(name.lower(), str(default))
    return _one_of(value, name, ("true", "false")) == "true"


def _count(low: Mapping[str, str], name: str) -> int | None:
    text = low.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise BadOption(f"{name} is a number above 0, not {text!r}")
    return int(text)


def _offsets(name: str, text: str) -> Offsets:
    try:
        return parse_offsets(text)
    except ValueError as error:
        raise BadOption(f'{name} is JSON like {{"topic":{{"0":5}}}}: {error}') from None


def _place(low: Mapping[str, str], name: str, words: tuple[str, ...]) -> str | Offsets:
    text = low.get(name.lower(), words[0]).strip()
    if text.lower() in words:
        return text.lower()
    if not text.startswith("{"):
        raise BadOption(f"{name} of a batch is {', '.join(words)} or JSON, not {text!r}")
    return _offsets(name, text)


def _times(low: Mapping[str, str], which: str) -> int | Offsets | None:
    alone = low.get(f"{which}timestamp")
    if alone is not None:
        if not alone.isdecimal():
            raise BadOption(f"{which}Timestamp is ms since 1970, not {alone!r}")
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
        raise BadOption(f'assign is JSON like {{"topic":[0,1]}}, not {text!r}') from None
