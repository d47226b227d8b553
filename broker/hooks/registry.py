"""The plugins of one broker, and calls to them that never cost data.

pluggy is imported here and in specs.py only, and `node` imports this module after the broker
serves: it takes longer to import than the rest of the start.
"""

import logging
from collections import Counter
from typing import Any

import pluggy

from barnabas.hooks.specs import PROJECT, LogView, Specs

log = logging.getLogger("barnabas.hooks")


class Registry:
    """Which plugins run. `failures` counts calls that raised or answered nonsense, by plugin."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(Specs)
        self.failures: Counter[str] = Counter()

    def register(self, plugin: Any, name: str) -> None:
        """Raises ValueError when the name is taken or an implementation fits no hook."""
        try:
            self._manager.register(plugin, name=name)
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise ValueError(f"plugin {name}: {error}") from error

    def names(self) -> list[str]:
        return sorted(name for name, plugin in self._manager.list_name_plugin() if plugin)

    def deletable_segments(self, view: LogView, now_ms: int) -> int:
        """The largest answer of all plugins; a failing one counts as 0."""
        largest = 0
        for implementation in self._manager.hook.deletable_segments.get_hookimpls():
            name = implementation.plugin_name
            try:
                arguments = {"log": view, "now_ms": now_ms}
                given = [arguments[argument] for argument in implementation.argnames]
                answer = implementation.function(*given)
                if type(answer) is not int or not 0 <= answer <= len(view.segments):
                    raise ValueError(f"answered {answer!r} for {len(view.segments)} segments")
            except Exception:
                self.failures[name] += 1
                log.exception(
                    "plugin %s failed in deletable_segments of %s-%d; nothing is deleted by it",
                    name,
                    view.topic,
                    view.partition,
                )
                continue
            largest = max(largest, answer)
        return largest
