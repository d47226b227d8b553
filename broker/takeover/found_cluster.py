"""The metadata of a cluster of Kafka as an import uses it, whichever store it comes from.

`kraft_cluster` makes it of KRaft's records. Topics are separate, because their replicas change: the
imported cluster has one broker. All other nodes are ready to be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.metadata.tree import CreateNode, parent_of
from barnabas.takeover.metadata_image import FoundTopic


class Counts(NamedTuple):
    """What the metadata has besides topics and partitions."""

    settings: int
    access_rules: int
    users: int  # SCRAM credentials
    quotas: int
    tokens: int


@dataclass
class FoundCluster:
    """`nodes`: data by path, without topics. `losses`: what would be lost, in plain lines; an
    import is refused unless the operator accepts them. `notes`: what else is not imported."""

    topics: dict[str, FoundTopic] = field(default_factory=dict)
    nodes: dict[str, bytes] = field(default_factory=dict)
    counts: Counts = Counts(0, 0, 0, 0, 0)
    losses: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def with_parents(nodes: Mapping[str, bytes]) -> list[CreateNode]:
    """Returns the nodes, and the missing ones above them, parents before children."""
    paths = dict(nodes)
    for path in nodes:
        while (path := parent_of(path)) != "/":
            paths.setdefault(path, b"")
    return [CreateNode(path, paths[path]) for path in sorted(paths)]
