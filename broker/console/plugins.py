"""The page of plugins: those in use on this broker, with their calls and their own metrics.

The protocol does not have them; a user who may describe the cluster sees them.
"""

from __future__ import annotations

from barnabas.console.visit import Page, Visit

VALUES_MAX = 100  # of a plugin's own metrics


def all_plugins(visit: Visit) -> Page:
    """The plugins of this broker."""
    visit.check_describe_cluster("The page of plugins")
    rows = []
    for plugin in visit.own.plugins():
        metrics = [
            (name, topic, value)
            for name, values in sorted(visit.own.plugin_metrics(plugin).items())
            for topic, value in sorted(values.items(), key=lambda row: str(row[0]))
        ]
        rows.append({"plugin": plugin, "metrics": metrics[:VALUES_MAX]})
    return Page("plugins.html", {"rows": rows})
