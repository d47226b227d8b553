"""The pages of health and of brokers: what is wrong, replicas, reassignments, settings, rates."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.client import Cluster, Resource, describe_configs, describe_log_dirs
from barnabas.client.admin import BROKER
from barnabas.client.reassignments import list_reassignments
from barnabas.console.history import RATES
from barnabas.console.topics import is_ailing, sliced
from barnabas.console.visit import Page, Visit
from barnabas.errors import BrokerIdNotRegistered

REFRESH_S = 5
AILING_MAX = 100  # partitions, on the page of health


class Row(NamedTuple):
    """One broker: partitions of the topics that the user may describe."""

    node_id: int
    address: str
    rack: str
    is_controller: bool
    leads: int
    has: int
    lags: int  # replicas there that are not in sync


def _brokers(client: Cluster) -> tuple[list[Row], list[tuple[str, int]]]:
    """Returns all brokers, and the partitions without a leader or with a replica not in sync."""
    topics = client.topics()
    leads: dict[int, int] = {}
    has: dict[int, int] = {}
    lags: dict[int, int] = {}
    ailing = []
    for name, topic in sorted(topics.items()):
        for row in topic.partitions.values():
            leads[row.leader] = leads.get(row.leader, 0) + 1
            for node_id in row.replicas:
                has[node_id] = has.get(node_id, 0) + 1
                lags[node_id] = lags.get(node_id, 0) + (node_id not in row.in_sync)
            if is_ailing(row):
                ailing.append((name, row.index))
    rows = [
        Row(
            broker.node_id,
            f"{broker.host}:{broker.port}",
            broker.rack or "",
            broker.node_id == client.controller_id,
            leads.get(broker.node_id, 0),
            has.get(broker.node_id, 0),
            lags.get(broker.node_id, 0),
        )
        for broker in sorted(client.brokers.values(), key=lambda row: row.node_id)
    ]
    return rows, ailing


def health(visit: Visit) -> Page:
    """The state of this broker and of the cluster, and the rates of all topics."""
    brokers, ailing = _brokers(visit.client)
    history = visit.own.history
    rates = {kind: history.rates(kind) for kind in RATES.values()}
    return Page(
        "health.html",
        {
            "problem": visit.own.problem(),
            "warning": visit.own.warning(),
            "cluster_id": visit.client.cluster_id or "",
            "brokers": brokers,
            "ailing": ailing[:AILING_MAX],
            "ailing_count": len(ailing),
            "rates": rates if visit.may_describe_cluster else {},
        },
    )


def live(visit: Visit) -> Page:
    """The present rates of the topics that the user may describe, and of all topics for a user who
    may describe the cluster. The browser loads the page again every REFRESH_S seconds."""
    history = visit.own.history

    def rate(topic: str) -> dict[str, float]:
        found = {kind: history.rates(kind, topic) for kind in RATES.values()}
        return {kind: values[-1] if values else 0.0 for kind, values in found.items()}

    rows = [(name, rate(name)) for name in visit.client.topics()]
    rows.sort(key=lambda row: (-row[1]["bytes in"] - row[1]["bytes out"], row[0]))
    shown, pages = sliced(visit, rows)
    rates = {kind: history.rates(kind) for kind in RATES.values()}
    return Page(
        "live.html",
        {
            "rates": rates if visit.may_describe_cluster else {},
            "topics": shown,
            "pages": pages,
        },
        REFRESH_S,
    )


def all_brokers(visit: Visit) -> Page:
    """The brokers with their replicas, and the reassignments in progress."""
    brokers, _ = _brokers(visit.client)
    moves = visit.part(lambda: sorted(list_reassignments(visit.client).items()))
    shown, pages = sliced(visit, moves.value or [])
    return Page(
        "brokers.html",
        {"brokers": brokers, "moves": shown, "problem": moves.problem, "pages": pages},
    )


def one_broker(visit: Visit) -> Page:
    """A broker: `id`. Its log directories and its settings."""
    node_id = visit.number("id", visit.own.node_id, 0, 2**31 - 1)
    client = visit.client
    client.refresh([])
    if node_id not in client.brokers:
        raise BrokerIdNotRegistered(f"there is no broker {node_id} now")
    directories = visit.part(lambda: _directories(client, node_id))
    configs = visit.part(lambda: describe_configs(client, Resource(BROKER, str(node_id))))
    return Page(
        "broker.html",
        {"asked_id": node_id, "directories": directories, "configs": configs},
    )


def _directories(client: Cluster, node_id: int) -> list[dict[str, object]]:
    return [
        {
            "path": row.logDir,
            "partitions": sum(len(topic.partitions) for topic in row.topics),
            "size": sum(p.partitionSize for topic in row.topics for p in topic.partitions),
            "total": known(getattr(row, "totalBytes", -1)),
            "usable": known(getattr(row, "usableBytes", -1)),
        }
        for row in describe_log_dirs(client, node_id)
    ]


def known(size_bytes: int) -> int | None:
    return None if size_bytes < 0 else size_bytes
