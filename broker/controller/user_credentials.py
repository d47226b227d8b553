"""Changes of users' SCRAM credentials in the metadata tree, in the form of
security/credentials.py."""

from __future__ import annotations

from barnabas.controller.entity_nodes import EntityNodes
from barnabas.errors import ResourceNotFound, UnacceptableCredential
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.tree import InvalidPath, MetadataTree, TooLarge
from barnabas.security import credentials
from barnabas.security.credentials import USERS
from barnabas.security.principal import USER_CHARS_MAX
from barnabas.security.scram import Credential

NOT_THERE = "Attempt to delete a user credential that does not exist"


class UserCredentials:
    """One per node."""

    def __init__(self, tree: MetadataTree, reader: ClusterStateReader) -> None:
        self._nodes = EntityNodes(tree, reader)

    def store(self, user: str, mechanism: str, credential: Credential) -> None:
        """Sets a credential. Raises KafkaError, MetadataError."""
        if len(user) > USER_CHARS_MAX:
            raise UnacceptableCredential(f"Username must not exceed {USER_CHARS_MAX} characters")
        self._write(user, mechanism, credentials.encode(credential))

    def delete(self, user: str, mechanism: str) -> None:
        """Raises ResourceNotFound, MetadataError."""
        self._write(user, mechanism, None)

    def _write(self, user: str, mechanism: str, text: str | None) -> None:
        def edit(texts: dict[str, str]) -> None:
            if text is not None:
                texts[mechanism] = text
            elif texts.pop(mechanism, None) is None:
                raise ResourceNotFound(NOT_THERE)

        try:
            self._nodes.change(f"{USERS}/{credentials.node_name(user)}", edit)
        except (TooLarge, InvalidPath) as error:
            raise UnacceptableCredential(f"cannot store the credential: {error}") from error
