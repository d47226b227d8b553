"""The actions of `barnabas cluster` on brokers that do not run.

    join                  moves the metadata of a single broker from its embedded store into
                          ZooKeeper
    leave                 moves the metadata of a cluster into the embedded store of one broker

They lock the log directories, so that no broker starts meanwhile.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.cli.connecting import json_option
from barnabas.cli.output import count_of, json_document, say, table
from barnabas.cli.stopped_broker import errors_of_one_line, settings_option
from barnabas.config import BrokerConfig

if TYPE_CHECKING:
    from barnabas.metadata.tree import CreateNode, Node

IN_ZOOKEEPER = "metadata.store=zookeeper"
# The data of these nodes, and of those below them, is never shown: it may contain secrets.
HIDDEN = ("/barnabas", "/config/brokers", "/config/users", "/delegation_token")
SHOWN_LETTERS_MAX = 60  # of data in a table


def configure(action: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the actions. `action`: of `actions_of`."""
    join = action(
        "join",
        "move the metadata of a stopped broker from its embedded store into ZooKeeper: it is then\n"
        "the first broker of a cluster. Topics, ids, offsets, users and rules stay as they are",
        connects=False,
    )
    leave = action(
        "leave",
        "move the metadata of a cluster, whose brokers are stopped, into the embedded store of\n"
        "one broker that has a complete replica of each partition; removes ZooKeeper's tree",
        connects=False,
    )
    for sub in (join, leave):
        sub.add_argument("--config", metavar="FILE", help="server.properties of the broker")
        settings_option(sub, "a setting of the broker; overrides that of the file")
        json_option(sub)
        sub.add_argument("--dry-run", action="store_true", help="print the nodes; change nothing")


@errors_of_one_line
def run(arguments: argparse.Namespace) -> int:
    """Runs an action; prints errors in one line."""
    return int(ACTIONS[arguments.action](arguments))


def _config(arguments: argparse.Namespace) -> BrokerConfig:
    """Returns the settings of the broker with its connection to ZooKeeper, whichever store its file
    names: the file is edited before or after the move. Raises ConfigError."""
    return BrokerConfig.load(arguments.config, [*arguments.settings, IN_ZOOKEEPER])


def _join(arguments: argparse.Namespace) -> int:
    from barnabas.stages.store_moves import join

    config = _config(arguments)
    moved = join(config, arguments.dry_run)
    text = (
        f"broker {moved.node_id} is in cluster {moved.cluster_id}, whose metadata is in ZooKeeper."
        f" Set {IN_ZOOKEEPER} and zookeeper.connect={config.text('zookeeper.connect')}, and start"
        " it"
    )
    return _report(arguments, moved, text)


def _leave(arguments: argparse.Namespace) -> int:
    from barnabas.stages.store_moves import leave

    moved = leave(_config(arguments), arguments.dry_run)
    text = (
        f"the metadata of cluster {moved.cluster_id} is in the embedded store of broker"
        f" {moved.node_id}. Remove metadata.store and zookeeper.* from its settings, and start it."
        " The other brokers cannot start any more"
    )
    return _report(arguments, moved, text)


def _report(arguments: argparse.Namespace, moved: Any, text: str) -> int:
    """Prints the nodes of a dry run, or that the move is complete (`text`)."""
    if arguments.dry_run:
        return print_nodes(arguments, moved.cluster_id, moved.nodes)
    if arguments.json:
        document = {"clusterId": moved.cluster_id, "broker": moved.node_id}
        json_document(document | {"nodesCopied": len(moved.nodes)})
        return 0
    say(f"copied {count_of(len(moved.nodes), 'node')}" if moved.nodes else "nothing was missing")
    say(text)
    return 0


def print_nodes(
    arguments: argparse.Namespace, cluster_id: str, nodes: Sequence["Node | CreateNode"]
) -> int:
    """Prints the nodes that a command would write, without secrets."""
    rows = [(row.path, _shown(row.path, row.data)) for row in nodes]
    if arguments.json:
        found = [dict(zip(("path", "data"), row, strict=True)) for row in rows]
        json_document({"clusterId": cluster_id, "isDryRun": True, "nodes": found})
        return 0
    table(("node", "data"), [(path, _cut(data)) for path, data in rows], empty="nothing is missing")
    say(f"dry run: {count_of(len(rows), 'node')} of cluster {cluster_id}; nothing was changed")
    return 0


def _shown(path: str, data: bytes) -> str:
    if data and any(path.startswith(top + "/") for top in HIDDEN):
        return "(hidden)"
    return data.decode("utf-8", "backslashreplace")


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_LETTERS_MAX else text[: SHOWN_LETTERS_MAX - 3] + "..."


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {"join": _join, "leave": _leave}
