"""The subscription of a group's member, and the assignment of partitions by Kafka 0.8's algorithm.

The registration in /consumers/[group]/ids/[consumer], which members at a coordinator send as user
data, is

    {"version":1,"subscription":{"TOPIC":STREAMS,...},"pattern":"static","timestamp":"MS"}

pattern is static, white_list or black_list. With a list the subscription's one key is its regular
expression. A member whose registration is missing or invalid has no streams and gets no partitions.

Each stream of a member is a consumer thread, CONSUMER-0, CONSUMER-1, ... For each topic the
algorithm sorts threads and partitions and gives each thread the same number of consecutive
partitions. When the number does not divide, the first threads get one partition more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.clients.consumer.requests import TopicAndPartition
from barnabas.clients.consumer.topic_filter import Blacklist, TopicFilter, Whitelist

STATIC = "static"
VERSION = 1
STREAMS_MAX = 10_000  # streams of one member for one topic; a larger number counts as invalid

Threads = dict[str, list[str]]  # topic -> consumer threads


@dataclass(frozen=True, slots=True)
class Subscription:
    """Number of streams by topic, or by expression when the member uses a filter."""

    counts: Mapping[str, int]
    topic_filter: TopicFilter | None = None

    @property
    def pattern(self) -> str:
        return STATIC if self.topic_filter is None else self.topic_filter.pattern

    def topics(self, existing: Iterable[str], exclude_internal_topics: bool) -> list[str]:
        """Returns the existing topics that the member reads; with a static pattern, all that it
        names."""
        if self.topic_filter is None:
            return sorted(self.counts)
        allowed = self.topic_filter.is_topic_allowed
        return sorted(topic for topic in existing if allowed(topic, exclude_internal_topics))

    def threads(self, consumer_id: str, topics: Iterable[str]) -> Threads:
        """Returns the consumer threads of a member for the topics that it reads."""
        if self.topic_filter is None:
            return {
                topic: _threads(consumer_id, self.counts[topic])
                for topic in topics
                if topic in self.counts
            }
        (count,) = self.counts.values()
        return {topic: _threads(consumer_id, count) for topic in topics}

    def document(self, now_ms: int) -> bytes:
        """Returns the registration as JSON."""
        fields = {
            "version": VERSION,
            "subscription": dict(self.counts),
            "pattern": self.pattern,
            "timestamp": str(now_ms),
        }
        return json.dumps(fields, separators=(",", ":")).encode()


NOTHING = Subscription({})


def subscription_of(document: bytes) -> Subscription:
    """Parses a registration; returns NOTHING for bytes that it cannot parse."""
    try:
        fields = json.loads(document)
        counts = {str(topic): int(count) for topic, count in fields["subscription"].items()}
        if not counts or not all(0 < count <= STREAMS_MAX for count in counts.values()):
            return NOTHING
        pattern = fields.get("pattern", STATIC)
        if pattern == STATIC:
            return Subscription(counts)
        kind = {Whitelist.pattern: Whitelist, Blacklist.pattern: Blacklist}[pattern]
        (regex,) = counts
        return Subscription(counts, kind(regex))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return NOTHING


def assigned(
    partitions: Mapping[str, Iterable[int]], threads: Mapping[str, Iterable[str]]
) -> dict[TopicAndPartition, str]:
    """Assigns the partitions of each topic to its threads. Returns partition -> consumer thread."""
    found = {}
    for topic, all_threads in threads.items():
        takers, left = sorted(all_threads), sorted(partitions.get(topic, ()))
        if not takers:
            continue
        least, more = divmod(len(left), len(takers))
        at = 0
        for place, thread in enumerate(takers):
            count = least + (place < more)
            for partition in left[at : at + count]:
                found[TopicAndPartition(topic, partition)] = thread
            at += count
    return found


def _threads(consumer_id: str, count: int) -> list[str]:
    return [f"{consumer_id}-{index}" for index in range(count)]
