"""A Delta table as a load sees it, through Delta's connector (io.delta:delta-spark) in Spark's JVM.

Columns are those of the parquet files, and `date` and `hour` of the records' timestamps, which
partition a table that a load makes. A load's commit carries, in Delta's own fields:

    txn             appId: the query's id, version: the batch. Delta ignores a commit whose version
                    the table has already seen for that appId
    userMetadata    {"barnabas": {"query", "batch", "run", "app", "topic", "topicId", "plannedMs",
                    "partitions": {"0": {"start", "end"}}}}: offsets, in the commit of their data

Delta writes and reads the rows. This module reads marks and files of a commit from _delta_log,
whose format is public: VERSION.json has an action on each line (commitInfo, txn, add, ...).

RESTORE removes rows and keeps txn versions, so Delta would ignore a batch that is loaded again.
Therefore the appId after a RESTORE is the query's id, `+` and the version of the table that the
RESTORE made. Commits after the restored version do not count.
"""

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.spark.failures import CheckpointError, TruncatedFile
from barnabas.spark.load.layout import DELTA_LOG, Count, DataFile, hour_of
from barnabas.spark.store import Files

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
EXTENSIONS_NAME, CATALOG_NAME = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
WRITERS_NAME = "spark.sql.maxConcurrentOutputFileWriters"
WRITERS_MAX = 16  # open files in a task; with more hours it sorts its rows
MARK, VERSION = "barnabas", 1
RESTORE = "RESTORE"  # Delta's name of that operation
NO_CONNECTOR = (
    "--format delta needs Delta's connector, which this Spark does not have: add --conf"
    f" spark.jars.packages={PACKAGE} (from Maven Central), or its jars as --conf spark.jars=JAR,JAR"
)
BODY_BYTES = """
    coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + coalesce(aggregate(headers,
    0L, (sum, h) -> sum + coalesce(octet_length(h.key), 0) + coalesce(octet_length(h.value), 0)), 0)
"""


class NoConnector(Exception):
    """Spark has no Delta; `str` gives one plain line."""


