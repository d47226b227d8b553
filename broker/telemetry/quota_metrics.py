"""Metrics of client quotas, under the names that the JMX exporter gives those of Kafka.

Kafka has an MBean for each of them: `kafka.server:type=Produce,user=U,client-id=C`. An empty label
means that the quota does not depend on it. The number of sensors is bounded; a sensor is deleted an
hour after its last use (server/quota_enforcement.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from barnabas.telemetry.registry import GAUGE, Family, Metric, Page, Sample

if TYPE_CHECKING:
    from barnabas.server.quota_enforcement import Used

LABELS = ("resource", "user", "clientId")


def _metric(attribute: str, meaning: str) -> Metric:
    name = f"kafka_server_quota_{attribute.replace('-', '_')}"
    mbean = f"kafka.server:type=*,user=*,client-id=*,attribute={attribute}"
    return Metric(name, GAUGE, LABELS, meaning, mbean)


BYTES = _metric("byte-rate", "Bytes a second of clients with a quota of Produce or Fetch")
TIME = _metric("request-time", "Share of a thread that their requests take, in percent")
TOKENS = _metric("tokens", "Partitions that they may still create or delete now")
THROTTLE = _metric("throttle-time", "Mean throttle time of their throttled requests, in ms")
METRICS = (BYTES, TIME, TOKENS, THROTTLE)


class QuotaCollector:
    """Collects the metrics of quotas. `used` yields the current use of each quota."""

    def __init__(self, used: Callable[[], Iterable[Used]]) -> None:
        self._used = used

    def __call__(self, page: Page) -> Iterator[Family]:
        found: dict[Metric, list[Sample]] = {metric: [] for metric in METRICS}
        of_resource = {"Request": TIME, "ControllerMutation": TOKENS}
        for row in self._used():
            labels = page.labels(
                resource=row.resource, user=row.tags.user, clientId=row.tags.client_id
            )
            found[of_resource.get(row.resource, BYTES)].append((labels, row.rate))
            if row.mean_wait_ms is not None:
                found[THROTTLE].append((labels, row.mean_wait_ms))
        yield from found.items()
