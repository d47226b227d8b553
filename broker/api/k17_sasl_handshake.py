"""SaslHandshake (17), versions 0 and 1: the client chooses a mechanism for its login.

After version 1 the tokens come in SaslAuthenticate; after version 0 they come without a header
(k36_sasl_authenticate.py). The answer to an unknown mechanism lists the enabled ones, and the
connection closes. A connection that needs no login gets ILLEGAL_SASL_STATE, as in Kafka; so does
one that logs in again within a second. A login that does not expire cannot begin again (KIP-368).
"""

from __future__ import annotations

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import LoginContext
from barnabas.api.later import Later
from barnabas.cext.network.request_queue import (
    EXPIRING,
    FAILED,
    NEEDED,
    RAW_TOKENS,
    TOKENS,
    PendingRequest,
)
from barnabas.errors import IllegalSaslState, UnsupportedSaslMechanism
from barnabas.security.login_counts import FAILURE, REAUTH_FAILURE
from barnabas.security.session import Session
from barnabas.wire import Struct

KEY = 17
VERSIONS = (0, 1)
CONTEXT = LoginContext
ACCESS = Access(elsewhere="nothing: it is asked before a login")


def handle(request: Struct, call: Call[LoginContext]) -> Struct | Later:
    before = _before(call.pending)
    if before is None:
        return refuse(request, IllegalSaslState.code, call)
    logins = call.context.logins()
    mechanisms = list(logins.mechanisms(call.listener))
    if request.mechanism not in mechanisms:
        call.pending.set_login(FAILED, b"")
        logins.counts.add(call.listener, REAUTH_FAILURE if before else FAILURE)
        call.context.failed(*call.peer, "login: the client asked for an unknown SASL mechanism")
        return call.context.delayed(
            call.answer()(errorCode=UnsupportedSaslMechanism.code, mechanisms=mechanisms)
        )
    state = TOKENS if call.version else RAW_TOKENS
    reauth_ns = call.pending.received_ns if before else 0
    call.pending.set_login(state, Session(request.mechanism, before, reauth_ns).encode())
    return call.answer()(mechanisms=mechanisms)


def _before(pending: PendingRequest) -> str | None:
    """Returns the mechanism of the previous login; "" at the first login, None where no login may
    begin."""
    if pending.login == NEEDED:
        return ""
    if pending.login != EXPIRING:
        return None
    session = Session.decode(pending.session)
    return session.mechanism if session.may_reauthenticate(pending.received_ns) else None


def refuse(request: Struct, code: int, call: Call[LoginContext]) -> Struct:
    return call.answer()(errorCode=code, mechanisms=[])
