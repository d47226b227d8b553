"""The interfaces between the connector and the two kinds of group membership.

In zookeeper_group.py members register in ZooKeeper; in coordinator_group.py they join at a broker.
Each kind has one thread that does all rebalancing of this member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from barnabas.clients.consumer.requests import TopicAndPartition
from barnabas.clients.consumer.subscription import Subscription

Assignment = Mapping[TopicAndPartition, int]  # partition -> the number of its stream


class ConsumerRebalanceFailed(Exception):
    """A member got no share of the partitions in rebalance.max.retries attempts."""


class Owner(Protocol):
    """The connector as a membership sees it. The membership calls it on its thread."""

    def release(self, *, is_lost: bool = False) -> None:
        """Ends fetching and commits. With `is_lost` it does not commit, because the partitions may
        already belong to another member."""

    def take(self, assignment: Assignment) -> None:
        """Starts fetching from the group's committed offsets. Raises ClientError, KafkaError and
        StoreFailed when it cannot read them."""


class Group(Protocol):
    """A kind of group membership."""

    def join(self, subscription: Subscription) -> None:
        """Joins the group; returns when this member has its share of the partitions. Raises
        ConsumerRebalanceFailed, and the errors of brokers or ZooKeeper that end the attempts."""

    def member(self) -> tuple[str, int]:
        """Returns member id and generation for commits at a coordinator."""

    def stop(self) -> None:
        """Ends the thread, and with it rebalancing."""

    def leave(self) -> None:
        """Called after stop and the last commit: gives the partitions to the other members."""
