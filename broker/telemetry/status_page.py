"""The page /status: the brokers of the cluster, and the partitions that lack something, as HTML.

It shows what this broker knows, without asking others. The page lists at most PARTITIONS_MAX
partitions and shows the number of all. It escapes every text from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from barnabas.metadata.cluster_state import ClusterState

CONTENT_TYPE = "text/html; charset=utf-8"
PARTITIONS_MAX = 200
STYLE = (
    "body{font-family:sans-serif}table{border-collapse:collapse}"
    "td,th{border:1px solid #999;padding:.2em .6em;text-align:left}"
)


def status_page(state: ClusterState, node_id: int) -> bytes:
    """Returns the page of broker `node_id`."""
    led, held = _counts(state)
    brokers = [
        (
            broker_id,
            ", ".join(map(str, broker.registration.endpoints)),
            broker.registration.rack or "",
            "yes" if broker_id == state.controller_id else "",
            broker.epoch,
            led.get(broker_id, 0),
            held.get(broker_id, 0),
        )
        for broker_id, broker in sorted(state.brokers.items())
    ]
    problems = list(_problems(state))
    controller = "none" if state.controller_id is None else f"broker {state.controller_id}"
    return "".join(
        (
            f"<!DOCTYPE html><title>Cluster {escape(state.cluster_id or '')}</title>",
            f"<style>{STYLE}</style><h1>Cluster {escape(state.cluster_id or '')}</h1>",
            f"<p>Seen by broker {node_id}. Controller: {controller}, epoch"
            f" {state.controller_epoch}. Topics: {len(state.topics)}.</p>",
            *_table(
                ("broker", "listeners", "rack", "controller", "epoch", "leads", "replicas"), brokers
            ),
            f"<h2>Partitions without a leader or not fully in sync: {len(problems)}</h2>",
            *_table(
                ("partition", "leader", "leader epoch", "replicas", "in sync"),
                problems[:PARTITIONS_MAX],
            ),
        )
    ).encode()


def _counts(state: ClusterState) -> tuple[dict[int, int], dict[int, int]]:
    """Returns how many partitions each broker leads, and has."""
    led: dict[int, int] = {}
    held: dict[int, int] = {}
    for topic in state.topics.values():
        for partition in topic.partitions.values():
            if partition.state is not None:
                leader = partition.state.leader
                led[leader] = led.get(leader, 0) + 1
            for broker_id in partition.replicas:
                held[broker_id] = held.get(broker_id, 0) + 1
    return led, held


def _problems(state: ClusterState) -> Iterator[Sequence[object]]:
    for name, topic in sorted(state.topics.items()):
        for index, partition in topic.partitions.items():
            found = partition.state
            leader = None if found is None or found.leader not in state.brokers else found.leader
            isr = () if found is None else found.isr
            if leader is None or set(partition.replicas) - set(isr):
                epoch = "" if found is None else found.leader_epoch
                replicas = ", ".join(map(str, partition.replicas))
                shown = "none" if leader is None else leader
                yield f"{name}-{index}", shown, epoch, replicas, ", ".join(map(str, isr))


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "<table><tr>" + "".join(f"<th>{name}</th>" for name in columns) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>"
    yield "</table>"
