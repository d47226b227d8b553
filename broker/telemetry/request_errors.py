"""Counts error codes in the responses of request handlers, as Kafka counts them.

Every `errorCode` of a response counts, those of partitions as well as the one at the top, and
success counts too. This module finds the fields in the message's schema, once for each API key.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from barnabas.wire import Struct, response
from barnabas.wire.schema import Field


class _Plan(NamedTuple):
    """The places of error codes in one struct: its own field, and the structs inside it."""

    own: bool
    inner: tuple[tuple[str, bool, _Plan], ...]  # (field, whether it is an array, its plan)


def _plan(fields: list[Field]) -> _Plan | None:
    inner = []
    for field in fields:
        below = _plan(field.fields) if field.base == "{}" else None
        if below is not None:
            inner.append((field.name, field.array, below))
    own = any(field.name == "errorCode" and not field.array for field in fields)
    return _Plan(own, tuple(inner)) if own or inner else None


def _walk(value: Any, plan: _Plan, codes: list[int]) -> None:
    if plan.own:
        codes.append(value.errorCode)
    for name, is_array, below in plan.inner:
        found = getattr(value, name)
        if found is None:
            continue
        for row in found if is_array else (found,):
            _walk(row, below, codes)


class RequestErrors:
    """Counts by (API key, error code). Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: dict[int, _Plan | None] = {}
        self._counts: dict[tuple[int, int], int] = {}

    def count(self, key: int, answer: Struct) -> None:
        """Counts the error codes in a response to a request with API key `key`."""
        if key not in self._plans:
            self._plans[key] = _plan(response(key).fields_at(""))
        plan = self._plans[key]
        if plan is None:
            return
        codes: list[int] = []
        _walk(answer, plan, codes)
        with self._lock:
            for code in codes:
                self._counts[key, code] = self._counts.get((key, code), 0) + 1

    def counts(self) -> dict[tuple[int, int], int]:
        """Returns the counts by (API key, error code)."""
        with self._lock:
            return dict(self._counts)
