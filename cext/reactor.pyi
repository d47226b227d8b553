from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.cext.lane import LaneHandle
from barnabas.cext.pylane import PendingRequest
from barnabas.cext.sys import SystemCalls

LIMITS: Mapping[str, tuple[int, int]]

class NetworkEvent(NamedTuple):
    """What a peer did wrong: one a peer and second, `suppressed` more before it."""

    reason: str
    listener: str
    host: str
    port: int
    detail: int  # the frame's size, bytes that waited, the number of connections, an errno
    suppressed: int

class Reactor:
    """Listeners, network threads and the queue to Python of one broker.

    Limits have Kafka's names; see LIMITS for those there are. `flexible_from[key]` is the first
    version whose request header has a tagged section, -1 for none. Whoever lets a lane wake a
    connection stops doing so before the reactor goes.
    """

    def __init__(
        self,
        system: SystemCalls,
        lanes: Iterable[LaneHandle],
        *,
        network_threads: int,
        flexible_from: Sequence[int],
        limits: Mapping[str, int] | None = None,
    ) -> None: ...
    def listen(self, name: str, host: str, port: int, backlog: int = 50) -> int: ...
    def start(self) -> None: ...
    def stop(self, timeout_ms: int = 5000) -> None: ...
    @property
    def stopped(self) -> bool: ...
    def next_request(self, timeout_ms: int = -1) -> PendingRequest | None: ...
    def set_limit(self, name: str, value: int) -> None: ...
    def events(self) -> list[NetworkEvent]: ...
    def counters(self) -> dict[str, Any]:
        """Since the start: requests, python_requests, bytes_in, bytes_out, closed {reason: n},
        connections_total {listener: n}, events_lost. At this moment: connections {listener: n},
        connection_count, parked, held_bytes, python_queue, python_waiting, and for each of
        `threads` its connections, idle_ns, run_ns and idle_ratio.
        """
