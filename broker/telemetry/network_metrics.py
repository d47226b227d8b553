"""Requests, connections and threads of the network, as the reactor counts them.

The network threads count everything (`cext.network.request_metrics`); error codes in responses of
request handlers come from `request_errors`. A fetch counts as Fetch and as FetchConsumer or
FetchFollower, as in Kafka. Idle shares and rates cover the last minute, quantiles the last five
minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from barnabas.cext.network.reactor import Reactor
from barnabas.errors import name_of
from barnabas.telemetry.recent import NS_PER_MS, RecentRate, RecentTimes
from barnabas.telemetry.registry import (
    COUNTER,
    GAUGE,
    SUMMARY,
    Family,
    Metric,
    Page,
    Sample,
    Summary,
    of_mbean,
)
from barnabas.telemetry.request_errors import RequestErrors
from barnabas.wire.api_keys import api_keys

PRODUCE = 0
FETCH = 1
FETCH_FOLLOWER = -1  # the reactor's key for fetches of other brokers (followers)
REQUEST = ("request",)

REQUESTS = of_mbean(
    "kafka.network:type=RequestMetrics,name=RequestsPerSec",
    COUNTER,
    "Requests answered",
    ("request", "version"),
)
ERRORS = of_mbean(
    "kafka.network:type=RequestMetrics,name=ErrorsPerSec",
    COUNTER,
    "Error codes in responses, also those of single partitions; NONE is success",
    ("request", "error"),
)


def _time(name: str, meaning: str) -> Metric:
    return of_mbean(f"kafka.network:type=RequestMetrics,name={name}", SUMMARY, meaning, REQUEST)


TOTAL_TIME = _time(
    "TotalTimeMs", "Time from the last byte of a request to the last byte of its response, in ms"
)
TIMES = {
    "total": TOTAL_TIME,
    "request_queue": _time(
        "RequestQueueTimeMs", "Time until a thread begins to handle the request, in ms"
    ),
    "local": _time("LocalTimeMs", "Time to handle the request on this broker, in ms"),
    "remote": _time(
        "RemoteTimeMs", "Time that the request waited for replicas, the disk or more records, in ms"
    ),
    "response_queue": _time(
        "ResponseQueueTimeMs", "Time from the finished response to its first byte sent, in ms"
    ),
    "response_send": _time("ResponseSendTimeMs", "Time to send the response, in ms"),
}
CONVERSION_TIME = _time(
    "MessageConversionsTimeMs",
    "Time to convert records between message formats, in ms; only of Produce and Fetch",
)
TEMPORARY_MEMORY = _time(
    "TemporaryMemoryBytes",
    "Memory that these conversions took for a time, in bytes; only of Produce and Fetch",
)
CONVERTING = ("Fetch", "Produce")
BYTE_NS = 1024  # cext counts bytes in its histograms of times: this stands for one
PARTS = (*TIMES, "conversions", "temporary_memory")
REQUEST_QUEUE = of_mbean(
    "kafka.network:type=RequestChannel,name=RequestQueueSize",
    GAUGE,
    "Requests that wait for a request handler",
)
RESPONSE_QUEUE = of_mbean(
    "kafka.network:type=RequestChannel,name=ResponseQueueSize",
    GAUGE,
    "Responses that wait for their network thread",
)
NETWORK_IDLE = of_mbean(
    "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
    GAUGE,
    "Share of the last minute in which the network threads were idle, 0 to 1",
)
THREAD_IDLE = of_mbean(
    "kafka.network:type=Processor,name=IdlePercent",
    GAUGE,
    "Share of the last minute in which one network thread was idle, 0 to 1",
    ("networkProcessor",),
)
MEMORY_USED = of_mbean(
    "kafka.network:type=SocketServer,name=MemoryPoolUsed",
    GAUGE,
    "Bytes of requests in memory: partial, delayed or waiting",
)
MEMORY_LEFT = of_mbean(
    "kafka.network:type=SocketServer,name=MemoryPoolAvailable",
    GAUGE,
    "What queued.max.request.bytes leaves",
)
_POOL = "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"
HANDLER_IDLE = of_mbean(
    _POOL,
    GAUGE,
    "Share of the last minute that request handlers (num.io.threads) waited for work, 0 to 1",
    confluent=(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
    ),
)
_SOCKETS = "kafka.server:type=socket-server-metrics,attribute="
CONNECTIONS = of_mbean(
    _SOCKETS + "connection-count",
    GAUGE,
    "Connections of each listener and network thread",
    ("listener", "networkProcessor"),
)
CONNECTIONS_MADE = of_mbean(
    _SOCKETS + "connection-creation-total", COUNTER, "Connections accepted", ("listener",)
)
CONNECTION_RATE = of_mbean(
    _SOCKETS + "connection-creation-rate",
    GAUGE,
    "Connections accepted a second, over the last minute",
    ("listener",),
)
ACCEPT_RATE = of_mbean(
    _SOCKETS + "connection-accept-rate",
    GAUGE,
    "Connections accepted a second, over the last minute, as max.connection.creation.rate limits"
    " them",
    ("listener",),
)
BROKER_ACCEPT_RATE = of_mbean(
    _SOCKETS + "broker-connection-accept-rate", GAUGE, "The same of all listeners together"
)
ACCEPT_THROTTLE = of_mbean(
    _SOCKETS + "connection-accept-throttle-time",
    GAUGE,
    "Mean time for which max.connection.creation.rate held the listener, in ms, over the last"
    " minute; NaN if it did not",
    ("listener",),
)
ADDRESS_THROTTLE = of_mbean(
    _SOCKETS + "ip-connection-accept-throttle-time",
    GAUGE,
    "Mean time after which a connection closed whose address had exceeded its"
    " connection_creation_rate, in ms, over the last minute; NaN without one",
    ("listener",),
)
BYTES_IN = of_mbean(
    _SOCKETS + "incoming-byte-total", COUNTER, "Bytes received", ("networkProcessor",)
)
BYTES_OUT = of_mbean(_SOCKETS + "outgoing-byte-total", COUNTER, "Bytes sent", ("networkProcessor",))
CLOSED = Metric(
    "barnabas_connections_closed_total", COUNTER, ("reason",), "Connections closed or refused"
)
EXPIRED = of_mbean(
    "kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount",
    COUNTER,
    "Connections closed at a request after their login had ended (connections.max.reauth.ms)",
)
PURGATORY = of_mbean(
    "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize",
    GAUGE,
    "Delayed requests that wait for a condition, such as new records",
    ("delayedOperation",),
)
DELAYED = of_mbean(
    "kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations",
    GAUGE,
    "Delayed requests in purgatory, each with a time limit",
    ("delayedOperation",),
)

METRICS = (
    REQUESTS,
    ERRORS,
    *TIMES.values(),
    CONVERSION_TIME,
    TEMPORARY_MEMORY,
    REQUEST_QUEUE,
    RESPONSE_QUEUE,
    NETWORK_IDLE,
    THREAD_IDLE,
    MEMORY_USED,
    MEMORY_LEFT,
    HANDLER_IDLE,
    CONNECTIONS,
    CONNECTIONS_MADE,
    CONNECTION_RATE,
    ACCEPT_RATE,
    BROKER_ACCEPT_RATE,
    ACCEPT_THROTTLE,
    ADDRESS_THROTTLE,
    BYTES_IN,
    BYTES_OUT,
    CLOSED,
    EXPIRED,
    PURGATORY,
    DELAYED,
)

RequestRow = dict[str, Any]
NOTHING: RequestRow = {
    "parked": 0,
    "versions": {},
    "errors": {},
    "times": {part: (0, {}) for part in PARTS},
}


class NetworkCollector:
    """The collector of one broker's network."""

    def __init__(
        self,
        reactor: Reactor,
        errors: RequestErrors,
        handler_threads: Callable[[], int],
        queued_bytes_max: Callable[[], int],
        began_ns: int,
    ) -> None:
        self._reactor = reactor
        self._errors = errors
        self._handler_threads = handler_threads
        self._queued_bytes_max = queued_bytes_max
        self._began_ns = began_ns
        self._rates: dict[tuple[str, str], RecentRate] = {}
        self._times: dict[tuple[str, str], RecentTimes] = {}

    def __call__(self, page: Page) -> Iterator[Family]:
        metrics = self._metrics()
        yield from self._requests(page, metrics)
        yield from self._connections(page, self._reactor.counters())
        waiting = [
            (page.labels(delayedOperation=name), metrics[name]["parked"])
            for name in ("Produce", "Fetch")
        ]
        yield PURGATORY, waiting
        yield DELAYED, waiting

    def _rate(self, kind: str, of: str, now_ns: int, value: float) -> float:
        known = self._rates.setdefault((kind, of), RecentRate(self._began_ns))
        return known.per_ns(now_ns, value)

    def _mean_ms(self, kind: str, of: str, now_ns: int, count: int, sum_ns: int) -> float:
        """Returns the mean time, in ms, over the last minute, from a count and a sum that grow; NaN
        when the count did not grow."""
        a_ns = self._rate(f"{kind} count", of, now_ns, count)
        return self._rate(kind, of, now_ns, sum_ns) / a_ns / NS_PER_MS if a_ns else float("nan")

    # -- requests -------------------------------------------------------------------------------

    def _metrics(self) -> dict[str, RequestRow]:
        """Returns the request metrics under the names that Kafka gives to requests."""
        found = self._reactor.request_metrics()
        names = api_keys()
        by_name = {
            names[key].name: metrics
            for key, metrics in found.items()
            if key in names and key != FETCH
        }
        for (key, code), count in self._errors.counts().items():
            name = names[key].name
            own = by_name.setdefault(name, dict(NOTHING))
            own["errors"] = {**own["errors"], code: own["errors"].get(code, 0) + count}
        consumer = found.get(FETCH, NOTHING)
        follower = found.get(FETCH_FOLLOWER, NOTHING)
        by_name |= {
            "Fetch": _sum(consumer, follower),
            "FetchConsumer": consumer,
            "FetchFollower": follower,
        }
        by_name.setdefault("Produce", NOTHING)
        return dict(sorted(by_name.items()))

    def _requests(self, page: Page, metrics: Mapping[str, RequestRow]) -> Iterator[Family]:
        yield (
            REQUESTS,
            [
                (page.labels(request=name, version=version), count)
                for name, row in metrics.items()
                for version, count in row["versions"].items()
            ],
        )
        yield (
            ERRORS,
            [
                (page.labels(request=name, error=name_of(code)), count)
                for name, row in metrics.items()
                for code, count in row["errors"].items()
            ],
        )
        for part, metric in TIMES.items():
            yield metric, [self._time_of(page, name, part, row) for name, row in metrics.items()]
        rows = {name: metrics[name] for name in CONVERTING}
        yield (
            CONVERSION_TIME,
            [self._time_of(page, name, "conversions", row) for name, row in rows.items()],
        )
        yield TEMPORARY_MEMORY, [self._memory_of(page, name, row) for name, row in rows.items()]

    def _memory_of(self, page: Page, name: str, row: RequestRow) -> Sample:
        labels, summary = self._time_of(page, name, "temporary_memory", row)
        assert isinstance(summary, Summary)
        scale = NS_PER_MS / BYTE_NS
        quantiles = tuple(quantile * scale for quantile in summary.quantiles)
        return labels, Summary(quantiles, summary.observations, summary.total * scale)

    def _time_of(self, page: Page, name: str, part: str, row: RequestRow) -> Sample:
        sum_ns, buckets = row["times"][part]
        # cext does not count a phase in which a request spent no time: this adds zeros for it.
        missing = sum(row["times"]["total"][1].values()) - sum(buckets.values())
        if missing > 0:
            buckets = {**buckets, 0: buckets.get(0, 0) + missing}
        known = self._times.setdefault((name, part), RecentTimes(self._began_ns))
        return page.labels(request=name), known.summary(page.now_ns, sum_ns, buckets)

    # -- connections and threads ----------------------------------------------------------------

    def _connections(self, page: Page, counters: dict[str, Any]) -> Iterator[Family]:
        threads = counters["threads"]
        # Counts from the start of the network; the time before is neither idle nor busy.
        self._began_ns = page.now_ns - max(thread["run_ns"] for thread in threads)
        named = [(str(number), thread) for number, thread in enumerate(threads)]
        named += [(f"spare-{n}", thread) for n, thread in enumerate(counters["spare_threads"])]
        numbers = [page.labels(networkProcessor=name) for name, _ in named]
        idle = [
            min(1.0, self._rate("network", name, page.now_ns, thread["idle_ns"]))
            for name, thread in named
        ]
        yield NETWORK_IDLE, [("", sum(idle[: len(threads)]) / len(threads))]
        yield THREAD_IDLE, list(zip(numbers, idle, strict=True))
        handlers = max(1, self._handler_threads())
        waited = self._rate("handlers", "", page.now_ns, counters["python_idle_ns"])
        yield HANDLER_IDLE, [("", min(1.0, waited / handlers))]
        yield REQUEST_QUEUE, [("", counters["python_queue"])]
        yield RESPONSE_QUEUE, [("", counters["answer_queue"])]
        yield MEMORY_USED, [("", counters["held_bytes"])]
        limit = self._queued_bytes_max()
        left = max(0, limit - counters["held_bytes"]) if limit > 0 else float("inf")
        yield MEMORY_LEFT, [("", left)]
        yield (
            CONNECTIONS,
            [
                (page.labels(listener=listener, networkProcessor=name), count)
                for name, thread in named
                for listener, count in thread["by_listener"].items()
            ],
        )
        made = counters["connections_total"]
        yield CONNECTIONS_MADE, [(page.labels(listener=name), n) for name, n in made.items()]
        rates = {
            name: 1e9 * self._rate("made", name, page.now_ns, count) for name, count in made.items()
        }
        for metric in (CONNECTION_RATE, ACCEPT_RATE):
            yield metric, [(page.labels(listener=name), rate) for name, rate in rates.items()]
        yield BROKER_ACCEPT_RATE, [("", sum(rates.values()))]
        for metric, kind in (
            (ACCEPT_THROTTLE, "accept_throttles"),
            (ADDRESS_THROTTLE, "address_throttles"),
        ):
            yield (
                metric,
                [
                    (page.labels(listener=name), self._mean_ms(kind, name, page.now_ns, *held))
                    for name, held in counters[kind].items()
                ],
            )
        for metric, count in ((BYTES_IN, "bytes_in"), (BYTES_OUT, "bytes_out")):
            yield metric, [(n, t[count]) for n, (_, t) in zip(numbers, named, strict=True)]
        yield EXPIRED, [("", counters["closed"]["login-expired"])]
        yield CLOSED, [(page.labels(reason=why), n) for why, n in counters["closed"].items()]


def _sum(a: RequestRow, b: RequestRow) -> RequestRow:
    def added(x: Mapping[int, int], y: Mapping[int, int]) -> dict[int, int]:
        return {key: x.get(key, 0) + y.get(key, 0) for key in x.keys() | y.keys()}

    return {
        "parked": a["parked"] + b["parked"],
        "versions": added(a["versions"], b["versions"]),
        "errors": added(a["errors"], b["errors"]),
        "times": {
            part: (
                a["times"][part][0] + b["times"][part][0],
                added(a["times"][part][1], b["times"][part][1]),
            )
            for part in PARTS
        },
    }
