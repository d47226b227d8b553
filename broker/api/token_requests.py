"""The common parts of the four APIs of delegation tokens: who may call them, and principals in two
fields."""

from __future__ import annotations

from barnabas.api.call import Call
from barnabas.api.contexts import TokenContext
from barnabas.controller.delegation_tokens import DelegationTokenChanges
from barnabas.errors import DelegationTokenAuthDisabled, DelegationTokenRequestNotAllowed
from barnabas.security.principal import ANONYMOUS
from barnabas.security.session import Session

USER = "User"


def check_login(call: Call[TokenContext]) -> None:
    """Raises DelegationTokenRequestNotAllowed for a client that has not logged in, or has logged in
    with a token: such a client may neither create nor see tokens."""
    session = call.pending.session
    if call.principal == ANONYMOUS or (session and Session.decode(session).by_token):
        raise DelegationTokenRequestNotAllowed


def changes(call: Call[TokenContext]) -> DelegationTokenChanges:
    """Returns the changes of tokens. Raises DelegationTokenAuthDisabled without a secret key, and
    what check_login raises."""
    check_login(call)
    found = call.context.tokens()
    if found is None:
        raise DelegationTokenAuthDisabled
    return found


def no_expiry(code: int) -> int:
    """Returns the expiry in a refusal: Kafka's brokers write -1, its controllers 0."""
    return -1 if code == DelegationTokenRequestNotAllowed.code else 0


def requester_fields(call: Call[TokenContext], principal: str) -> dict[str, str]:
    """Returns the fields of the principal that requested a token, who is not always its owner; from
    version 3 on."""
    kind, name = parts_of(principal)
    if call.version < 3:
        return {}
    return {"tokenRequesterPrincipalType": kind, "tokenRequesterPrincipalName": name}


def parts_of(principal: str) -> tuple[str, str]:
    """Returns (type, name) of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name
