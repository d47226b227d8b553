"""CreateDelegationToken (38), versions 0-3: a token for the client itself.

v2 flexible; v3 a token for another user, which takes the right to make tokens for that user.
"""

from __future__ import annotations

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import TokenContext
from barnabas.api.token_requests import USER, changes, check_login, parts_of, requester_fields
from barnabas.errors import InvalidPrincipalType, InvalidRequest, KafkaError
from barnabas.security.acl_codes import CREATE_TOKENS
from barnabas.security.acl_codes import USER as USERS
from barnabas.security.principal import USER_CHARS_MAX
from barnabas.wire import Struct

KEY = 38
VERSIONS = (0, 3)
CONTEXT = TokenContext
ACCESS = Access(elsewhere="handle: CREATE_TOKENS for another user")
RENEWERS_MAX = 100


def handle(request: Struct, call: Call[TokenContext]) -> Struct:
    owner = _owner(request, call)
    try:
        check_login(call)
        if owner != call.principal:
            call.require(CREATE_TOKENS, USERS, owner)
        renewers = _renewers(request)
        if not owner.startswith(f"{USER}:"):
            raise InvalidPrincipalType
        found = changes(call)
        token = found.create(owner, call.principal, renewers, request.maxLifetimeMs)
    except KafkaError as error:
        return refuse(request, error.code, call)
    return _answer(
        call,
        owner,
        issueTimestampMs=token.issued_ms,
        expiryTimestampMs=token.expires_ms,
        maxTimestampMs=token.max_ms,
        tokenId=token.id,
        hmac=found.tokens.hmac(token.id),
    )


def refuse(request: Struct, code: int, call: Call[TokenContext]) -> Struct:
    return _answer(
        call,
        _owner(request, call),
        errorCode=code,
        issueTimestampMs=-1,
        expiryTimestampMs=-1,
        maxTimestampMs=-1,
    )


def _owner(request: Struct, call: Call[TokenContext]) -> str:
    if not request.ownerPrincipalName:
        return call.principal
    return f"{request.ownerPrincipalType or ''}:{request.ownerPrincipalName}"


def _renewers(request: Struct) -> list[str]:
    """Returns the renewers. Raises InvalidPrincipalType, InvalidRequest."""
    if len(request.renewers) > RENEWERS_MAX:
        raise InvalidRequest(f"more than {RENEWERS_MAX} renewers")
    for row in request.renewers:
        if row.principalType != USER:
            raise InvalidPrincipalType
        if len(row.principalName) > USER_CHARS_MAX:
            raise InvalidRequest(f"a renewer has more than {USER_CHARS_MAX} characters")
    return [f"{USER}:{row.principalName}" for row in request.renewers]


def _answer(call: Call[TokenContext], owner: str, **fields: object) -> Struct:
    kind, name = parts_of(owner)
    requester = requester_fields(call, call.principal)
    return call.answer()(principalType=kind, principalName=name, **requester, **fields)
