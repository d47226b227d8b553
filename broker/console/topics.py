"""The pages of topics: their partitions and settings; creation, deletion and changed settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from barnabas.client import (
    EARLIEST,
    LATEST,
    Cluster,
    ConfigChange,
    NewTopic,
    Partition,
    Resource,
    alter_configs,
    create_topics,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    list_offsets,
)
from barnabas.client.admin import DELETE as REMOVE
from barnabas.client.admin import SET, TOPIC, topic_operations
from barnabas.console.history import RATES
from barnabas.console.visit import BadParameter, Moved, Page, Visit, link
from barnabas.security.acl_codes import ALTER_CONFIGS, DELETE, READ

ROWS_MAX = 100  # of a table on one page
PARTITIONS_MAX, REPLICATION_MAX = 100_000, 1000

T = TypeVar("T")


def sliced(visit: Visit, rows: Sequence[T]) -> tuple[Sequence[T], dict[str, int]]:
    """Returns the rows of the asked page of a table, and the numbers that its footer shows."""
    last = max((len(rows) - 1) // ROWS_MAX, 0)
    page = min(visit.number("page", 0), last)
    return rows[page * ROWS_MAX : (page + 1) * ROWS_MAX], {
        "page": page,
        "last": last,
        "count": len(rows),
    }


def all_topics(visit: Visit) -> Page:
    """The topics that the user may describe; `find`: a part of the name."""
    find = visit.text("find")
    rows = [topic for name, topic in sorted(visit.client.topics().items()) if find in name]
    shown, pages = sliced(visit, rows)
    return Page(
        "topics.html",
        {
            "topics": [
                {
                    "name": topic.name,
                    "is_internal": topic.is_internal,
                    "partitions": len(topic.partitions),
                    "replicas": max(
                        (len(p.replicas) for p in topic.partitions.values()), default=0
                    ),
                    "problems": sum(map(is_ailing, topic.partitions.values())),
                }
                for topic in shown
            ],
            "pages": pages,
            "find": find,
            # A rule for one name permits to create that topic: the broker decides.
            "may_create": visit.may_change,
        },
    )


def is_ailing(partition: Partition) -> bool:
    """Returns whether a partition has no leader, or a replica that is not in sync."""
    return partition.leader < 0 or len(partition.in_sync) < len(partition.replicas)


def one_topic(visit: Visit) -> Page:
    """A topic: `name`."""
    name = visit.needed("name")
    client = visit.client
    client.forget(name)
    topic = client.topic(name)
    shown, pages = sliced(visit, list(topic.partitions.values()))
    led = [row.index for row in shown if row.leader >= 0]
    starts = visit.part(lambda: list_offsets(client, name, dict.fromkeys(led, EARLIEST)))
    ends = visit.part(lambda: list_offsets(client, name, dict.fromkeys(led, LATEST)))
    sizes = visit.part(lambda: _sizes(client, name, shown))
    configs = visit.part(lambda: describe_configs(client, Resource(TOPIC, name)))
    operations = visit.part(lambda: topic_operations(client, name)).value or 0
    return Page(
        "topic.html",
        {
            "topic": topic,
            "partitions": shown,
            "pages": pages,
            "starts": starts.value or {},
            "ends": ends.value or {},
            "problem": starts.problem or ends.problem,
            "sizes": sizes.value or {},
            "configs": configs,
            "rates": {kind: visit.own.history.rates(kind, name) for kind in RATES.values()},
            "may_read": visit.may(READ, operations),
            "may_delete": visit.may_change and visit.may(DELETE, operations),
            "may_alter": visit.may_change and visit.may(ALTER_CONFIGS, operations),
        },
    )


def _sizes(client: Cluster, name: str, rows: Sequence[Partition]) -> dict[int, int]:
    """Returns the bytes of partitions on the disks of their leaders."""
    found: dict[int, int] = {}
    by_leader: dict[int, list[int]] = {}
    for row in rows:
        if row.leader >= 0:
            by_leader.setdefault(row.leader, []).append(row.index)
    for leader, indexes in by_leader.items():
        for directory in describe_log_dirs(client, leader, {name: indexes}):
            for topic in directory.topics:
                for partition in topic.partitions:
                    if not partition.isFutureKey:
                        found[partition.partitionIndex] = partition.partitionSize
    return found


# -- changes --------------------------------------------------------------------------------------


def create(visit: Visit) -> Moved:
    """Creates a topic: `name`, `partitions`, `replicas`; empty: the broker's defaults."""
    name = visit.text("name")
    if not name:
        raise BadParameter("Give the name of the topic.")
    count = visit.number("partitions", -1, 1, PARTITIONS_MAX)
    replicas = visit.number("replicas", -1, 1, REPLICATION_MAX)
    create_topics(visit.client, [NewTopic(name, count, replicas)])
    return Moved(link("/topic", name=name), f"Topic {name} was created.")


def delete(visit: Visit) -> Moved:
    """Deletes a topic: `name`, which `confirmed` repeats."""
    name = visit.needed("name")
    if visit.text("confirmed") != name:
        raise BadParameter(f"To delete the topic, write its name, {name}, into the form.")
    delete_topics(visit.client, [name])
    return Moved("/topics", f"Topic {name} was deleted.")


def alter(visit: Visit) -> Moved:
    """Sets a setting of a topic: `name`, `key`, `value`; or removes it: `remove`."""
    name, key = visit.needed("name"), visit.text("key")
    if not key:
        raise BadParameter("Give the name of the setting.")
    is_removed = bool(visit.text("remove"))
    change = (
        ConfigChange(REMOVE, key) if is_removed else ConfigChange(SET, key, visit.text("value"))
    )
    alter_configs(visit.client, Resource(TOPIC, name), [change])
    what = "has its default again" if is_removed else "was set"
    return Moved(link("/topic", name=name), f"Setting {key} of topic {name} {what}.")
