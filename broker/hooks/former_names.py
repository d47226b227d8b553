"""Hooks and arguments under the names that they had in 0.1.0, for plugins that were written for it.
The release after the next one drops this module."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import pluggy

from barnabas.hooks import specs

HOOKS = {"own_figures": "own_metrics"}
ARGUMENTS = {"figures": "metrics"}


class AcceptedSpecs(specs.Specs):
    """The hooks with the arguments that a plugin may still name."""

    @specs.hookspec(
        warn_on_impl_args={
            "figures": DeprecationWarning("the argument figures of report_metrics is metrics now")
        }
    )
    def report_metrics(  # type: ignore[override]
        self, metrics: Mapping[str, float], now_ms: int, figures: Mapping[str, float]
    ) -> None:
        raise NotImplementedError


class AcceptingManager(pluggy.PluginManager):
    """Takes an implementation under a former name for one of the hook, with a warning."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        options = super().parse_hookimpl_opts(plugin, name)
        if options is not None and name in HOOKS and options["specname"] is None:
            warnings.warn(f"the hook {name} is {HOOKS[name]} now", DeprecationWarning, stacklevel=2)
            options["specname"] = HOOKS[name]
        return options
