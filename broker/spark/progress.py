"""Calculates a query's lag from its progress events, and commits its offsets to a group.

    from barnabas.spark.progress import GroupCommits, lag

    lag(query.lastProgress)               # {("news", 0): 1200, ...} unread records
    spark.streams.addListener(GroupCommits("127.0.0.1:9092", "nightly", query="to-parquet"))
    GroupCommits("10.0.0.1:9093", "nightly", options={"kafka.security.protocol": "SSL"})

A source commits to `commitOffsetsToGroup` when Spark asks for the next batch, which is at the next
trigger. The listener commits right after each batch, which matters when triggers are far apart. It
works for spark-sql-kafka's sources too.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from barnabas.client import ClientError
from barnabas.client.groups import commit_offsets
from barnabas.errors import KafkaError
from barnabas.spark.offsets import Offsets, kafka_offsets
from barnabas.spark.options import parse_servers

log = logging.getLogger("barnabas.spark")


def _offsets(source: Any, name: str) -> Offsets:
    """Returns the offsets of one source in a progress event, which has them as text or as parsed
    JSON."""
    found = source[name] if isinstance(source, dict) else getattr(source, name)
    text = found if isinstance(found, str) else json.dumps(found)
    return kafka_offsets(text) or {}


def lag(progress: Any) -> dict[tuple[str, int], int]:
    """Returns the number of unread offsets of each partition after a batch, over all sources of the
    query."""
    found: dict[tuple[str, int], int] = {}
    for source in progress["sources"] if isinstance(progress, dict) else progress.sources:
        latest = _offsets(source, "latestOffset")
        for topic, rows in _offsets(source, "endOffset").items():
            for index, offset in rows.items():
                if index in latest.get(topic, {}):
                    found[topic, index] = max(latest[topic][index] - offset, 0)
    return found


class GroupCommits(StreamingQueryListener):
    """Commits the end of each finished batch to a group.

    `query`: the name of a query; None: every query of the session. `options`: connection options
    such as the query's TLS and SASL options. Raises BadOption."""

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        *,
        query: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        named = {"kafka.bootstrap.servers": bootstrap_servers}
        self.servers = parse_servers({**(options or {}), **named})
        self.group, self.query = group, query

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if self.query is not None and progress.name != self.query:
            return
        offsets: Offsets = {}
        for source in progress.sources:
            offsets |= _offsets(source, "endOffset")
        if not offsets:
            return
        try:
            with self.servers.cluster() as cluster:
                commit_offsets(cluster, self.group, offsets)
        except (KafkaError, ClientError) as error:
            log.warning("could not commit the query's offsets to group %s: %s", self.group, error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass
