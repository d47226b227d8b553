"""Counts the records and bytes that producers send to each topic, by minute of their timestamps.

    plugins=audit
    produce.interceptors=audit        (a setting of each topic to count)

Every `period.ms` the plugin appends the counts to the topic `audit` (option `topic`) as JSON, one
record for each topic and minute:

    {"topic": "orders", "from_ms": 1700000000000, "to_ms": 1700000060000,
     "records": 1200, "bytes": 96000, "broker_ms": 1700000061000}

A producer and a consumer that count their records find a loss by comparison with these counts.
Counts of one minute may come in several records, which add up. The plugin counts a batch again when
a producer sends it again, and it also counts a batch that a later interceptor or the log rejects.
Counts that are not written yet are lost when the broker crashes. The plugin needs
`isolation=thread`, because it appends records.
"""

import json
import logging
import threading

from barnabas.hooks import Option, Options, Record, RecordBatch, Services, hookimpl

log = logging.getLogger("barnabas.plugins.audit")

Counts = dict[tuple[str, int], list[int]]  # (topic, minute) -> [records, bytes]
BUCKETS_MAX = 100_000  # (topic, minute) pairs that are not written yet


class Audit:
    """Counts records and bytes by topic and minute, and writes them to a topic."""

    OPTIONS = {
        "topic": Option("text", "the topic of the counts", "audit"),
        "bucket.ms": Option("integer", "the length of a time bucket", 60_000, least=1),
        "period.ms": Option("integer", "the time between two writes of counts", 60_000, least=10),
    }

    def __init__(self, options: Options) -> None:
        self._topic = options["topic"]
        self._bucket_ms = options["bucket.ms"]
        self._period_s = options["period.ms"] / 1000
        self._lock = threading.Lock()
        self._counts: Counts = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._services: Services | None = None

    @hookimpl
    def broker_started(self, services: Services | None) -> None:
        if services is None:
            raise ValueError("audit appends records: it needs isolation=thread")
        self._services = services
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    @hookimpl
    def broker_stopping(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self.write()

    @hookimpl
    def intercept_produce(self, batch: RecordBatch) -> None:
        found: dict[int, list[int]] = {}
        for record in batch.records:
            row = found.setdefault(record.timestamp // self._bucket_ms, [0, 0])
            row[0] += 1
            row[1] += len(record.key or b"") + len(record.value or b"")
        with self._lock:
            for bucket, (count, size_bytes) in found.items():
                row = self._counts.setdefault((batch.topic, bucket), [0, 0])
                row[0] += count
                row[1] += size_bytes
            if len(self._counts) > BUCKETS_MAX:
                self._counts.clear()
                raise RuntimeError("too many counts wait to be written: dropped the new ones")

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            try:
                self.write()
            except Exception as error:  # the topic may be writable at the next period
                log.warning("cannot append the counts; trying again in the next period: %s", error)

    def write(self) -> None:
        """Appends the counts since the last call."""
        with self._lock:
            counts, self._counts = self._counts, {}
        if not counts:
            return
        services = self._services
        assert services is not None, "called before broker_started"
        now_ms = services.now_ms()
        try:
            services.create_topic(self._topic, 1, {})
            services.append(self._topic, 0, self._records(counts, now_ms))
        except Exception:
            with self._lock:
                for key, row in self._counts.items():
                    before = counts.setdefault(key, [0, 0])
                    before[0] += row[0]
                    before[1] += row[1]
                self._counts = counts
            raise

    def _records(self, counts: Counts, now_ms: int) -> list[Record]:
        made = []
        for (topic, bucket), (count, size_bytes) in sorted(counts.items()):
            said = {
                "topic": topic,
                "from_ms": bucket * self._bucket_ms,
                "to_ms": (bucket + 1) * self._bucket_ms,
                "records": count,
                "bytes": size_bytes,
                "broker_ms": now_ms,
            }
            value = json.dumps(said).encode()
            made.append(Record(value, topic.encode(), timestamp=now_ms))
        return made
