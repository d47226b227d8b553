"""The quota that applies to a client: the first that exists in Kafka's order of precedence.

    1  /config/users/U/clients/C             5  /config/users/<default>/clients/<default>
    2  /config/users/U/clients/<default>     6  /config/users/<default>
    3  /config/users/U                       7  /config/clients/C
    4  /config/users/<default>/clients/C     8  /config/clients/<default>

Clients with equal tags share one quota: all of a user's connections when the quota is the user's
(3, 6), those with one client id when it is the client id's (7, 8). Each key has its own quotas: a
user may be limited in what it produces, and its client ids in what they fetch.

As in Kafka (ClientQuotaManager.DefaultQuotaCallback), a client without a client id falls under none
of the quotas that name one, not even those of `<default>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.metadata.znodes import DEFAULT_ENTITY
from barnabas.quotas.entities import Entity, node_name


class Tags(NamedTuple):
    """The common attributes of clients that share a quota; "": any."""

    user: str
    client_id: str


class Limits:
    """The quotas of one key."""

    def __init__(self, quotas: Mapping[Entity, float]) -> None:
        self._quotas = quotas
        self._of_users = any(e.user is not None and e.client_id is None for e in quotas)
        self._of_clients = any(e.user is None for e in quotas)
        self._of_pairs = any(e.user is not None and e.client_id is not None for e in quotas)

    def __bool__(self) -> bool:
        return bool(self._quotas)

    def tags(self, user: str, client_id: str) -> Tags:
        """The tags of a client by its user's name and its client id. Where quotas of one form exist
        only, each client has the tags of that form, whether or not a quota is its own."""
        forms = self._of_users, self._of_clients, self._of_pairs
        if sum(forms) == 1:
            return Tags(
                "" if self._of_clients else user,
                "" if self._of_users else client_id,
            )
        u, c = node_name(user), node_name(client_id)
        for entity in (
            Entity(u, c),
            Entity(u, DEFAULT_ENTITY),
            Entity(u),
            Entity(DEFAULT_ENTITY, c),
            Entity(DEFAULT_ENTITY, DEFAULT_ENTITY),
            Entity(DEFAULT_ENTITY),
        ):
            if entity in self._quotas:
                return Tags(user, "" if entity.client_id is None else client_id)
        return Tags("", client_id)

    def limit(self, tags: Tags) -> float | None:
        """The quota that applies to the clients with these tags; None: they have no limit."""
        u, c = node_name(tags.user), node_name(tags.client_id)
        if tags.user and tags.client_id:
            order = [
                Entity(u, c),
                Entity(u, DEFAULT_ENTITY),
                Entity(DEFAULT_ENTITY, c),
                Entity(DEFAULT_ENTITY, DEFAULT_ENTITY),
            ]
        elif tags.user:
            order = [Entity(u), Entity(DEFAULT_ENTITY)]
        elif tags.client_id:
            order = [Entity(client_id=c), Entity(client_id=DEFAULT_ENTITY)]
        else:
            order = []
        return next((self._quotas[entity] for entity in order if entity in self._quotas), None)
