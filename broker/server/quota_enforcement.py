"""Applies client quotas: gives the connections of network threads their sensors.

Network threads count what clients use (cext/network/quotas.pxd), and run no Python. When quotas
change, all connections lose their sensors. The next request of each connection comes here before
its handler gets it (`PendingRequest.unmetered`): `meter` finds the quotas of its client and gives
them to the
connection, so that no request goes uncounted. Without quotas no request comes.

A sensor is what the clients with equal tags have used of one quota. It is removed an hour after its
last use, as in Kafka. There are at most SENSORS_MAX: beyond this limit, sensors without a
connection are removed when their windows are over, and clients without a sensor share one of each
kind, with
the lowest of their limits, so that a client gains nothing by inventing client ids.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from barnabas.cext.network.quota_sensors import Sensor, bind
from barnabas.cext.network.reactor import Reactor
from barnabas.cext.network.request_queue import PendingRequest
from barnabas.config import BrokerConfig
from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.znodes import DEFAULT_ENTITY
from barnabas.quotas.entities import (
    CONNECTIONS,
    FETCH,
    MUTATIONS,
    PRODUCE,
    REQUEST,
    Entity,
    addresses_of,
    quotas_in,
)
from barnabas.quotas.limits import Limits, Tags
from barnabas.quotas.mutations import TokenBucket, charge
from barnabas.server.plugins import Plugins
from barnabas.wire import response
from barnabas.wire.api_keys import api_keys

log = logging.getLogger("barnabas.quotas")

SENSORS_MAX = 10_000
SENSOR_IDLE_MS = 3_600_000
SWEEP_MS = 1000  # at most one search for old sensors in this time
ANONYMOUS = "ANONYMOUS"
ON_NETWORK_THREADS = (PRODUCE, FETCH, REQUEST)  # in the order of the native kinds
RESOURCES = {
    PRODUCE: "Produce",
    FETCH: "Fetch",
    REQUEST: "Request",
    MUTATIONS: "ControllerMutation",
}
SHARED = Tags("*", "*")  # of clients that find no place; no sanitized user has this name


class Quotas(NamedTuple):
    """The quotas of one moment, by key."""

    generation: int  # 0: there are none
    limits: dict[str, Limits]


class Used(NamedTuple):
    """What clients with these tags use of a quota: a rate a second, or the tokens that are left."""

    resource: str  # Kafka's QuotaType
    tags: Tags
    rate: float
    mean_wait_ms: float | None


class QuotaEnforcement:
    """One per node."""

    def __init__(
        self,
        reactor: Reactor,
        config: BrokerConfig,
        monotonic_ns: Callable[[], int],
        plugins: Plugins,
    ) -> None:
        self._reactor = reactor
        self._samples = config.integer("quota.window.num")
        self._window_ms = config.integer("quota.window.size.seconds") * 1000
        self._monotonic_ns = monotonic_ns
        self._plugins = plugins
        self._quotas = Quotas(0, {})
        self._known: dict[Entity, dict[str, float]] = {}
        self._generation = 0
        self._throttle_from: dict[int, int] = {}
        self._lock = threading.Lock()  # of what follows
        self._sensors: dict[tuple[str, Tags], Sensor] = {}
        self._swept_ms = 0
        self._burst_s = config.integer("controller.quota.window.num") * config.integer(
            "controller.quota.window.size.seconds"
        )
        self._buckets: dict[Tags, TokenBucket] = {}

    def apply(self, state: ClusterState) -> None:
        """Puts the quotas of a state in force. Call this with each new state."""
        found = dict(quotas_in(state.configs))
        if found != self._known:
            self._known = found
            self.refresh()

    def refresh(self) -> None:
        """Makes each client's quotas be found again: quotas or plugins have changed."""
        found = self._known
        limits = {
            key: Limits({entity: values[key] for entity, values in found.items() if key in values})
            for key in (*ON_NETWORK_THREADS, MUTATIONS)
        }
        self._generation += 1
        is_metered = self._plugins.limit_clients or any(limits[k] for k in ON_NETWORK_THREADS)
        self._quotas = Quotas(self._generation if is_metered else 0, limits)
        self._throttle_from = self._throttle_from or _throttle_from()
        self._reactor.set_quotas(self._quotas.generation, self._throttle_from)
        self._limit_addresses({e.ip: v[CONNECTIONS] for e, v in found.items() if e.ip is not None})

    def _limit_addresses(self, rates: dict[str, float]) -> None:
        """Sets the rates of new connections by host."""
        default = {"default": int(rates[DEFAULT_ENTITY])} if DEFAULT_ENTITY in rates else {}
        found: dict[bytes, int] = {}
        for host, rate in rates.items():
            if host == DEFAULT_ENTITY:
                continue
            addresses = addresses_of(host)
            if not addresses:
                log.warning(
                    "the quota of address %.200s has no effect: the host has no address", host
                )
            found |= dict.fromkeys(addresses, int(rate))
        self._reactor.set_address_rates(found, **default)

    def meter(self, pending: PendingRequest) -> None:
        """Gives the connection of a request the sensors of its client."""
        quotas = self._quotas
        user, client_id = _client_of(pending)
        found = [self._limit(quotas, key, user, client_id) for key in ON_NETWORK_THREADS]
        with self._lock:
            sensors = [
                None if limit is None else self._sensor(key, *limit)
                for key, limit in zip(ON_NETWORK_THREADS, found, strict=True)
            ]
            bind(pending, quotas.generation, sensors)

    def fetched(self, pending: PendingRequest, size_bytes: int) -> None:
        """Counts bytes that Python answers to a fetch; a client over its quota waits after the
        answer."""
        found = self._limit(self._quotas, FETCH, *_client_of(pending))
        if found is None:
            return
        now_ms = self._monotonic_ns() // 1_000_000
        with self._lock:
            pending.throttle(self._sensor(FETCH, *found).use(size_bytes, now_ms))

    def charge(self, pending: PendingRequest, is_strict: bool, count: int) -> None:
        """Counts so many created or deleted partitions against the quota of the request's client.
        `is_strict`: raises ThrottlingQuotaExceeded while the quota is exceeded; otherwise the
        client waits after the answer."""
        self._charge(_client_of(pending), is_strict, pending.throttle, count)

    def charge_later(self, pending: PendingRequest) -> Callable[[int], None]:
        """Returns what counts partitions against the quota of the request's client when the request
        is answered; it raises ThrottlingQuotaExceeded while the quota is exceeded."""
        return partial(self._charge, _client_of(pending), True, lambda _wait_ms: None)

    def _charge(
        self,
        client: tuple[str, str],
        is_strict: bool,
        throttle: Callable[[int], object],
        count: int,
    ) -> None:
        tags, limit = self._limit(self._quotas, MUTATIONS, *client) or (SHARED, None)
        if limit is None or limit == math.inf:
            return
        now_ms = self._monotonic_ns() // 1_000_000
        with self._lock:
            charge(self._bucket(tags, limit, now_ms), count, now_ms, is_strict, throttle)

    def _bucket(self, tags: Tags, limit: float, now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(tags)
        if bucket is None:
            if len(self._buckets) >= SENSORS_MAX:  # a full one has nothing to forget
                self._buckets = {t: b for t, b in self._buckets.items() if not b.is_full(now_ms)}
            if len(self._buckets) >= SENSORS_MAX:
                tags = SHARED
            bucket = self._buckets.setdefault(tags, TokenBucket(self._burst_s, limit, now_ms))
        bucket.limit = limit if tags != SHARED else min(limit, bucket.limit)
        return bucket

    def _limit(
        self, quotas: Quotas, key: str, user: str, client_id: str
    ) -> tuple[Tags, float | None] | None:
        """The tags and the limit of a client; None when there are no quotas of this key."""
        own = self._plugins.client_quota(key, user, client_id)
        if own is not None:
            return Tags(user, client_id), own
        limits = quotas.limits.get(key)
        if not limits:
            return None
        tags = limits.tags(user, client_id)
        return tags, limits.limit(tags)

    def _sensor(self, key: str, tags: Tags, limit: float | None) -> Sensor:
        sensor = self._sensors.get((key, tags))
        if sensor is None:
            if len(self._sensors) >= SENSORS_MAX:
                self._sweep(self._samples * self._window_ms)
            if len(self._sensors) >= SENSORS_MAX:
                return self._shared(key, limit)
            sensor = self._sensors[key, tags] = self._new(key)
        sensor.limit = limit
        return sensor

    def _shared(self, key: str, limit: float | None) -> Sensor:
        sensor = self._sensors.get((key, SHARED)) or self._new(key)
        self._sensors[key, SHARED] = sensor
        if limit is not None and (sensor.limit is None or limit < sensor.limit):
            sensor.limit = limit
        return sensor

    def _new(self, key: str) -> Sensor:
        if key == REQUEST:  # as in Kafka: a client waits a window at most for its requests' time
            return Sensor(
                samples=self._samples, window_ms=self._window_ms, wait_ms_max=self._window_ms
            )
        return Sensor(samples=self._samples, window_ms=self._window_ms)

    def _sweep(self, idle_ms: int) -> None:
        """Forgets the sensors without a connection that were not used for so long."""
        now_ms = self._monotonic_ns() // 1_000_000
        if now_ms < self._swept_ms + SWEEP_MS:
            return
        self._swept_ms = now_ms
        for place, sensor in list(self._sensors.items()):
            if not sensor.is_bound and sensor.used_ms <= now_ms - idle_ms:
                del self._sensors[place]

    def used(self) -> Iterator[Used]:
        """Yields what clients use now, for the metrics."""
        with self._lock:
            self._sweep(SENSOR_IDLE_MS)
            now_ms = self._monotonic_ns() // 1_000_000
            sensors = list(self._sensors.items())
            tokens = {tags: bucket.tokens(now_ms) for tags, bucket in self._buckets.items()}
        for (key, tags), sensor in sensors:
            yield Used(RESOURCES[key], tags, sensor.rate(now_ms), sensor.mean_wait_ms(now_ms))
        for tags, left in tokens.items():
            yield Used(RESOURCES[MUTATIONS], tags, left, None)


def _client_of(pending: PendingRequest) -> tuple[str, str]:
    """The name of the principal, without its type, and the client id of a request."""
    user = pending.principal.decode().partition(":")[2] or ANONYMOUS
    return user, pending.client_id or ""


def _throttle_from() -> dict[int, int]:
    """By API key, the first version whose response has a throttle time."""
    found = {}
    for key in api_keys():
        fields = response(key).schema.fields
        versions = next((f.versions for f in fields if f.name == "throttleTimeMs"), None)
        if versions:
            found[key] = versions[0][0]
    return found
