"""One plugin in use: its name and version, the hooks it implements, its failures."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from barnabas.hooks.options import CLOSED, COMMON, parse

RUNS = ""  # values of Plugin.off


class CannotLoad(Exception):
    """A plugin cannot be used. `problems`: one line for each reason."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(" ".join(problems))


class Implementation(NamedTuple):
    """One hook of a plugin: the function, and the names of the arguments that it takes."""

    function: Callable[..., Any]
    arguments: tuple[str, ...]


class Plugin:
    """A plugin that a broker or a client uses.

    `off`: why the plugin is switched off, "" while it is in use. Counts are by hook; a thread that
    changes them holds the lock."""

    def __init__(
        self,
        name: str,
        hooks: Mapping[str, Implementation],
        *,
        made: object = None,
        version: str = "",
        path: str = "",
        common: Mapping[str, Any] | None = None,
        close: Callable[[], object] | None = None,
        interrupt: Callable[[], object] | None = None,
    ) -> None:
        self.name = name
        self.hooks = dict(hooks)
        self.made = made  # the plugin's object; None for a plugin in its own process
        self.version = version
        self.path = path
        self.common = dict(common) if common is not None else parse(name, COMMON, {})
        self.close = close  # ends its process
        self.interrupt = interrupt  # ends the current call of its process
        self.lock = threading.Lock()
        self.off = RUNS
        self.calls: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.nanoseconds: Counter[str] = Counter()
        self.overruns = 0
        self.in_a_row = 0  # failures
        self.abandoned = 0  # threads whose call has exceeded its budget
        self.logged_ns = 0  # time of the last failure in the log, 0: never
        self.unlogged = 0  # failures since then
        self.logged_off = False

    @property
    def is_closed(self) -> bool:
        """Returns whether a failure of the plugin refuses the request (`on.failure=closed`)."""
        return bool(self.common["on.failure"] == CLOSED)

    @property
    def is_isolated(self) -> bool:
        return bool(self.common["isolation"] == "process")

    def said(self) -> str:
        """Returns the line that the start prints."""
        where = ", in its own process" if self.is_isolated else ""
        hooks = ", ".join(self.hooks) or "no hooks"
        return f"plugin {self.name} {self.version} from {self.path}{where}: {hooks}"
