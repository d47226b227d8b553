"""What is wrong with the partitions of a cluster, as its metadata says."""

from collections.abc import Mapping
from typing import Any

from barnabas.client.admin import TOPIC, Resource, describe_configs
from barnabas.client.cluster import Cluster, Topic

MIN_ISR = "min.insync.replicas"


def problems_of(
    cluster: Cluster, topics: Mapping[str, Topic], broker: int | None = None
) -> list[dict[str, Any]]:
    """Returns what is wrong: no controller, partitions without a leader, replicas that are not in
    sync. `topics`: of Cluster.topics, which has asked for the controller too; `broker`: only
    partitions with a replica there.

    A row has `problem`, and `topic` and `partition` unless it is about the cluster. Raises
    KafkaError, ClientError."""
    problems: list[dict[str, Any]] = []
    if cluster.controller_id < 0:
        problems.append({"problem": "there is no controller"})
    minimums: dict[str, int] = {}
    for name, topic in sorted(topics.items()):
        for index, row in topic.partitions.items():
            if broker is not None and broker not in row.replicas:
                continue
            missing = [replica for replica in row.replicas if replica not in row.in_sync]
            if row.leader < 0:
                text = "no leader"
            elif not missing:
                continue
            else:
                if name not in minimums:
                    minimums[name] = _min_isr(cluster, name)
                text = f"not in sync: {', '.join(map(str, missing))}"
                if len(row.in_sync) < minimums[name]:
                    text += f"; fewer in sync than {MIN_ISR}={minimums[name]}: acks=all is refused"
            problems.append({"topic": name, "partition": index, "problem": text})
    return problems


def _min_isr(cluster: Cluster, topic: str) -> int:
    found = describe_configs(cluster, Resource(TOPIC, topic))
    return next((int(row.value) for row in found if row.name == MIN_ISR), 1)
