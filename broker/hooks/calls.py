"""Calls the plugins of a broker. Owns their threads, their time budgets and their failures.

A call runs on a thread of the plugin while the caller waits. When the budget is over, the caller
continues with FAILED and abandons the thread, which ends when the call returns. A thread that has
returned waits for the next call of its plugin; at most KEPT_THREADS threads wait.

A call to a child process (process.py) works in the same way: the thread waits for the child, and an
overrun kills the child, so that it abandons no thread.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from barnabas.cext.memory.threads import start_thread
from barnabas.hooks import specs
from barnabas.hooks.plugin import Plugin

log = logging.getLogger("barnabas.hooks")

FAILED: Any = type("Failed", (), {"__repr__": lambda self: "FAILED"})()
KEPT_THREADS = 2  # waiting threads of a plugin
LOG_EVERY_NS = 60_000_000_000
TRACE = "BARNABAS_TRACE_HOOKS"


class BadAnswer(Exception):
    """A hook returned a value that its contract does not allow."""


class OverBudget(TimeoutError):
    """A call took longer than its budget."""


class _Call:
    """One call: a thread of the plugin runs it, and the caller waits for its result."""

    __slots__ = (
        "answer",
        "arguments",
        "done",
        "error",
        "finished",
        "function",
        "left_behind",
        "plugin",
    )

    def __init__(self, plugin: Plugin, function: Callable[..., Any], arguments: list[Any]) -> None:
        self.plugin = plugin
        self.function = function
        self.finished = False  # guarded by the plugin's lock, as is the next one
        self.left_behind = False
        self.arguments = arguments
        self.answer: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()

    def run(self) -> None:
        try:
            self.answer = self.function(*self.arguments)
        except BaseException as error:  # also SystemExit of a plugin: it must not end the thread
            self.error = error
        with self.plugin.lock:
            self.finished = True
            if self.left_behind:
                self.plugin.abandoned -= 1
        self.done.release()


class _Thread:
    """A thread that runs the calls of one plugin, one after another."""

    __slots__ = ("calls",)

    def __init__(self, name: str) -> None:
        self.calls: SimpleQueue[_Call | None] = SimpleQueue()
        start_thread(self._run, name)

    def _run(self) -> None:
        while (call := self.calls.get()) is not None:
            call.run()
            del call


class Calls:
    """Runs the calls to the plugins of one broker. `monotonic_ns`: the clock for budgets and
    times."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._lock = threading.Lock()  # guards the waiting threads
        self._waiting: dict[int, list[_Thread]] = {}  # by id() of the plugin
        self._closed = False
        self._trace = bool(os.environ.get(TRACE))

    def call(
        self,
        plugin: Plugin,
        hook: str,
        arguments: Mapping[str, Any],
        check: Callable[[Any], Any] | None = None,
        too_late: Any = FAILED,
    ) -> Any:
        """Calls a hook and returns its answer, FAILED for a failed call, or `too_late` for a call
        that took longer than its budget. `arguments`: by name, all those of the specification.
        `check` converts the answer, or raises BadAnswer. Raises nothing: a failure is counted and
        logged."""
        if plugin.off:
            return FAILED
        implementation = plugin.hooks[hook]
        given = [arguments[name] for name in implementation.arguments]
        began_ns = self._monotonic_ns()
        try:
            answer = self._within_budget(
                plugin, hook, _Call(plugin, implementation.function, given)
            )
            if check is not None:
                answer = check(answer)
        except OverBudget as error:
            self._count(plugin, hook, began_ns, error)
            return too_late
        except Exception as error:
            self._count(plugin, hook, began_ns, error)
            return FAILED
        self._count(plugin, hook, began_ns, None)
        return answer

    def close(self, plugin: Plugin) -> None:
        """Ends the waiting threads of a plugin, and its process if it has one. A thread in a call
        ends after the call."""
        with self._lock:
            threads = self._waiting.pop(id(plugin), [])
        for thread in threads:
            thread.calls.put(None)
        if plugin.close is not None:
            plugin.close()

    def close_all(self) -> None:
        """Ends all waiting threads; from now on every thread ends after its call."""
        with self._lock:
            self._closed = True
            threads = [thread for row in self._waiting.values() for thread in row]
            self._waiting.clear()
        for thread in threads:
            thread.calls.put(None)

    # -- threads --------------------------------------------------------------------------------

    def _within_budget(self, plugin: Plugin, hook: str, call: _Call) -> Any:
        budget_ms = plugin.common["budget.ms"] or specs.budget_ms(hook)
        with self._lock:
            kept = self._waiting.get(id(plugin))
            thread = kept.pop() if kept else None
        if thread is None:
            thread = _Thread(f"plugin-{plugin.name}")
        thread.calls.put(call)
        if not call.done.acquire(timeout=budget_ms / 1000):
            self._abandon(plugin, thread, call)
            raise OverBudget(f"it took longer than its budget of {budget_ms} ms")
        self._keep(plugin, thread)
        if call.error is None:
            return call.answer
        if isinstance(call.error, Exception):
            raise call.error
        raise RuntimeError(f"it raised {type(call.error).__name__}") from call.error

    def _keep(self, plugin: Plugin, thread: _Thread) -> None:
        with self._lock:
            kept = self._waiting.setdefault(id(plugin), [])
            if not self._closed and not plugin.off and len(kept) < KEPT_THREADS:
                kept.append(thread)
                return
        thread.calls.put(None)

    def _abandon(self, plugin: Plugin, thread: _Thread, call: _Call) -> None:
        """Lets the thread end after its call, however long that takes; until then it counts as
        abandoned. For a plugin in its own process, killing the process frees the thread."""
        thread.calls.put(None)
        limit = plugin.common["abandoned.max"]
        with plugin.lock:
            plugin.overruns += 1
            if not call.finished:
                call.left_behind = True
                plugin.abandoned += 1
            if plugin.abandoned >= limit and not plugin.is_isolated:
                plugin.off = f"{plugin.abandoned} calls have not returned within their budget"
        if plugin.interrupt is not None:
            plugin.interrupt()

    # -- counts ---------------------------------------------------------------------------------

    def _count(self, plugin: Plugin, hook: str, began_ns: int, error: Exception | None) -> None:
        now_ns = self._monotonic_ns()
        must_log = False
        with plugin.lock:
            plugin.calls[hook] += 1
            plugin.nanoseconds[hook] += now_ns - began_ns
            if error is None:
                plugin.in_a_row = 0
            else:
                must_log = self._count_failure(plugin, hook, now_ns)
            unlogged = plugin.unlogged
            if must_log:
                plugin.unlogged = 0
        if self._trace or plugin.common["trace"]:
            word = "failed" if error is not None else "done"
            took_us = (now_ns - began_ns) / 1000
            print(f"hook {hook} of {plugin.name}: {word}, {took_us:.0f} us", file=sys.stderr)
        if error is not None and must_log:
            more = f" ({unlogged} failures since the last line)" if unlogged > 1 else ""
            off = f"; the plugin is switched off: {plugin.off}" if plugin.off else ""
            log.error("plugin %s failed in %s%s%s", plugin.name, hook, more, off, exc_info=error)

    def _count_failure(self, plugin: Plugin, hook: str, now_ns: int) -> bool:
        """Counts a failure; returns True when the caller must log it. The caller holds the lock."""
        plugin.failures[hook] += 1
        plugin.unlogged += 1
        plugin.in_a_row += 1
        limit = plugin.common["failures.max"]
        if limit and plugin.in_a_row >= limit and not plugin.off:
            plugin.off = f"{plugin.in_a_row} failures in a row"
        went_off = bool(plugin.off) and not plugin.logged_off
        plugin.logged_off = bool(plugin.off)
        must_log = went_off or not plugin.logged_ns or now_ns - plugin.logged_ns >= LOG_EVERY_NS
        if must_log:
            plugin.logged_ns = now_ns
        return must_log
