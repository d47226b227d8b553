"""Configured -> Opened: locks the log directories, opens the metadata store, and checks the
directories against it."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cext.memory.sys import SystemCalls
from barnabas.config import BrokerConfig, ConfigError, DynamicConfig
from barnabas.config.access import AUTHORIZER, super_users
from barnabas.config.logins import login_setting
from barnabas.config.tls import tls_setting
from barnabas.controller import config_changes, ineffective_settings
from barnabas.controller.features import registered_features
from barnabas.controller.new_partitions import give_ids
from barnabas.controller.stored_passwords import StoredPasswords
from barnabas.metadata.cluster_state import ClusterStateReader, Topic
from barnabas.metadata.tree import MetadataTree
from barnabas.metadata.znodes import CLUSTER_ID_PATH
from barnabas.server.membership import Membership
from barnabas.server.registration import choose_node_id, claim_cluster
from barnabas.stages.configured import CannotStart, Configured, Undo
from barnabas.storage import partition_dirs
from barnabas.storage.log_dirs import (
    IMPORT_UNDO,
    FailedDirectory,
    LogDir,
    UnusableDirectory,
    keep_usable,
    open_directories,
    unfinished_work,
)
from barnabas.storage.log_manager import topic_id_on_disk
from barnabas.wire.uuids import uuid_text

if TYPE_CHECKING:
    from barnabas.security.authorizer import Authorizer

log = logging.getLogger("barnabas.node")

METADATA_DIRECTORY = "metadata"
JOINED_DIRECTORY = "metadata.joined"  # the former store of a node that has joined a cluster


class Opened(NamedTuple):
    """The node knows its id, the cluster id and the cluster's metadata."""

    before: Configured
    directories: tuple[LogDir, ...]
    failed_directories: tuple[Path, ...]
    tree: MetadataTree
    membership: Membership
    reader: ClusterStateReader
    cluster_id: str
    node_id: int
    dynamic: DynamicConfig
    authorizer: Authorizer | None  # None: everyone may do everything
    passwords: StoredPasswords

    @property
    def was_clean(self) -> bool:
        return all(row.was_clean for row in self.directories)

    @property
    def needs_no_recovery(self) -> bool:
        return all(row.was_clean or row.is_new for row in self.directories)

    def topic_id_on_disk(self, topic: Topic) -> str | None:
        return _topic_id(self.directories, topic)


def open_stores(before: Configured) -> Opened:
    """Opens the log directories and the metadata store. Raises UnusableDirectory when a directory
    is missing, in use, or belongs to another node or cluster; CannotStart; and MetadataError."""
    config, system, undo = before.config, before.system, before.undo
    passwords = _passwords(config)
    keeps_metadata = config.metadata_store != "zookeeper"
    opened, failed = open_directories(config.log_dirs, keeps_metadata)
    for directory in opened:
        undo.callback(_close_directory, directory, undo)
    _check_modes(config, opened)
    first = opened[0].path
    made = None
    if not keeps_metadata:
        try:
            tree = open_zookeeper(config, first)
        except ConfigError as error:
            raise CannotStart(" ".join(error.problems)) from None
    else:
        store = embedded_directory(first)
        made = None if store.exists() else store
        tree = before.open_tree(store, system.wall_ms)
    undo.callback(tree.close)
    identities = [row.identity() for row in opened]
    known = {found for row in identities if (found := row.get("cluster.id"))}
    try:
        if not known and not tree.is_shared and tree.exists(CLUSTER_ID_PATH) is None:
            _check_no_partitions(opened)
        cluster_id = claim_cluster(tree, known, os.urandom)
    except UnusableDirectory:
        if made is not None:  # Kafka does not start on a directory with an unknown folder
            import shutil  # loads several compressors

            tree.close()
            shutil.rmtree(made, ignore_errors=True)
        raise
    node_id = choose_node_id(tree, config, identities)
    dynamic = DynamicConfig(config, node_id, on_error=_setting_failed)
    undo.callback(dynamic.on_change.clear)
    usable, unclaimed = keep_usable(
        opened, lambda row: row.claim(node_id, cluster_id), keeps_metadata
    )
    directories, failed = tuple(usable), failed + unclaimed
    listeners = before.listeners
    # The membership comes before the reader: in a new session this node registers again before the
    # reader reads the brokers.
    membership = Membership(
        tree,
        node_id,
        config,
        registered_features(),
        lambda: listeners.advertised,
        system.wall_ms,
    )
    reader = ClusterStateReader(tree, may_delete=lambda: dynamic.boolean("delete.topic.enable"))
    _load_settings(dynamic, tree, reader, passwords)
    ineffective_settings.warn(dynamic, reader.state)
    if reader.state.without_id:  # Kafka before 2.8 wrote the tree
        give_ids(tree, reader, lambda topic: _topic_id(directories, topic), os.urandom)
    return Opened(
        before,
        directories,
        tuple(failed),
        tree,
        membership,
        reader,
        cluster_id,
        node_id,
        dynamic,
        _authorizer(config, tree, system),
        passwords,
    )


def _check_no_partitions(opened: Iterable[LogDir]) -> None:
    """Checks log directories without the id of a cluster, as those of Kafka before 0.10.1, before a
    new store is used: it knows no partition, so that all of theirs would be renamed to -stray.
    Raises UnusableDirectory, FailedDirectory."""
    for row in opened:
        try:
            names = sorted(os.listdir(row.path))
        except OSError as error:
            raise FailedDirectory(f"cannot read {row.path}", error) from error
        for name in names:
            named = partition_dirs.parse(name)
            if named is not None and named.mark is None:
                raise UnusableDirectory(
                    f"{row.path} has partitions, such as {name}, and the metadata store is new."
                    " Take a directory of Apache Kafka over with `barnabas storage import`, restore"
                    " the metadata directory, or set log.dirs to an empty place."
                )


