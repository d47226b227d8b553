"""Decides on permissions that native handlers need, and returns their requests to them.

A native handler that finds no cached decision passes its request to Python with the question
(cext/network/permissions.pyx). All APIs share this one place: it asks the authorizer,
stores the decisions, and the handler begins again with the same request.

A permission is valid until a rule changes. A denial is valid for DENIED_NS: then the authorizer is
asked again, and logs a client that continues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.cext.network.permissions import DecisionTable
from barnabas.cext.network.request_queue import PendingRequest
from barnabas.security.principal import principal_text

log = logging.getLogger("barnabas.authorizer")

DENIED_NS = 1_000_000_000
ALWAYS_NS = (1 << 63) - 1

# Returns whether a principal, from a host, has a right: (principal, host, operation, resource type,
# name), the two in between with Kafka's numbers.
Authorize = Callable[[str, str, int, int, str], bool]


class Decisions:
    """The decisions of one broker."""

    def __init__(self, authorize: Authorize, monotonic_ns: Callable[[], int]) -> None:
        """`monotonic_ns`: the clock of the network threads."""
        self.table = DecisionTable()
        self._authorize = authorize
        self._monotonic_ns = monotonic_ns

    def rules_changed(self) -> None:
        """Takes back all decisions. Call it after each change of a rule, before its answer."""
        self.table.new_epoch()

    def take(self, pending: PendingRequest) -> None:
        """Decides on the questions of a request, and gives it back to its native handler."""
        epoch = self.table.epoch  # before the rules are read
        for operation, resource_type, name in pending.questions:
            allowed = self._is_allowed(pending, operation, resource_type, name)
            self.table.decide(
                pending.principal,
                pending.address,
                operation,
                resource_type,
                name,
                allowed=allowed,
                epoch=epoch,
                until_ns=ALWAYS_NS if allowed else self._monotonic_ns() + DENIED_NS,
            )
        pending.proceed(again=True)

    def _is_allowed(
        self, pending: PendingRequest, operation: int, resource_type: int, name: bytes
    ) -> bool:
        """A name that is not UTF-8 keeps its bytes in a form that no rule has."""
        principal = principal_text(pending.principal)
        text = name.decode(errors="surrogateescape")
        try:
            return self._authorize(principal, pending.peer[0], operation, resource_type, text)
        except Exception:
            log.exception("The authorizer failed: denied %s from %s", principal, pending.peer[0])
            return False