def delta_conf(conf: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of a session with Delta; settings in `conf` take precedence."""
    given = [name for name in conf.get(EXTENSIONS_NAME, "").split(",") if name]
    extensions = given if EXTENSION in given else [*given, EXTENSION]
    own = {CATALOG_NAME: CATALOG, WRITERS_NAME: str(WRITERS_MAX)}
    return own | dict(conf) | {EXTENSIONS_NAME: ",".join(extensions)}


def check_connector(session: Any) -> None:
    """Raises NoConnector when Spark has no Delta."""
    if not session._jvm.org.apache.spark.util.Utils.classIsLoadable(EXTENSION):
        raise NoConnector(NO_CONNECTOR)


def spark_url(url: str) -> str:
    """Returns the URL of a place for Spark, which does not depend on Spark's default file
    system."""
    if url.startswith("s3://"):
        return "s3a://" + url.removeprefix("s3://")
    return url if ":" in url.partition("/")[0] else f"file://{url}"


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark in a load's commit."""

    version: int  # of the table
    query_id: str
    batch_id: int
    run_id: str
    app_id: str
    ends: Mapping[int, tuple[int, int]]  # partition: start, end


@dataclass(frozen=True, slots=True)
class State:
    """The state of a table. `newest`: the mark of the newest valid load. `restored`: the version of
    a RESTORE after it."""

    newest: Mark | None = None
    restored: int | None = None

    def app_id(self, query_id: str) -> str:
        """Returns the appId of the next commit."""
        if self.restored is not None:
            return f"{query_id}+{self.restored}"
        return self.newest.app_id if self.newest else query_id


def read_mark(version: int, text: str | None) -> Mark | None:
    """Returns the mark in a commit's userMetadata; None when the commit is not a load's."""
    try:
        row = json.loads(text or "null")[MARK]
        return Mark(
            version=version,
            query_id=row["query"],
            batch_id=row["batch"],
            run_id=row["run"],
            app_id=row["app"],
            ends={int(i): (at["start"], at["end"]) for i, at in row["partitions"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class DeltaTable:
    """The table of one topic. Raises CheckpointError, OSError, and Spark's errors."""

    def __init__(self, session: Any, files: Files, to: str, topic: str) -> None:
        self._session, self._files, self._log = session, files, f"{topic}/{DELTA_LOG}"
        self.url = f"{spark_url(to)}/{topic}"

    @property
    def is_there(self) -> bool:
        """Whether the table exists."""
        return bool(self._versions())

    def state(self) -> State:
        """Reads the state of the table from its newest commits."""
        restored = None
        for version, info in self._counting():
            if info.get("operation") == RESTORE:
                restored = version if restored is None else restored
            elif mark := read_mark(version, info.get("userMetadata")):
                return State(mark, restored)
        return State(None, restored)

    def version_before(self, query_id: str, batch_id: int) -> int | None:
        """Returns the last version before this batch; None when there is none."""
        first = 0
        for version, info in self._counting():
            mark = read_mark(version, info.get("userMetadata"))
            if mark and mark.query_id == query_id and mark.batch_id >= batch_id:
                first = version
        return first - 1 if first else None

    def added(self, version: int) -> list[DataFile]:
        """Returns the files of a commit; the record count is -1 where Delta collects no
        statistics."""
        found = []
        for file in self._actions(version, "add"):
            records = json.loads(file.get("stats") or "{}").get("numRecords", -1)
            hour = _hour(file["partitionValues"])
            found.append(DataFile(file["path"], hour, records, file["size"]))
        return found

    def recount(
        self, version: int, files: Sequence[DataFile]
    ) -> dict[tuple[int | None, int], Count]:
        """Counts the rows of these files in that version of the table, by hour and partition."""
        from pyspark.sql.functions import col, expr

        frame = self._session.read.format("delta").option("versionAsOf", version).load(self.url)
        names = [posixpath.basename(file.name) for file in files]
        rows = (
            frame.where(col("_metadata.file_name").isin(names))
            .groupBy("date", "hour", "partition")
            .agg(expr("count(*)").alias("records"), expr(f"sum({BODY_BYTES})").alias("bytes"))
            .collect()
        )
        return {
            (_hour(row.asDict()), row["partition"]): Count(row["records"], row["bytes"])
            for row in rows
        }

    # ------------------------------------------------------------------------------ the log

    def _versions(self) -> list[int]:
        """Returns the versions that _delta_log has as JSON, the newest first."""
        names = (name.removesuffix(".json") for name in self._files.names(self._log))
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def _counting(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yields the commitInfo of the commits that no RESTORE undid, the newest first."""
        version_max: int | None = None
        for version in self._versions():
            if version_max is None or version <= version_max:
                info: Mapping[str, Any] = next(self._actions(version, "commitInfo"), {})
                yield version, info
                if info.get("operation") == RESTORE:
                    version_max = self._restored_to(version, info)

    def _restored_to(self, version: int, info: Mapping[str, Any]) -> int:
        found = info.get("operationParameters", {}).get("version")
        if found is None:
            shown = self._files.shown(self._path(version))
            reason = "a RESTORE by time does not show which batches are left: RESTORE by version"
            raise CheckpointError(shown, reason)
        return int(found)

    def _path(self, version: int) -> str:
        return f"{self._log}/{version:020d}.json"

    def _actions(self, version: int, kind: str) -> Iterator[dict[str, Any]]:
        path = self._path(version)
        try:
            for line in self._files.read(path).splitlines():
                action = json.loads(line)
                if kind in action:
                    yield action[kind]
        except (ValueError, TypeError) as error:
            raise TruncatedFile(
                self._files.shown(path), f"not a commit of Delta: {error}"
            ) from None


def _hour(values: Mapping[str, Any]) -> int | None:
    """Returns the hours since 1970, from the table's columns `date` and `hour`; None without
    them."""
    date, hour = values.get("date"), values.get("hour")
    return None if date is None or hour is None else hour_of(f"{date}T{int(hour):02d}")
