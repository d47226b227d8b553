"""What a form of membership and the connector owe each other.

The two forms are zookeeper_group.py, where members meet in the registry, and coordinator_group.py,
where they meet at a broker. Each has one thread on which all rebalancing of this member happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from barnabas.clients.consumer.requests import TopicAndPartition
from barnabas.clients.consumer.subscription import Subscription

Assignment = Mapping[TopicAndPartition, int]  # the number of the stream that gets a partition


class ConsumerRebalanceFailed(Exception):
    """A member came to no share of the partitions in rebalance.max.retries attempts."""


class Owner(Protocol):
    """The connector, as a form of membership sees it. Called on the membership's thread."""

    def release(self, *, is_lost: bool = False) -> None:
        """Ends fetching and commits; with is_lost the partitions may be another's already, and
        nothing is committed."""

    def take(self, assignment: Assignment) -> None:
        """Begins to fetch, where the group's offsets say. Raises ClientError, KafkaError and
        StoreFailed when these cannot be read."""


class Group(Protocol):
    """A form of membership."""

    def join(self, subscription: Subscription) -> None:
        """Returns when this member has its share. Raises ConsumerRebalanceFailed, and what the
        brokers or ZooKeeper refuse for good."""

    def member(self) -> tuple[str, int]:
        """Member id and generation, with which a coordinator takes commits."""

    def stop(self) -> None:
        """Ends the thread: no more rebalancing."""

    def leave(self) -> None:
        """After stop and the last commit: the others may have the partitions."""
