"""The metrics of a running mirror, for its /metrics page."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from barnabas.client.failures import ClientError
from barnabas.clients.mirror.flights import Position
from barnabas.clients.mirror.mirror import Mirror
from barnabas.errors import KafkaError
from barnabas.telemetry.registry import COUNTER, GAUGE, Family, Metric, Page

RECORDS = Metric(
    "barnabas_mirror_records_total",
    COUNTER,
    ("source", "topic"),
    "records that the target has acknowledged, by topic of the target",
)
BYTES = Metric(
    "barnabas_mirror_bytes_total",
    COUNTER,
    ("source", "topic"),
    "bytes of these records, before compression",
)
LAG = Metric(
    "barnabas_mirror_lag_records",
    GAUGE,
    ("source", "topic", "partition"),
    "records of the source that the mirror has not read yet",
)
COMMITTED = Metric(
    "barnabas_mirror_committed_offset",
    GAUGE,
    ("source", "topic", "partition"),
    "committed offset in the source: the target has all records before it",
)
PENDING = Metric(
    "barnabas_mirror_pending_bytes",
    GAUGE,
    ("source",),
    "bytes that were read and that the target has not acknowledged yet",
)
RETRIES = Metric(
    "barnabas_mirror_retries_total", COUNTER, ("source",), "batches that had to be sent again"
)
METRICS = (RECORDS, BYTES, LAG, COMMITTED, PENDING, RETRIES)


class MirrorMetrics:
    """The metrics of one mirror. `look` reads the lag of the sources; the page shows the last
    values."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._lock = threading.Lock()
        self._lags: dict[tuple[str, Position], int] = {}
        self.problem = "no source was reached so far"

    def look(self) -> None:
        try:
            found = self._mirror.lags()
            problem = ""
        except (ClientError, KafkaError) as error:
            found, problem = {}, f"a source cannot be asked: {error}"
        with self._lock:
            self.problem = problem
            if not problem:
                self._lags = found

    @property
    def lag(self) -> int:
        with self._lock:
            return sum(self._lags.values())

    def collect(self, page: Page) -> Iterable[Family]:
        sources = self._mirror.sources
        with self._lock:
            lags = list(self._lags.items())
        for metric, attribute in ((RECORDS, "records"), (BYTES, "size_bytes")):
            yield (
                metric,
                [
                    (page.labels(source=source.name, topic=topic), float(count))
                    for source in sources
                    for topic, count in list(getattr(source, attribute).items())
                ],
            )
        yield (
            LAG,
            [
                (page.labels(source=name, topic=topic, partition=partition), float(lag))
                for (name, (topic, partition)), lag in lags
            ],
        )
        yield (
            COMMITTED,
            [
                (page.labels(source=source.name, topic=topic, partition=partition), float(offset))
                for source in sources
                for (topic, partition), offset in list(source.committed.items())
            ],
        )
        yield (
            PENDING,
            [
                (page.labels(source=source.name), float(source.delivery.pending_bytes))
                for source in sources
            ],
        )
        yield (
            RETRIES,
            [
                (page.labels(source=source.name), float(source.delivery.retried))
                for source in sources
            ],
        )
