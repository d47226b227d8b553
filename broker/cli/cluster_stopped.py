"""The actions of `barnabas cluster` on brokers that do not run.

    join                  moves the metadata of a single broker from its embedded store into
                          ZooKeeper
    leave                 moves the metadata of a cluster into the embedded store of one broker
    inventory, recover    rebuild the metadata from log directories when ZooKeeper's data is lost

They lock the log directories, so that no broker starts while they run.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.cli.connecting import json_option
from barnabas.cli.output import count_of, fail, json_document, say, table
from barnabas.cli.parser import settings_option
from barnabas.cli.stopped_broker import errors_of_one_line
from barnabas.config import BrokerConfig

if TYPE_CHECKING:
    from barnabas.controller.rebuilt_tree import Inventory
    from barnabas.metadata.tree import CreateNode, Node

IN_ZOOKEEPER = "metadata.store=zookeeper"
# The data of these nodes, and of those below them, is never shown: it may contain secrets.
HIDDEN = ("/barnabas", "/config/brokers", "/config/users", "/delegation_token")
INVENTORY_BYTES_MAX = 256 << 20
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
    inventory = action(
        "inventory",
        "list what the log directories of a stopped broker hold; --json writes it for `recover`",
        connects=False,
    )
    recover = action(
        "recover",
        "rebuild the metadata of a cluster in an empty ZooKeeper, when its data is lost, from\n"
        "inventories of all brokers. Prints what cannot be rebuilt",
        connects=False,
    )
    recover.add_argument("inventories", metavar="FILE", nargs="+", help="of `inventory --json`")
    recover.add_argument(
        "--allow-missing",
        action="store_true",
        help="partitions of which no broker has a directory begin empty",
    )
    for sub in (join, leave, inventory, recover):
        sub.add_argument("--config", metavar="FILE", help="server.properties of the broker")
        settings_option(sub, "a setting of the broker; overrides that of the file")
        json_option(sub)
        if sub is not inventory:
            help = "print the nodes; change nothing"
            sub.add_argument("--dry-run", action="store_true", help=help)


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


def _inventory(arguments: argparse.Namespace) -> int:
    from barnabas.cli.log_inventory import inventory
    from barnabas.stages.store_moves import locked_directories

    config = BrokerConfig.load(arguments.config, arguments.settings)
    with locked_directories(config) as directories:
        found = inventory(directories)
    if arguments.json:
        json_document(found.document())
        return 0
    say(f"broker {found.broker_id} of cluster {found.cluster_id}")
    columns = ("topic", "partition", "end offset", "leader epoch", "topic id")
    rows = (
        (row.topic, row.partition, row.end_offset, row.leader_epoch, row.topic_id)
        for row in found.replicas
    )
    table(columns, rows, empty="no partitions")
    return 0


def _recover(arguments: argparse.Namespace) -> int:
    from barnabas.config import DynamicConfig
    from barnabas.controller.internal_topics import internal_topic
    from barnabas.controller.rebuilt_tree import CannotRebuild, rebuilt
    from barnabas.stages.store_moves import recover

    config = _config(arguments)
    inventories = []
    for file in arguments.inventories:
        found = _read_inventory(file)
        if isinstance(found, str):
            return fail(found)
        inventories.append(found)
    dynamic = DynamicConfig(config, inventories[0].broker_id)

    def internal(name: str) -> Mapping[str, str] | None:
        topic = internal_topic(name, dynamic, is_cluster=True)
        if topic is None:
            return None
        return {key: value for key, value in (topic.configs or {}).items() if value is not None}

    try:
        made = rebuilt(inventories, internal, os.urandom, arguments.allow_missing)
    except CannotRebuild as error:
        for problem in error.problems:
            fail(problem)
        return 1
    highest = max(row.broker_id for row in inventories)
    recover(config, made.cluster_id, made.nodes, highest, arguments.dry_run)
    if arguments.dry_run:
        print_nodes(arguments, made.cluster_id, made.nodes)
    elif arguments.json:
        json_document(
            {"clusterId": made.cluster_id, "nodesWritten": len(made.nodes), "notes": made.lines}
        )
    else:
        say(f"wrote {count_of(len(made.nodes), 'node')} of cluster {made.cluster_id}")
    for line in made.lines:
        say(line)
    return 0


def _read_inventory(file: str) -> "Inventory | str":
    """Returns an inventory, or what is wrong with the file."""
    from barnabas.controller.rebuilt_tree import Inventory
    from barnabas.metadata.znode_json import ZnodeDataError

    try:
        with open(file, "rb") as opened:
            return Inventory.decode(opened.read(INVENTORY_BYTES_MAX))
    except OSError as error:
        return f"cannot read {file}: {error.strerror}."
    except ZnodeDataError as error:
        return (
            f"{file} is not an inventory: {error}. `barnabas cluster inventory --json` makes one."
        )


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


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "join": _join,
    "leave": _leave,
    "inventory": _inventory,
    "recover": _recover,
}
