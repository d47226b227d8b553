"""`barnabas cluster`: shows the brokers of a cluster, their listeners, and the controller."""

import argparse
from typing import Any

from barnabas.cli.connecting import cluster_of, connection_options, json_option, speaks_to_broker
from barnabas.cli.output import json_document, say, table
from barnabas.client import ClientError, Cluster, Resource, describe_configs
from barnabas.client.admin import BROKER
from barnabas.errors import KafkaError

LISTENERS = "listeners"

EPILOG = """\
Clients connect to the address of a broker; its listeners are those in its settings.

examples:
  barnabas cluster
  barnabas cluster --json
  barnabas configs describe broker 1              the settings of a broker, by its id
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    json_option(parser)
    connection_options(parser)


@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        cluster.retrying(lambda: cluster.refresh([]))
        rows: list[dict[str, Any]] = [
            {
                "broker": broker.node_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "listeners": _listeners(cluster, broker.node_id),
                "isController": broker.node_id == cluster.controller_id,
            }
            for broker in sorted(cluster.brokers.values(), key=lambda found: found.node_id)
        ]
    if arguments.json:
        json_document({"clusterId": cluster.cluster_id, "brokers": rows})
        return 0
    say(f"cluster {cluster.cluster_id or '(without an id)'}")
    columns = ("broker", "address", "rack", "listeners", "controller")
    table(columns, [list(row.values()) for row in rows], empty="no broker is alive")
    return 0


def _listeners(cluster: Cluster, node_id: int) -> str | None:
    """Returns the listeners of a broker; None when it cannot be reached or does not describe its
    settings, so that the command still shows the other brokers."""
    try:
        found = describe_configs(cluster, Resource(BROKER, str(node_id)))
    except (KafkaError, ClientError):
        return None
    return next((row.value for row in found if row.name == LISTENERS), None)
