"""The audit log: denials of the authorizer, and administrative changes in the log of
"authorizer".

Clients can cause any number of denials, so each host gets at most one line a second; the next line
has the number of omitted denials. Changes that rules permit (of topics, settings, groups, rules)
have a line each.
Names from clients are written as Python's `repr`, truncated.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from barnabas.security.acl_codes import OPERATION_NAMES, TYPE_NAMES

log = logging.getLogger("barnabas.authorizer")

HOSTS_MAX = 256  # that have a line of their own in a second
SECOND_NS = 1_000_000_000


class AuditLog:
    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._now_ns = monotonic_ns
        self._lock = threading.Lock()
        self._lines_ns: dict[str, int] = {}  # by host: when its last line was written
        self._unwritten: dict[str, int] = {}  # by host: denials since that line
        self._others = 0  # denials of hosts beyond HOSTS_MAX

    def denied(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> None:
        with self._lock:
            if not self._has_line(host):
                return
            more, others = self._unwritten.pop(host, 0), self._others
            self._others = 0
        log.info(
            "%.200r from %s was denied %s on %s %.200r%s%s",
            principal,
            host,
            OPERATION_NAMES[operation],
            TYPE_NAMES[resource_type],
            name,
            f"; {more} more denials of this host before" if more else "",
            f"; {others} denials of other hosts" if others else "",
        )

    def permitted(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> None:
        """A change that a principal may make, and asked for."""
        what = f"may {OPERATION_NAMES[operation]} {TYPE_NAMES[resource_type]} {name[:200]!r}"
        self.changed(principal, host, what)

    def changed(self, principal: str, host: str, what: str) -> None:
        """A change that an administrator has made; `what` is a sentence without its subject."""
        log.info("%.200r from %s %s", principal, host, what)

    def _has_line(self, host: str) -> bool:
        now_ns = self._now_ns()
        last_ns = self._lines_ns.get(host)
        if last_ns is not None and now_ns - last_ns < SECOND_NS:
            self._unwritten[host] = self._unwritten.get(host, 0) + 1
            return False
        if last_ns is None and len(self._lines_ns) >= HOSTS_MAX:
            self._forget(now_ns)
            if len(self._lines_ns) >= HOSTS_MAX:
                self._others += 1
                return False
        self._lines_ns[host] = now_ns
        return True

    def _forget(self, now_ns: int) -> None:
        """Drops hosts whose line is older than a second."""
        for host, line_ns in list(self._lines_ns.items()):
            if now_ns - line_ns >= SECOND_NS:
                del self._lines_ns[host]
                self._others += self._unwritten.pop(host, 0)
