"""replica.selector.class: from which replica a consumer reads (KIP-392).

The broker recognizes the names of Kafka's two classes; it cannot load a Java class.
"""

from __future__ import annotations

SELECTOR = "replica.selector.class"
BY_LEADER = "org.apache.kafka.common.replica.LeaderSelector"
BY_RACK = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def selects_by_rack(value: object) -> bool:
    """Returns whether a consumer that names its rack reads from a replica in that rack."""
    return value == BY_RACK


def selector_problems(value: object) -> list[str]:
    """Returns an error when a value of replica.selector.class is not one of Kafka's two classes."""
    if value in (None, "", BY_LEADER, BY_RACK):
        return []
    return [
        f"{SELECTOR}={value}: this class is not known. Set {BY_RACK}, with broker.rack for each"
        " broker and client.rack for each consumer, or remove the setting: then consumers read from"
        " leaders."
    ]
