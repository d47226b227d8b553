"""ExpireDelegationToken (40), versions 0-2: its owner or a renewer ends a token, now or later.

v2 flexible.
"""

from __future__ import annotations

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import TokenContext
from barnabas.api.token_requests import changes, no_expiry
from barnabas.wire import Struct

KEY = 40
VERSIONS = (0, 2)
CONTEXT = TokenContext
ACCESS = Access(elsewhere="nothing: the HMAC names a token of the client, or one that it may renew")


def handle(request: Struct, call: Call[TokenContext]) -> Struct:
    hmac, period_ms = bytes(request.hmac), request.expiryTimePeriodMs
    return call.answer()(expiryTimestampMs=changes(call).expire(call.principal, hmac, period_ms))


def refuse(_request: Struct, code: int, call: Call[TokenContext]) -> Struct:
    return call.answer()(errorCode=code, expiryTimestampMs=no_expiry(code))
