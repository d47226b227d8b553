"""The throttle of moves of partitions (KIP-73), set and removed as by kafka-reassign-partitions, so
that either tool removes what the other has set.

Topics name the replicas that send (those that a partition has) and those that receive (those that
it gets); brokers have the rate. Kafka: ReassignPartitionsCommand.
"""

from collections.abc import Iterable, Mapping, Sequence

from barnabas.client.admin import (
    BROKER,
    DELETE,
    SET,
    TOPIC,
    ConfigChange,
    Resource,
    alter_configs,
    describe_configs,
    describe_log_dirs,
)
from barnabas.client.cluster import Cluster
from barnabas.client.reassignments import Move, Place

REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
RATES = "leader.replication.throttled.rate", "follower.replication.throttled.rate"


def throttled_replicas(
    present: Mapping[Place, Sequence[int]], wanted: Mapping[Place, Sequence[int]]
) -> dict[str, tuple[str, str]]:
    """Returns the values of both settings of REPLICAS, by topic. `present`, `wanted`: the replicas
    of the partitions that move, by topic and partition."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, index), target in sorted(wanted.items()):
        senders, receivers = found.setdefault(topic, ([], []))
        replicas = present.get((topic, index), ())
        senders += [f"{index}:{broker}" for broker in replicas]
        receivers += [f"{index}:{broker}" for broker in target if broker not in replicas]
    return {topic: (",".join(rows[0]), ",".join(rows[1])) for topic, rows in found.items()}


def throttle_moves(
    cluster: Cluster,
    present: Mapping[Place, Sequence[int]],
    wanted: Mapping[Place, Sequence[int]],
    bytes_s: int,
) -> None:
    """Lets each live broker send at most `bytes_s` bytes/s of the moves, and receive at most as
    much. Call it before the moves begin, or again to change the rate. Raises KafkaError,
    ClientError."""
    for topic, values in throttled_replicas(present, wanted).items():
        changes = [ConfigChange(SET, *row) for row in zip(REPLICAS, values, strict=True)]
        alter_configs(cluster, Resource(TOPIC, topic), changes)
    brokers = {id_ for rows in (present, wanted) for place in wanted for id_ in rows.get(place, ())}
    for broker in sorted(brokers & cluster.brokers.keys()):
        changes = [ConfigChange(SET, name, str(bytes_s)) for name in RATES]
        alter_configs(cluster, Resource(BROKER, str(broker)), changes)


def remove_throttles(cluster: Cluster, topics: Iterable[str]) -> bool:
    """Removes the throttles of topics whose moves have ended, and the rates of all live brokers.
    Returns False, and changes nothing, when none of the topics has one."""
    throttled = [name for name in sorted(set(topics)) if _is_throttled(cluster, name)]
    for name in throttled:
        alter_configs(
            cluster, Resource(TOPIC, name), [ConfigChange(DELETE, row) for row in REPLICAS]
        )
    for broker in sorted(cluster.brokers) if throttled else ():
        changes = [ConfigChange(DELETE, name) for name in RATES]
        alter_configs(cluster, Resource(BROKER, str(broker)), changes)
    return bool(throttled)


def _is_throttled(cluster: Cluster, topic: str) -> bool:
    return any(
        row.name in REPLICAS and row.value
        for row in describe_configs(cluster, Resource(TOPIC, topic))
    )


def copied_bytes(
    cluster: Cluster, moves: Mapping[Place, Move], leaders: Mapping[Place, int]
) -> tuple[int, int]:
    """Returns how many bytes of the moves the new replicas have, and how many they will have, by
    the sizes of the replicas. `leaders`: the leaders of the partitions; a partition without a live
    leader does not count."""
    pairs = [
        (place, leaders[place], broker)
        for place, move in moves.items()
        if leaders.get(place) in cluster.brokers
        for broker in move.adding
        if broker in cluster.brokers
    ]
    sizes = {
        broker: _sizes(cluster, broker, [row[0] for row in pairs if broker in row[1:]])
        for broker in {id_ for row in pairs for id_ in row[1:]}
    }
    rows = [(sizes[broker].get(p, 0), sizes[leader].get(p, 0)) for p, leader, broker in pairs]
    return sum(min(row) for row in rows), sum(whole for _, whole in rows)


def _sizes(cluster: Cluster, broker: int, places: Iterable[Place]) -> dict[Place, int]:
    asked: dict[str, set[int]] = {}
    for topic, index in places:
        asked.setdefault(topic, set()).add(index)
    return {
        (topic.name, row.partitionIndex): row.partitionSize
        for directory in describe_log_dirs(cluster, broker, asked)
        for topic in directory.topics
        for row in topic.partitions
    }
