"""What happened to the groups of a coordinator since it started, counted for the metrics page
(telemetry/group_metrics.py). What a partition's log replays while it loads is not counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupCounts:
    """`rebalances`: of classic groups, that were completed; `consumer_epochs`, `streams_epochs`: by
    how much the epochs of groups increased; the others: committed offsets."""

    rebalances: int = 0
    consumer_epochs: int = 0
    streams_epochs: int = 0
    commits: int = 0
    expired: int = 0
    deleted: int = 0
