from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.cext.network.handler import NativeHandler, PermissionTable
from barnabas.cext.network.request_queue import PendingRequest
from barnabas.cext.network.transport import Transport
from barnabas.cext.memory.sys import SystemCalls

LIMITS: Mapping[str, tuple[int, int]]

class NetworkEvent(NamedTuple):
    """An error of a peer. There is one for each peer and second; `suppressed` more came before it."""

    reason: str
    listener: str
    host: str
    port: int
    detail: int  # the frame's size, waiting bytes, the number of connections, or an errno
    suppressed: int

class Reactor:
    """Listeners, network threads and the queue to Python of one broker.

    Limits have Kafka's names; LIMITS has all of them. `flexible_from[key]`: the first version whose
    request header has tagged fields; -1: none. `served`: the first and last version of each API key
    that native handlers answer; without it all that they can. Code that wakes a connection for a native handler
    must stop before the reactor is freed.
    """

    def __init__(
        self,
        system: SystemCalls,
        handlers: Iterable[NativeHandler],
        *,
        network_threads: int,
        flexible_from: Sequence[int],
        limits: Mapping[str, int] | None = None,
        served: Mapping[int, tuple[int, int]] | None = None,
    ) -> None: ...
    def listen(
        self,
        name: str,
        host: str,
        port: int,
        backlog: int = 50,
        login: bool = False,
        *,
        login_bytes_max: int = ...,
        transport: Transport | None = None,
        legacy07: bool = False,
    ) -> int: ...
    def unlisten(self, name: str) -> None: ...
    def set_permissions(self, permissions: PermissionTable) -> None: ...
    def start(self) -> None: ...
    def stop(self, timeout_ms: int = 5000) -> None: ...
    def close(self) -> None: ...
    @property
    def stopped(self) -> bool: ...
    def next_request(self, timeout_ms: int = -1) -> PendingRequest | None: ...
    def next_closed(self, timeout_ms: int = -1) -> int | None: ...
    def let_go(self, takers: int) -> None: ...
    def set_limit(self, name: str, value: int) -> None: ...
    @property
    def listener_names(self) -> list[str]: ...
    def set_listener_limit(self, listener: str, name: str, value: int) -> None: ...
    def set_address_limits(self, limits: Mapping[bytes, int]) -> None: ...
    def resize(self, network_threads: int) -> None: ...
    def set_gate(self, keys: Iterable[int]) -> None: ...
    def set_address_rates(self, rates: Mapping[bytes, int], default: int = ...) -> None: ...
    def set_quotas(self, generation: int, throttle_from: Mapping[int, int]) -> None: ...
    def look_at_timers(self) -> None: ...
    def events(self) -> list[NetworkEvent]: ...
    def counters(self) -> dict[str, Any]:
        """Returns, since the start: requests, python_requests, bytes_in, bytes_out, closed {reason:
        n}, connections_total {listener: n}, accept_blocked_ns {listener: n}, events_lost, and how
        often and how long rates of new connections delayed them: accept_throttles and
        address_throttles {listener: (count, ns)}. At this moment: connections {listener: n},
        connection_count, parked, held_bytes, python_queue, python_waiting, answer_queue, and for
        each of `threads`, which take new connections, and of `spare_threads` its connections,
        by_listener {listener: n}, bytes_in, bytes_out, wakeups, idle_ns, run_ns and idle_ratio.
        """

    def request_metrics(self) -> dict[int, dict[str, Any]]:
        """Returns, for each API key (-1: Fetch from another broker), since the start: versions
        {version: n} and errors {code: n} of the answers, times {part: (sum in ns, {bucket of
        cext.memory.histogram: n})} by the names of request_metrics.TIME_NAMES; and the number of
        requests that are parked at this moment.
        """
