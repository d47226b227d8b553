"""DescribeDelegationToken (41), versions 0-3: the tokens of which the client is owner or renewer,
and those that access rules show it (DESCRIBE of the token, or DESCRIBE_TOKENS of its owner).

Each comes with its HMAC: who sees a token can log in with it. Without an authorizer each user sees
all, as in Kafka. No owners in the request (null): all of these tokens; an empty list: none. v2
flexible; v3 who asked for the token.
"""

from __future__ import annotations

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import TokenContext
from barnabas.api.token_requests import changes, parts_of, requester_fields
from barnabas.controller.delegation_tokens import DelegationTokenChanges
from barnabas.security.acl_codes import DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER
from barnabas.security.delegation_tokens import DelegationToken
from barnabas.wire import Struct

KEY = 41
VERSIONS = (0, 3)
CONTEXT = TokenContext
ACCESS = Access(elsewhere="_may_see")


def handle(request: Struct, call: Call[TokenContext]) -> Struct:
    found = changes(call)
    owners = request.owners
    asked = None if owners is None else {f"{o.principalType}:{o.principalName}" for o in owners}
    tokens = [] if asked == set() else _tokens(found, call, asked)
    return call.answer()(
        tokens=[_row(call, token, found.tokens.hmac(token.id)) for token in tokens]
    )


def _tokens(
    found: DelegationTokenChanges, call: Call[TokenContext], asked: set[str] | None
) -> list[DelegationToken]:
    tokens = (found.tokens.read(token_id) for token_id in sorted(found.tokens.ids()))
    return [
        token
        for token in tokens
        if token is not None
        and (asked is None or any(token.may_renew(owner) for owner in asked))
        and _may_see(token, call)
    ]


def _may_see(token: DelegationToken, call: Call[TokenContext]) -> bool:
    return (
        token.may_renew(call.principal)
        or call.may(DESCRIBE, DELEGATION_TOKEN, token.id, quiet=True)
        or call.may(DESCRIBE_TOKENS, USER, token.owner, quiet=True)
    )


def _row(call: Call[TokenContext], token: DelegationToken, hmac: bytes) -> Struct:
    kind, name = parts_of(token.owner)
    renewer = call.struct("tokens.renewers")
    renewers = [parts_of(principal) for principal in token.renewers]
    return call.struct("tokens")(
        principalType=kind,
        principalName=name,
        issueTimestamp=token.issued_ms,
        expiryTimestamp=token.expires_ms,
        maxTimestamp=token.max_ms,
        tokenId=token.id,
        hmac=hmac,
        renewers=[renewer(principalType=kind, principalName=name) for kind, name in renewers],
        **requester_fields(call, token.requester),
    )


def refuse(_request: Struct, code: int, call: Call[TokenContext]) -> Struct:
    return call.answer()(errorCode=code, tokens=[])
