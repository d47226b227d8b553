"""Warns about settings that this node cannot apply, and settings that a dynamic value overrides.

When the node starts, it logs one line at WARNING for each of them: the setting, its value, the
place where it is set, and the value in force instead.
"""

from __future__ import annotations

import logging

from barnabas.config import DynamicConfig
from barnabas.config.layers import (
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT_BROKER,
    STATIC_BROKER,
    candidates,
)
from barnabas.config.settings import BROKER_SETTINGS
from barnabas.metadata.cluster_state import ClusterState

log = logging.getLogger("barnabas.node")

MIN_ISR = "min.insync.replicas"
ALONE = "this node is the only one (metadata.store=embedded)"
ACKS_ALL = (
    f"a partition has 1 replica, because {ALONE}, and acks=all waits for that one alone (as in"
    " Kafka, where the smaller of the two numbers counts)"
)
INTERNAL_TOPIC = f"the topic gets replication factor 1, because {ALONE}"
NOT_APPLIED = {
    "default.replication.factor": (
        f"{ALONE}. A topic without a replication factor of its own is refused with"
        " INVALID_REPLICATION_FACTOR; set this to 1"
    ),
    "offsets.topic.replication.factor": INTERNAL_TOPIC,
    "transaction.state.log.replication.factor": INTERNAL_TOPIC,
    "share.coordinator.state.topic.replication.factor": INTERNAL_TOPIC,
    MIN_ISR: ACKS_ALL,
    "transaction.state.log.min.isr": ACKS_ALL,
    "share.coordinator.state.topic.min.isr": ACKS_ALL,
}
ALTERED = {DYNAMIC_BROKER: "for this broker", DYNAMIC_DEFAULT_BROKER: "for every broker"}
NAMED_MAX = 3  # topics in one line


def warn(dynamic: DynamicConfig, state: ClusterState) -> None:
    """Logs one line at WARNING for each setting without effect."""
    alone = () if state.is_shared else (*not_applied(dynamic), *not_applied_topics(state))
    for line in (*alone, *overridden(dynamic)):
        log.warning("%s", line)


def not_applied(dynamic: DynamicConfig) -> list[str]:
    """Returns the settings that request more replicas than partitions have."""
    lines = []
    for name in names_not_applied(dynamic):
        given = dynamic.layers.given(BROKER_SETTINGS[name])[0]
        where = _origin(dynamic, name, given.source)
        lines.append(f"{name}={given.text} ({where}) is not applied: {NOT_APPLIED[name]}.")
    return lines


def names_not_applied(dynamic: DynamicConfig) -> list[str]:
    """Returns the names of the given settings that request more replicas than partitions have on a
    single node; NOT_APPLIED has the reasons."""
    given = [name for name in NOT_APPLIED if dynamic.layers.given(BROKER_SETTINGS[name])]
    return [name for name in given if dynamic.integer(name) > 1]


def not_applied_topics(state: ClusterState) -> list[str]:
    """Returns one line about all topics whose min.insync.replicas is above the number of replicas
    that a partition has."""
    asked = {}
    for name in state.topics:
        text = state.config("topics", name).get(MIN_ISR, "")
        if text.isdecimal() and int(text) > 1:
            asked[name] = text
    if not asked:
        return []
    named = [f"{MIN_ISR}={text} of topic {name}" for name, text in sorted(asked.items())]
    more = f" and {len(named) - NAMED_MAX} more topics" if len(named) > NAMED_MAX else ""
    return [f"{', '.join(named[:NAMED_MAX])}{more}: not applied: {ACKS_ALL}."]


def overridden(dynamic: DynamicConfig) -> list[str]:
    """Returns the settings given at the start that have no effect, because a dynamic value
    overrides them."""
    lines = []
    for name in sorted(dynamic.layers.broker.keys() | dynamic.layers.cluster.keys()):
        setting = BROKER_SETTINGS.get(name)
        found = candidates(setting, dynamic.layers) if setting is not None else []
        given = next((row for row in found if row.source == STATIC_BROKER), None)
        if given is None or found[0].value() == given.value():
            continue
        best = found[0]
        old, new = given.text, f"{name}={best.text}"
        if best.setting.is_sensitive:
            old, new = "***", f"{name}=***"
        where = _origin(dynamic, given.setting.name, STATIC_BROKER)
        kind = f"broker {dynamic.node_id}" if best.source == DYNAMIC_BROKER else "default"
        lines.append(
            f"{given.setting.name}={old} ({where}) has no effect: {new} was set"
            f" {ALTERED[best.source]} while a broker ran, and overrides it. To remove that value:"
            f" barnabas configs alter {kind} --delete {name}"
        )
    return lines


def _origin(dynamic: DynamicConfig, name: str, source: int) -> str:
    if source in ALTERED:
        return f"altered while a broker ran, {ALTERED[source]}"
    return dynamic.static.origins.get(name, "given at the start")
