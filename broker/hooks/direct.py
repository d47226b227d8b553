"""The plugins of a client: finds them by its settings and calls them on the caller's thread.

A setting names a plugin (built in, or installed with an entry point), a class of Kafka that a
built-in replaces (builtin.py), or `module:Class` of the program; a program may also give an object
with hooks in place of a name. Options are the settings `plugin.NAME.key`, where NAME is the part
after the last colon. The caller gets the errors of calls; this module counts them.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from barnabas.hooks import specs
from barnabas.hooks.builtin import ALIASES
from barnabas.hooks.calls import TRACE
from barnabas.hooks.loading import implementations, load
from barnabas.hooks.options import COMMON, options_of, parse
from barnabas.hooks.plugin import CannotLoad, Plugin


class ClientPlugins:
    """The plugins of one client, which has these `settings`; `close` ends the plugins'
    processes."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._texts = {key: text for key, text in settings.items() if isinstance(text, str)}
        self._made: dict[str, Plugin] = {}

    def plugin(self, setting: str, named: Any, *hooks: str) -> Plugin:
        """Returns the plugin that a setting names; it must have one of the hooks. Settings that
        name the same plugin get the same one. Raises CannotLoad."""
        if not isinstance(named, str):
            found = _of_object(named)
        else:
            name = ALIASES.get(named, named)
            if name not in self._made:
                texts = options_of(name.rpartition(":")[2], self._texts)
                self._made[name] = load(name, texts, any_module=True)
            found = self._made[name]
        if not any(hook in found.hooks for hook in hooks):
            raise CannotLoad(
                [f"{setting}: the plugin {found.name} does not implement {' or '.join(hooks)}."]
            )
        return found

    def close(self) -> None:
        for plugin in self._made.values():
            if plugin.close is not None:
                plugin.close()


def _of_object(made: Any) -> Plugin:
    name = type(made).__name__
    return Plugin(name, implementations(name, made), made=made, common=parse(name, COMMON, {}))


def caller(plugin: Plugin, hook: str) -> Callable[..., Any] | None:
    """Returns a function of the hook's arguments, in the order of its specification; None when the
    plugin does not implement the hook."""
    implementation = plugin.hooks.get(hook)
    if implementation is None:
        return None
    function = implementation.function
    places = [arguments_of(hook).index(name) for name in implementation.arguments]
    takes_all = places == list(range(len(arguments_of(hook))))
    is_traced = bool(os.environ.get(TRACE)) or plugin.common["trace"]
    calls, failures, nanoseconds = plugin.calls, plugin.failures, plugin.nanoseconds

    def call(*given: Any) -> Any:
        began_ns = time.monotonic_ns()
        word = "failed"
        try:
            answer = function(*(given if takes_all else [given[place] for place in places]))
            word = "done"
            return answer
        except Exception:
            failures[hook] += 1
            raise
        finally:
            took_ns = time.monotonic_ns() - began_ns
            calls[hook] += 1
            nanoseconds[hook] += took_ns
            if is_traced:
                line = f"hook {hook} of {plugin.name}: {word}, {took_ns / 1000:.0f} us"
                print(line, file=sys.stderr)

    return call


@cache
def arguments_of(hook: str) -> tuple[str, ...]:
    """Returns the names of the arguments that the specification of a hook of the broker has, in
    order."""
    found = inspect.signature(getattr(specs.Specs, hook)).parameters
    return tuple(name for name in found if name != "self")
