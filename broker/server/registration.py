"""Registers a node in the metadata tree when it starts, and in each new session.

The cluster id is made once and never changes. The znodes of the broker and of the controller are
ephemeral: they end with the session.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.config import BrokerConfig
from barnabas.config.listeners import Listener
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import Broker
from barnabas.metadata.tree import (
    BadVersion,
    CreateNode,
    DeleteNode,
    MetadataError,
    MetadataTree,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    OutcomeUnknown,
    SetData,
    StoreUnavailable,
    parent_of,
)
from barnabas.metadata.znode_json import USE_LATER, ZnodeDataError, ZnodeTooNew
from barnabas.metadata.znodes import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    TopicAssignment,
)
from barnabas.storage.log_dirs import UnusableDirectory

log = logging.getLogger("barnabas.node")

ATTEMPTS_MAX = 10
ONLY_NODE_ID = 1
RESTORE = (
    "Restore the metadata directory",
    "Correct zookeeper.connect and its chroot, run `barnabas cluster join` if this node has used an"
    " embedded store, or `barnabas cluster recover` if ZooKeeper's data is lost",
)


def claim_cluster(
    tree: MetadataTree, known: Iterable[str], random_bytes: Callable[[int], bytes]
) -> str:
    """Returns the cluster id of the metadata store; gives a new store a new id. `known`: the
    cluster ids in the meta.properties of the log directories. Raises UnusableDirectory when the
    store is new and the log directories belong to a cluster, or when a command has not finished its
    work on the store; ZnodeDataError when the id cannot be read."""
    theirs = sorted(known)
    try:
        data = tree.get(znodes.CLUSTER_ID_PATH)[0]
    except NoNode:
        data = b""
    unfinished, cluster_id = None, ""
    try:
        if data:
            unfinished = znodes.decode_unfinished(data)
            cluster_id = "" if unfinished is not None else znodes.decode_cluster_id(data)
    except ZnodeTooNew as error:
        raise ZnodeTooNew(f"{znodes.CLUSTER_ID_PATH}: {error}. {USE_LATER}") from error
    except ZnodeDataError as error:
        raise ZnodeDataError(f"{znodes.CLUSTER_ID_PATH}: {error}") from error
    if unfinished is not None:
        raise UnusableDirectory(
            f"{unfinished} has not finished its work on this metadata tree. Run it again with the"
            " same arguments, and start brokers after it."
        )
    if theirs and not data:
        raise UnusableDirectory(
            f"the log directories belong to cluster {theirs[0]}, and its metadata is not here."
            f" {RESTORE[tree.is_shared]}, or set log.dirs to an empty place."
        )
    tree.ensure_paths(znodes.PERSISTENT_PATHS)
    if cluster_id:
        return cluster_id
    cluster_id = znodes.new_uuid(random_bytes)
    tree.ensure_path(parent_of(znodes.CLUSTER_ID_PATH))
    try:
        tree.create(znodes.CLUSTER_ID_PATH, znodes.encode_cluster_id(cluster_id))
    except NodeExists:  # another node was faster
        return znodes.decode_cluster_id(tree.get(znodes.CLUSTER_ID_PATH)[0])
    return cluster_id


def choose_node_id(
    tree: MetadataTree, config: BrokerConfig, identities: Iterable[Mapping[str, str]]
) -> int:
    """Returns the node id: that of the settings; else that of the log directories; else the one
    that the embedded store places partitions on; else a new one. On an embedded store, which has
    one node, a new id is 1, as in Kafka's shipped server.properties. On a shared store, or when
    reserved.broker.max.id is set, it is the next number of a sequence in the tree, above that
    setting. Raises UnusableDirectory when no directory names an id and the embedded store
    contradicts the settings or names several nodes, or when broker.id.generation.enable is off and
    no id is known.
    """
    known = [_id_in(identity) for identity in identities]
    found = next((node_id for node_id in known if node_id is not None), None)
    if found is None and not tree.is_shared:
        found = _id_in_store(tree, config.node_id)
    if config.node_id >= 0:
        return config.node_id
    if found is not None:
        return found
    if not config.boolean("broker.id.generation.enable"):
        raise UnusableDirectory("broker.id.generation.enable is off: set node.id.")
    if not tree.is_shared and not config.is_set("reserved.broker.max.id"):
        return ONLY_NODE_ID
    number = tree.set(znodes.BROKER_SEQUENCE_PATH, b"").version
    return config.integer("reserved.broker.max.id") + number


def _id_in(identity: Mapping[str, str]) -> int | None:
    text = identity.get("node.id", identity.get("broker.id", ""))
    return int(text) if text.isdecimal() else None


def _id_in_store(tree: MetadataTree, asked: int) -> int | None:
    """Returns the node that an embedded store places its partitions on; None without topics. A node
    with another id would treat all of them as stray partitions. `asked`: node.id of the settings,
    -1 when it is not set. Raises UnusableDirectory when the store does not name `asked`, or when
    `asked` is not set and the store names several nodes."""
    owners: set[int] = set()
    for name in tree.children(znodes.TOPICS_PATH):
        data, _ = tree.get(znodes.topic_path(name))
        for replicas in TopicAssignment.decode(data).partitions.values():
            owners.update(replicas)
    if not owners:
        return None
    if asked not in owners if asked >= 0 else len(owners) > 1:
        raise UnusableDirectory(
            "meta.properties is missing or empty in every log directory, and the metadata places"
            f" partitions on node {', '.join(map(str, sorted(owners)))}. Set node.id to the id that"
            " this node had, or restore meta.properties."
        )
    owner = asked if asked >= 0 else owners.pop()
    log.warning(
        "meta.properties is missing or empty in every log directory: it is written again for node"
        " %d, which the metadata places partitions on",
        owner,
    )
    return owner


Features = Mapping[str, tuple[int, int]]  # the lowest and the highest level by name


def _registration(
    listeners: Sequence[Listener], config: BrokerConfig, features: Features, now_ms: int
) -> BrokerRegistration:
    rack = config["broker.rack"]
    return BrokerRegistration(
        endpoints=tuple(Endpoint(row.name, row.host, row.port, row.protocol) for row in listeners),
        timestamp_ms=now_ms,
        rack=str(rack) if rack else None,
        features=features,
    )


def register_again(
    tree: MetadataTree,
    node_id: int,
    listeners: Sequence[Listener],
    config: BrokerConfig,
    features: Features,
    now_ms: int,
) -> None:
    """Writes the registration with changed listeners while the node runs."""
    data = _registration(listeners, config, features, now_ms).encode()
    tree.set(znodes.broker_path(node_id), data)


def register(
    tree: MetadataTree,
    node_id: int,
    listeners: Sequence[Listener],
    config: BrokerConfig,
    features: Features,
    now_ms: int,
) -> None:
    """Registers the node in the present session. Raises UnusableDirectory when another live node
    has this id, and MetadataError."""
    path = znodes.broker_path(node_id)
    data = _registration(listeners, config, features, now_ms).encode()
    if not _claim(tree, path, data):
        raise UnusableDirectory(
            f"another node {node_id} is running in this cluster{_where(tree, path)}. Give this one"
            " its own node.id."
        )


def _where(tree: MetadataTree, path: str) -> str:
    """Returns the addresses of the node that has the id, for an error message."""
    try:
        found = BrokerRegistration.decode(tree.get(path)[0])
    except MetadataError:
        return ""
    return f" ({', '.join(map(str, found.endpoints))})"


def _claim(tree: MetadataTree, path: str, data: bytes, *also: Operation) -> bool:
    """Creates an ephemeral znode, with the operations `also` in the same multi. Returns False when
    the session of another broker has it. Raises MetadataError.

    The function replaces a znode of a former session of this broker: this process holds the lock of
    the log directories, so the former process has ended."""
    first: list[Operation] = []
    for _attempt in range(ATTEMPTS_MAX):
        try:
            tree.multi([*first, CreateNode(path, data, ephemeral=True), *also])
            return True
        except MultiFailed as failed:
            if not isinstance(failed.error, NodeExists | NoNode | BadVersion) or (
                failed.index > len(first)
            ):
                raise failed.error from failed
        except OutcomeUnknown:
            pass
        stat = tree.exists(path)
        first = []
        if stat is None:
            continue
        if stat.ephemeral_owner == tree.session_id:
            return True
        if stat.ephemeral_owner not in tree.former_sessions:
            return False
        log.info("%s is from an earlier session of this node; this session replaces it", path)
        first = [DeleteNode(path, stat.version)]
    raise StoreUnavailable(
        f"{path}: gave up after {ATTEMPTS_MAX} attempts: each was overtaken by a"
        " change of another broker"
    )


def warn_of_mixed_racks(node_id: int, brokers: Mapping[int, Broker]) -> None:
    """Logs a warning when this node has a rack and other live brokers have none, or the reverse."""
    if node_id not in brokers:
        return
    own = brokers[node_id].registration.rack
    others = [
        id_ for id_, row in brokers.items() if (row.registration.rack is None) != (own is None)
    ]
    if not others:
        return
    log.warning(
        "%s, and brokers %s have %s. Brokers of Apache Kafka create no topic in such a cluster,"
        " also no internal one. Set broker.rack on all brokers or on none.",
        "broker.rack is not set" if own is None else f"broker.rack={own}",
        ", ".join(map(str, sorted(others))),
        "a rack" if own is None else "no rack",
    )


def take_control(tree: MetadataTree, node_id: int, now_ms: int) -> int | None:
    """Becomes controller with the next controller epoch. Returns this epoch, also when this session
    is controller already; None when another node is controller. One multi writes /controller and
    the epoch, so that a controller never acts with the epoch of another. Raises MetadataError."""
    node_data = ControllerRegistration(broker_id=node_id, timestamp_ms=now_ms).encode()
    for _attempt in range(ATTEMPTS_MAX):
        step: Operation
        try:
            data, stat = tree.get(znodes.CONTROLLER_EPOCH_PATH)
            epoch = znodes.decode_controller_epoch(data)
            own = tree.exists(znodes.CONTROLLER_PATH)
            if own is not None and (own.ephemeral_owner, own.czxid) == (
                tree.session_id,
                stat.mzxid,
            ):
                return epoch
            epoch += 1
            text = znodes.encode_controller_epoch(epoch)
            step = SetData(znodes.CONTROLLER_EPOCH_PATH, text, stat.version)
        except NoNode:
            epoch = 1
            text = znodes.encode_controller_epoch(epoch)
            step = CreateNode(znodes.CONTROLLER_EPOCH_PATH, text)
        try:
            return epoch if _claim(tree, znodes.CONTROLLER_PATH, node_data, step) else None
        except (BadVersion, NodeExists):
            pass  # another node has been elected
    raise StoreUnavailable(f"no controller was elected in {ATTEMPTS_MAX} attempts")
