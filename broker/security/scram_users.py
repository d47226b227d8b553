"""SCRAM logins of the users in the metadata tree.

A user that does not exist takes the same steps as one that does, and fails at the proof
(strangers.py).
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.metadata.cluster_state import ClusterState
from barnabas.security import credentials, scram
from barnabas.security.mechanism import Answer
from barnabas.security.strangers import Strangers


class ScramUsers:
    def __init__(
        self, mechanism: str, state: Callable[[], ClusterState], strangers: Strangers
    ) -> None:
        self._mechanism = mechanism
        self._state = state
        self._strangers = strangers

    def step(self, exchange: bytes, token: bytes) -> Answer:
        """Raises LoginFailed."""
        if exchange:
            begun = scram.Exchange.decode(exchange)
            return Answer(scram.finish(begun, token), user=begun.user)
        first = scram.read_first(self._mechanism, token)
        begun = scram.begin(self._mechanism, first, self._credential(first.user))
        return Answer(begun.answer.encode(), begun.encode())

    def _credential(self, user: str) -> scram.Credential:
        # The same steps for a user that exists and for one that does not.
        state = self._state()
        stranger = self._strangers.credential(state, self._mechanism, user)
        known = credentials.text_of(state, user, self._mechanism)
        text = credentials.encode(stranger) if known is None else known
        return credentials.usable(text) or stranger
