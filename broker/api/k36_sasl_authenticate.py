"""SaslAuthenticate (36), versions 0-2, and tokens without a header: the steps of a login.

A login that fails is answered after connection.failed.authentication.delay.ms, and its connection
closes. The client gets Kafka's text, which does not say whether the user exists.

Tokens without a header follow SaslHandshake version 0. The broker's tokens have none either, and a
login that fails closes the connection without an answer, as in Kafka.

v1 session lifetime (0: none is set, since connections.max.reauth.ms is not available); v2 flexible.
"""

from __future__ import annotations

import logging

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import LoginContext
from barnabas.api.later import Later
from barnabas.cext.network.request_queue import FAILED, OPEN, RAW_TOKENS, TOKENS, PendingRequest
from barnabas.errors import IllegalSaslState, SaslAuthenticationFailed
from barnabas.security.failures import LoginFailed
from barnabas.security.logins import Step
from barnabas.wire import Struct

log = logging.getLogger("barnabas.security")

KEY = 36
VERSIONS = (0, 2)
CONTEXT = LoginContext
ACCESS = Access(elsewhere="nothing: it is the login")
TOO_LATE = "SaslAuthenticate request received after successful authentication"


def handle(request: Struct, call: Call[LoginContext]) -> Struct | Later:
    if call.pending.login != TOKENS:
        return call.answer()(errorCode=IllegalSaslState.code, errorMessage=TOO_LATE, authBytes=b"")
    try:
        step = _step(call.context, call.pending, bytes(request.authBytes))
    except LoginFailed as failure:
        return call.context.delayed(
            call.answer()(
                errorCode=SaslAuthenticationFailed.code, errorMessage=failure.text, authBytes=b""
            )
        )
    return call.answer()(authBytes=step.token)


def refuse(request: Struct, code: int, call: Call[LoginContext]) -> Struct:
    return call.answer()(errorCode=code, authBytes=b"")


def answer_raw(pending: PendingRequest, context: LoginContext) -> bytes | None:
    """The broker's token, framed; None: the connection closes later, without an answer."""
    assert pending.login == RAW_TOKENS
    try:
        token = _step(context, pending, pending.data).token
    except LoginFailed:
        context.after(context.delay_ms, pending.close)
        return None
    return len(token).to_bytes(4, "big") + token


def _step(context: LoginContext, pending: PendingRequest, token: bytes) -> Step:
    """Raises LoginFailed."""
    try:
        step = context.logins().step(pending.listener, pending.session, token)
    except Exception as failure:  # also one that is a fault of this broker
        pending.set_login(FAILED, b"")
        if isinstance(failure, LoginFailed):
            context.failed(*pending.peer, f"login: {failure.text}")
        raise
    if not step.principal:
        pending.set_login(pending.login, step.session)
    else:
        pending.set_principal(step.principal)
        pending.set_login(OPEN, b"")
        host, port = pending.peer
        name = step.principal.decode()
        log.info("%s:%d on %s logged in as %.200r", host, port, pending.listener, name)
    return step
