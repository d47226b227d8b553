"""The first stage, before anything is open, and the steps that undo a start. These steps run at a
clean stop and after a failed start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from barnabas.cext.memory.sys import SystemCalls
from barnabas.config import BrokerConfig
from barnabas.metadata.tree import MetadataTree
from barnabas.server.background import Background
from barnabas.server.clock import Clock
from barnabas.server.listeners import Listeners
from barnabas.server.request_handlers import Gate
from barnabas.telemetry.metrics_page import MetricsPage

# Opens the metadata store in a directory; the second argument returns the wall clock in ms.
OpenTree = Callable[[Path, Callable[[], int]], MetadataTree]


class CannotStart(Exception):
    """The broker does not start; the text says why and what to do, in one line."""


class Undo(ExitStack):
    """The steps that undo a start; `close` runs the latest step first."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = False
        self.is_clean = False  # True: log directories get the mark of a clean stop

    def close(self, is_clean: bool = False) -> None:
        """Runs all steps, also after one that raised; the second call does nothing. `is_clean`: log
        directories get the mark of a clean stop."""
        if not self.has_begun:
            self.has_begun, self.is_clean = True, is_clean
            super().close()

    def check(self, step: Callable[[], bool]) -> None:
        """Adds a step; when it returns False, log directories do not get the mark of a clean
        stop."""

        def checked() -> None:
            self.is_clean = step() and self.is_clean

        self.callback(checked)


class Configured(NamedTuple):
    """Nothing is open yet."""

    config: BrokerConfig
    system: SystemCalls
    clock: Clock
    background: Background
    listeners: Listeners
    metrics: MetricsPage
    open_tree: OpenTree
    gate: Gate | None  # sees every request that comes to Python
    began_ns: int
    undo: Undo
