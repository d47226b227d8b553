"""Changes of users' SCRAM credentials in the metadata tree, in the form of
security/credentials.py.

A user's node keeps what else it holds, quotas of Kafka's tools among them. A user without any
setting has no node.
"""

from __future__ import annotations

import threading

from barnabas.controller.config_changes import notes_of
from barnabas.errors import ResourceNotFound, UnacceptableCredential
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.tree import (
    BadVersion,
    CreateNode,
    DeleteNode,
    InvalidPath,
    MetadataTree,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    StoreUnavailable,
    TooLarge,
)
from barnabas.security import credentials
from barnabas.security.credentials import USERS
from barnabas.security.principal import USER_CHARS_MAX
from barnabas.security.scram import Credential

ATTEMPTS_MAX = 10
NOT_THERE = "Attempt to delete a user credential that does not exist"


class UserCredentials:
    """One per node; changed by one thread at a time."""

    def __init__(self, tree: MetadataTree, reader: ClusterStateReader) -> None:
        self._tree = tree
        self._reader = reader
        self._lock = threading.Lock()

    def store(self, user: str, mechanism: str, credential: Credential) -> None:
        """Sets a credential. Raises KafkaError, MetadataError."""
        if len(user) > USER_CHARS_MAX:
            raise UnacceptableCredential(f"Username must not exceed {USER_CHARS_MAX} characters")
        with self._lock:
            self._write(user, mechanism, credentials.encode(credential))

    def delete(self, user: str, mechanism: str) -> None:
        """Raises ResourceNotFound, MetadataError."""
        with self._lock:
            self._write(user, mechanism, None)

    def _write(self, user: str, mechanism: str, text: str | None) -> None:
        entity = f"{USERS}/{credentials.node_name(user)}"
        for _attempt in range(ATTEMPTS_MAX):
            try:
                self._tree.multi(self._operations(entity, mechanism, text))
            except (TooLarge, InvalidPath) as error:
                raise UnacceptableCredential(f"cannot store the credential: {error}") from error
            except MultiFailed as failed:
                if not isinstance(failed.error, BadVersion | NodeExists | NoNode):
                    raise failed.error from failed
                continue  # another broker was faster
            self._reader.refresh_config([entity])
            return
        raise StoreUnavailable(f"other brokers changed this user {ATTEMPTS_MAX} times meanwhile")

    def _operations(self, entity: str, mechanism: str, text: str | None) -> list[Operation]:
        path = f"{znodes.CONFIG_PATH}/{entity}"
        # From the node itself: a change of another broker may not have been read yet.
        try:
            data, stat = self._tree.get(path)
            texts, version = znodes.decode_config(data), stat.version
        except NoNode:
            texts, version = {}, None
        if text is not None:
            texts[mechanism] = text
        elif texts.pop(mechanism, None) is None:
            raise ResourceNotFound(NOT_THERE)
        data = znodes.encode_config(texts)
        if version is None:
            self._tree.ensure_path(f"{znodes.CONFIG_PATH}/{USERS}")
            write: Operation = CreateNode(path, data)
        elif texts:
            write = SetData(path, data, version)
        else:
            write = DeleteNode(path, version)
        return [write, *notes_of(self._tree, entity)]
