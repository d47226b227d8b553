"""SCRAM logins of the users in the metadata tree, and of those who hold a delegation token.

A user that does not exist takes the same steps as one that does, and fails at the proof
(unknown_users.py); so does the id of a token that does not exist (delegation_tokens.py).
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.metadata.cluster_state import ClusterState
from barnabas.security import credentials, scram
from barnabas.security.delegation_tokens import DelegationTokens
from barnabas.security.failures import InvalidCredentials
from barnabas.security.mechanism import Answer
from barnabas.security.unknown_users import UnknownUsers


class ScramUsers:
    def __init__(
        self,
        mechanism: str,
        state: Callable[[], ClusterState],
        unknown_users: UnknownUsers,
        tokens: DelegationTokens | None,
    ) -> None:
        """`tokens`: None where delegation tokens are off."""
        self._mechanism = mechanism
        self._state = state
        self._unknown_users = unknown_users
        self._tokens = tokens

    def step(self, exchange: bytes, token: bytes) -> Answer:
        """Raises LoginFailed."""
        if exchange:
            begun = scram.Exchange.decode(exchange)
            final = scram.finish(begun, token)
            if begun.by_token:
                return self._of_token(final, begun.user)
            return Answer(final, user=begun.user)
        first = scram.read_first(self._mechanism, token)
        if not first.by_token:
            credential = self._credential(first.user)
        elif self._tokens is not None:
            credential = self._tokens.credential(self._mechanism, first.user)
        else:
            raise InvalidCredentials(self._mechanism)
        begun = scram.begin(self._mechanism, first, credential)
        return Answer(begun.answer.encode(), begun.encode())

    def _credential(self, user: str) -> scram.Credential:
        # The same steps for a user that exists and for one that does not.
        state = self._state()
        unknown = self._unknown_users.credential(state, self._mechanism, user)
        known = credentials.text_of(state, user, self._mechanism)
        text = credentials.encode(unknown) if known is None else known
        return credentials.usable(text) or unknown

    def _of_token(self, final: bytes, token_id: str) -> Answer:
        """The client has shown the HMAC of the token: it is its owner while the token lives."""
        token = self._tokens.valid(token_id) if self._tokens is not None else None
        if token is None:
            raise InvalidCredentials(self._mechanism)
        owner = token.owner.partition(":")[2]
        return Answer(final, user=owner, expires_ms=token.expires_ms, by_token=True)
