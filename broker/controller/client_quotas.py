"""Changes of client quotas in the metadata tree, in the form of quotas/entities.py."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.controller.entity_nodes import EntityNodes
from barnabas.errors import InvalidRequest
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.tree import InvalidPath, MetadataTree, TooLarge
from barnabas.quotas.entities import Entity, check


class ClientQuotas:
    """One per node."""

    def __init__(self, tree: MetadataTree, reader: ClusterStateReader) -> None:
        self._nodes = EntityNodes(tree, reader)

    def alter(
        self, entity: Entity, values: Mapping[str, float | None], validate_only: bool = False
    ) -> None:
        """Sets the quotas of an entity by key; None removes one. Raises InvalidRequest,
        MetadataError: nothing is changed then."""
        texts = {
            key: None if value is None else check(entity, key, value)
            for key, value in values.items()
        }
        if validate_only:
            return

        def edit(stored: dict[str, str]) -> None:
            for key, text in texts.items():
                if text is not None:
                    stored[key] = text
                elif key in entity.keys():  # a user's node holds credentials too
                    stored.pop(key, None)

        try:
            self._nodes.change(entity.path, edit)
        except (TooLarge, InvalidPath) as error:
            raise InvalidRequest(f"cannot store the quota: {error}") from error
