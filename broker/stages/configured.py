"""What a node has before it starts, and how a start is undone: by a clean stop, or by one that
fails."""

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

# Opens the metadata store in a directory, with the wall clock.
OpenTree = Callable[[Path, Callable[[], int]], MetadataTree]


class CannotStart(Exception):
    """Why the broker does not start and what to do: one plain line."""


class Undo(ExitStack):
    """Steps that undo a start; `close` takes the latest first."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = False
        self.is_clean = False  # log directories get the mark that no recovery is needed

    def close(self, is_clean: bool = False) -> None:
        """Does nothing the second time. Every step is taken, also after one that raised."""
        if not self.has_begun:
            self.has_begun, self.is_clean = True, is_clean
            super().close()

    def check(self, step: Callable[[], bool]) -> None:
        """A step that gives False leaves the directories without their mark."""

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
