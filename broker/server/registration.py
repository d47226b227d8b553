"""What a node writes of itself into the metadata tree when it starts.

The cluster id is made once and never changes; the node's own entry and the controller's seat are
ephemeral: they go with the session, so that one start finds nothing of the former ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.config import BrokerConfig
from barnabas.config.listeners import Listener
from barnabas.metadata import znodes
from barnabas.metadata.tree import (
    CreateNode,
    MetadataTree,
    MultiFailed,
    NodeExists,
    NoNode,
    SetData,
    parent_of,
)
from barnabas.metadata.znodes import BrokerRegistration, ControllerRegistration, Endpoint
from barnabas.storage.log_dirs import UnusableDirectory


def claim_cluster(
    tree: MetadataTree, known: Iterable[str], random_bytes: Callable[[int], bytes]
) -> str:
    """The cluster id of the store; a new store takes a new one. `known`: what the log directories
    say. Raises UnusableDirectory when logs are there and their metadata is not."""
    tree.ensure_paths(znodes.PERSISTENT_PATHS)
    try:
        return znodes.decode_cluster_id(tree.get(znodes.CLUSTER_ID_PATH)[0])
    except NoNode:
        pass
    theirs = sorted(known)
    if theirs:
        raise UnusableDirectory(
            f"the log directories belong to cluster {theirs[0]}, and its metadata is not here."
            " Restore the metadata directory, or set log.dirs to an empty place."
        )
    cluster_id = znodes.new_uuid(random_bytes)
    tree.ensure_path(parent_of(znodes.CLUSTER_ID_PATH))
    tree.create(znodes.CLUSTER_ID_PATH, znodes.encode_cluster_id(cluster_id))
    return cluster_id


def choose_node_id(
    tree: MetadataTree, config: BrokerConfig, identities: Iterable[Mapping[str, str]]
) -> int:
    """The id of the settings; else that of the log directories; else a new one, above
    reserved.broker.max.id, from a sequence in the tree."""
    if config.node_id >= 0:
        return config.node_id
    for identity in identities:
        text = identity.get("node.id", identity.get("broker.id", ""))
        if text.isdecimal():
            return int(text)
    if not config.boolean("broker.id.generation.enable"):
        raise UnusableDirectory("broker.id.generation.enable is off: set node.id.")
    number = tree.set(znodes.BROKER_SEQUENCE_PATH, b"").version
    return config.integer("reserved.broker.max.id") + number


def _registration(
    listeners: Sequence[Listener], config: BrokerConfig, now_ms: int
) -> BrokerRegistration:
    rack = config["broker.rack"]
    return BrokerRegistration(
        endpoints=tuple(Endpoint(row.name, row.host, row.port, row.protocol) for row in listeners),
        timestamp_ms=now_ms,
        rack=str(rack) if rack else None,
    )


def register_again(
    tree: MetadataTree,
    node_id: int,
    listeners: Sequence[Listener],
    config: BrokerConfig,
    now_ms: int,
) -> None:
    """Other listeners, while the node runs."""
    tree.set(znodes.broker_path(node_id), _registration(listeners, config, now_ms).encode())


def register(
    tree: MetadataTree,
    node_id: int,
    listeners: Sequence[Listener],
    config: BrokerConfig,
    now_ms: int,
) -> None:
    """Raises UnusableDirectory when another live node has this id."""
    data = _registration(listeners, config, now_ms).encode()
    try:
        tree.create(znodes.broker_path(node_id), data, ephemeral=True)
    except NodeExists as error:
        raise UnusableDirectory(
            f"another node {node_id} is running in this cluster. Give this one its own node.id."
        ) from error


def take_control(tree: MetadataTree, node_id: int, now_ms: int) -> int:
    """Becomes controller with the next controller epoch, which is returned. The seat and the epoch
    are one multi: a controller never acts under another's epoch."""
    try:
        data, stat = tree.get(znodes.CONTROLLER_EPOCH_PATH)
        epoch = znodes.decode_controller_epoch(data) + 1
        step = SetData(
            znodes.CONTROLLER_EPOCH_PATH, znodes.encode_controller_epoch(epoch), stat.version
        )
    except NoNode:
        epoch = 1
        step = CreateNode(  # type: ignore[assignment]
            znodes.CONTROLLER_EPOCH_PATH, znodes.encode_controller_epoch(epoch)
        )
    seat = ControllerRegistration(broker_id=node_id, timestamp_ms=now_ms)
    try:
        tree.multi([CreateNode(znodes.CONTROLLER_PATH, seat.encode(), ephemeral=True), step])
    except MultiFailed as failed:
        raise failed.error from failed
    return epoch
