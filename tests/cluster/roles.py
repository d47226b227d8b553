"""Finds the broker that leads a partition, is the controller, or coordinates a group or a
transactional id."""

from __future__ import annotations

import random

from cluster.acknowledged import leaders_and_isrs
from cluster.three_brokers import BrokerProcess, Cluster
from compat.support import Wire
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from waiting import soon

from barnabas.wire import request

ROLES = ("leader", "follower", "controller", "coordinator")
FIND_COORDINATOR = 10
GROUP, TRANSACTION = 0, 1


def coordinator(cluster: Cluster, name: str, kind: int, ask: int = 1) -> int:
    """Returns the id of the coordinator of a group or a transactional id, as one broker reports
    it."""

    def known() -> int | None:
        body = request(FIND_COORDINATOR).cls(coordinatorKeys=[name], keyType=kind)
        with Wire(cluster.brokers[ask].address) as wire:
            [row] = wire.call(FIND_COORDINATOR, 4, body).coordinators
        return row.nodeId if row.errorCode == 0 else None

    return soon(known, f"{name} has no coordinator")


def controller(cluster: Cluster, ask: int = 1) -> int:
    """Returns the id of the controller, as one broker reports it."""

    def known() -> int | None:
        try:
            servers = {"bootstrap.servers": cluster.brokers[ask].address}
            found = AdminClient(servers).list_topics(timeout=10).controller_id
        except KafkaException:
            return None
        return found if found in cluster.brokers else None

    return soon(known, "there is no controller")


class Role:
    """One of ROLES of a random partition of `topic`, or of `group`, and the broker that has it
    now."""

    def __init__(
        self, name: str, cluster: Cluster, topic: str, group: str, chance: random.Random
    ) -> None:
        self.name, self._cluster, self._topic, self._group = name, cluster, topic, group
        self._index = chance.choice(sorted(leaders_and_isrs(cluster.bootstrap_servers, topic)))
        self._chance = chance

    def holder(self) -> BrokerProcess:
        """Returns the broker that has the role; any one of the followers in the ISR."""
        if self.name == "controller":
            found = controller(self._cluster)
        elif self.name == "coordinator":
            found = coordinator(self._cluster, self._group, GROUP)
        else:
            leader, isr = self._state(1)
            found = leader
            if self.name == "follower":
                found = self._chance.choice([one for one in isr if one != leader])
        return self._cluster.brokers[found]

    def is_lost_by(self, broker: BrokerProcess) -> bool:
        """Returns whether another broker reports that a broker, which has ended or is paused, no
        longer has the role."""
        broker_id = broker.node_id
        ask = next(one for one in self._cluster.brokers if one != broker_id)
        if self.name == "controller":
            return controller(self._cluster, ask) != broker_id
        if self.name == "coordinator":
            return coordinator(self._cluster, self._group, GROUP, ask) != broker_id
        leader, isr = self._state(ask)
        return leader > 0 and leader != broker_id and broker_id not in isr

    def _state(self, ask: int) -> tuple[int, list[int]]:
        found = leaders_and_isrs(self._cluster.brokers[ask].address, self._topic)
        return found.get(self._index, (-1, []))
