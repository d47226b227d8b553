"""Brings leadership back to preferred replicas (auto.leader.rebalance.enable).

Every leader.imbalance.check.interval.seconds the controller counts, for each broker, the partitions
whose preferred replica it is, and those of them that another broker leads. Above
leader.imbalance.per.broker.percentage the preferred replicas are elected, where they are alive and
in sync. Partitions that are being moved or deleted are left alone.

Kafka: KafkaController.checkAndTriggerAutoLeaderRebalance.
"""

from __future__ import annotations

import logging

from barnabas.controller.controller_role import ControllerRole
from barnabas.controller.elections import Elections
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader
from barnabas.metadata.tree import MetadataError

log = logging.getLogger("barnabas.controller")

Place = tuple[str, int]


def out_of_balance(state: ClusterState, percentage: int) -> list[Place]:
    """Returns the partitions whose preferred replicas are to be elected. `percentage`: how many of
    a broker's preferred partitions may be led by others."""
    counts: dict[int, int] = {}  # by preferred replica
    led_elsewhere: dict[int, int] = {}
    able: dict[int, list[Place]] = {}
    for name, topic in state.topics.items():
        moving = topic.assignment.adding_replicas.keys() | topic.assignment.removing_replicas.keys()
        for index, partition in topic.partitions.items():
            if topic.deleting or not partition.replicas or partition.state is None:
                continue
            first = partition.replicas[0]
            counts[first] = counts.get(first, 0) + 1
            if partition.state.leader == first:
                continue
            led_elsewhere[first] = led_elsewhere.get(first, 0) + 1
            if index not in moving and first in state.brokers and first in partition.state.isr:
                able.setdefault(first, []).append((name, index))
    return [
        place
        for first, places in able.items()
        if 100 * led_elsewhere[first] > percentage * counts[first]
        for place in places
    ]


class LeaderBalance:
    """The repeating task of every broker; only that of the controller does something."""

    def __init__(
        self,
        reader: ClusterStateReader,
        role: ControllerRole,
        elections: Elections,
        percentage: int,
    ) -> None:
        self._reader = reader
        self._role = role
        self._elections = elections
        self._percentage = percentage

    def run(self) -> None:
        """Elects preferred replicas where a broker leads too few of its partitions."""
        try:
            check = self._role.fence()
            if check is None:
                return
            places = out_of_balance(self._reader.state, self._percentage)
            if places:
                outcomes = self._elections.prefer(check, places)
                count = sum(error is None for error in outcomes.values())
                log.info("preferred replicas lead %d of %d partitions again", count, len(places))
        except MetadataError as error:
            log.warning("leadership is balanced later: %s", error)
