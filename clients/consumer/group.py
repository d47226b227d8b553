"""The interfaces between the connector and the two kinds of group membership.

In zookeeper_group.py members register in ZooKeeper; in coordinator_group.py they join at a broker.
Each kind has one thread that does all rebalancing of this member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from barnabas.clients.consumer.requests import TopicAndPartition
from barnabas.clients.consumer.subscription import Subscription

Assignment = Mapping[TopicAndPartition, int]  # the number of the stream that gets a partition


class ConsumerRebalanceFailed(Exception):
    """A member got no share of the partitions in rebalance.max.retries attempts."""


class Owner(Protocol):
    """The connector, as seen by a membership, which calls it on its own thread."""

    def release(self, *, is_lost: bool = False) -> None:
        """Ends fetching and commits. With is_lost it does not commit: the partitions may belong to
        another member already."""

    def take(self, assignment: Assignment) -> None:
        """Begins to fetch from the group's offsets. Raises ClientError, KafkaError and StoreFailed
        when these cannot be read."""


class Group(Protocol):
    """A kind of group membership."""

    def join(self, subscription: Subscription) -> None:
        """Returns when this member has its share. Raises ConsumerRebalanceFailed, and the final
        errors of brokers or ZooKeeper."""

    def member(self) -> tuple[str, int]:
        """Member id and generation for commits at a coordinator."""

    def stop(self) -> None:
        """Ends the thread: no more rebalancing."""

    def leave(self) -> None:
        """Called after stop and the last commit: gives the partitions to the other members."""