def _authorizer(config: BrokerConfig, tree: MetadataTree, system: SystemCalls) -> Authorizer | None:
    """Returns the authorizer; None: authorizer.class.name is not set. Raises MetadataError when it
    cannot read the ACLs: without them the broker does not start."""
    if not config.text(AUTHORIZER):
        return None
    from barnabas.security.authorizer import Authorizer  # few brokers need it

    everyone = config.boolean("allow.everyone.if.no.acl.found")
    return Authorizer(tree, super_users(config.values), everyone, system.monotonic_ns)


def _passwords(config: BrokerConfig) -> StoredPasswords:
    try:
        return StoredPasswords(config)
    except ConfigError as error:
        raise CannotStart(" ".join(error.problems)) from None


def _load_settings(
    dynamic: DynamicConfig,
    tree: MetadataTree,
    reader: ClusterStateReader,
    passwords: StoredPasswords,
) -> None:
    """Loads the dynamic settings from the metadata tree. Raises CannotStart when it cannot decrypt
    a setting of a listener with TLS or logins: that listener must not open with other keys, users
    or trusted authorities than those that were set. Without such listeners the broker starts, so
    that the settings can be deleted."""
    unreadable = config_changes.load(dynamic, tree, reader, passwords)
    of_listeners = [name for name in unreadable if tls_setting(name) or login_setting(name)]
    if of_listeners and any(row.protocol != "PLAINTEXT" for row in dynamic.listeners.bound):
        raise CannotStart(
            f"{', '.join(of_listeners)}: stored with another password.encoder.secret, and needed by"
            " listeners with TLS or logins. Give that secret as password.encoder.old.secret; or"
            " start once with PLAINTEXT listeners alone, and delete the settings."
        )


def _check_modes(config: BrokerConfig, directories: Iterable[LogDir]) -> None:
    """Checks that other users of this host cannot bypass authentication by the files of the log
    directories. Raises CannotStart if they may write, and logs a warning if they may read. Checks
    nothing if some listener serves clients without authentication: its clients have the data
    anyway."""
    if any(config.is_open(listener) for listener in config.listeners):
        return
    for row in directories:
        mode = stat.S_IMODE(os.stat(row.path).st_mode)
        if mode & 0o002:
            raise CannotStart(
                f"{row.path}: clients must log in, and every user of this host may write to this"
                f" log directory (mode {mode:04o}). Run: chmod o-w {row.path}; or set log.dirs to a"
                " directory in it."
            )
        if mode & 0o005:
            log.warning(
                "%s: clients must log in, and every user of this host may read this log directory"
                " (mode %04o). Run: chmod 750 %s",
                row.path,
                mode,
                row.path,
            )


def _close_directory(directory: LogDir, undo: Undo) -> None:
    directory.close(clean=undo.is_clean)


def has_joined(first: Path) -> bool:
    """Returns whether the node has given up its embedded store to join a cluster. `first`: the
    first directory of log.dirs."""
    return (first / JOINED_DIRECTORY).exists() and not (first / METADATA_DIRECTORY).exists()


def embedded_directory(first: Path) -> Path:
    """Returns the directory of the embedded store. Raises UnusableDirectory when the node has
    joined a cluster, or when an import in place, or its undo, was interrupted."""
    if has_joined(first):
        raise UnusableDirectory(
            "the metadata of this node is in ZooKeeper since `barnabas cluster join`"
            f" ({first / JOINED_DIRECTORY} is its former store). Set metadata.store=zookeeper and"
            " zookeeper.connect, or run `barnabas cluster leave`."
        )
    if (first / IMPORT_UNDO).is_dir() and not (first / METADATA_DIRECTORY).exists():
        raise unfinished_work("storage import --in-place` or `--undo", first)
    return first / METADATA_DIRECTORY


def open_zookeeper(config: BrokerConfig, directory: Path | None) -> MetadataTree:
    """Opens the store that several nodes share, ZooKeeper. A file in `directory` holds the session
    id, so that the next start can replace the ephemeral nodes of that session; None: the session
    registers no broker. Raises ConfigError, StoreUnavailable, Forbidden."""
    from barnabas.config.zookeeper import owner_problem, zookeeper_settings
    from barnabas.metadata.former_session import FormerSession
    from barnabas.metadata.zookeeper import ZooKeeperTree  # and kazoo: 60 ms
    from barnabas.security.zookeeper_login import with_jaas_login

    settings = with_jaas_login(zookeeper_settings(config.get), os.environ)
    if (problem := owner_problem(settings)) is not None:
        raise ConfigError(problem)
    context = None
    if (tls := settings.tls) is not None:
        from barnabas.tls.client_context import client_context

        context = client_context(tls, tls.versions, checks_host=tls.checks_host)
    former = None if directory is None else FormerSession(directory)
    return ZooKeeperTree(settings, former, context)


def _topic_id(directories: tuple[LogDir, ...], topic: Topic) -> str | None:
    paths = [row.path for row in directories]
    found = topic_id_on_disk(paths, topic.name, topic.partitions)
    return None if found is None else uuid_text(found)


def _setting_failed(error: Exception) -> None:
    log.error("a changed setting did not take effect everywhere: %s", error, exc_info=error)
