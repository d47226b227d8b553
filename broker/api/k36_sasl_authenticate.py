"""SaslAuthenticate (36), versions 0-2, and tokens without a header: the steps of a login.

A login that fails is answered after connection.failed.authentication.delay.ms, and its connection
closes. The client gets Kafka's text, which does not say whether the user exists.

A login ends when connections.max.reauth.ms has passed or the credentials expire: the client logs in
again on its connection before, with the same mechanism as the same principal, or its next request
closes the connection (KIP-368).

Tokens without a header follow SaslHandshake version 0. The broker's tokens have none either, and a
login that fails closes the connection without an answer, as in Kafka.

v1 session lifetime (0: the login does not end); v2 flexible.
"""

from __future__ import annotations

import logging

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import LoginContext
from barnabas.api.later import Later
from barnabas.cext.network.request_queue import (
    EXPIRING,
    FAILED,
    OPEN,
    RAW_TOKENS,
    TOKENS,
    PendingRequest,
)
from barnabas.errors import IllegalSaslState, SaslAuthenticationFailed
from barnabas.security.failures import LoginFailed
from barnabas.security.login_counts import (
    FAILURE,
    REAUTH_FAILURE,
    REAUTH_SUCCESS,
    SUCCESS,
    SUCCESS_NO_REAUTH,
)
from barnabas.security.mechanism import Answer
from barnabas.security.principal import built_principal, principal_of
from barnabas.security.session import Session
from barnabas.wire import Struct

log = logging.getLogger("barnabas.security")

KEY = 36
VERSIONS = (0, 2)
CONTEXT = LoginContext
ACCESS = Access(elsewhere="nothing: it is the login")
LIFETIME_MS_MAX = 1 << 42  # 139 years: its end in nanoseconds fits into 64 bits
TOO_LATE = "SaslAuthenticate request received after successful authentication"


def handle(request: Struct, call: Call[LoginContext]) -> Struct | Later:
    if call.pending.login != TOKENS:
        return call.answer()(errorCode=IllegalSaslState.code, errorMessage=TOO_LATE, authBytes=b"")
    try:
        token, lifetime_ms = _step(call.context, call.pending, bytes(request.authBytes))
    except LoginFailed as failure:
        return call.context.delayed(
            call.answer()(
                errorCode=SaslAuthenticationFailed.code, errorMessage=failure.text, authBytes=b""
            )
        )
    return call.answer()(authBytes=token, sessionLifetimeMs=lifetime_ms)


def refuse(request: Struct, code: int, call: Call[LoginContext]) -> Struct:
    return call.answer()(errorCode=code, authBytes=b"")


def answer_raw(pending: PendingRequest, context: LoginContext) -> bytes | None:
    """Returns the broker's token, framed; None: the connection closes later, without an answer."""
    assert pending.login == RAW_TOKENS
    try:
        token, _ = _step(context, pending, pending.data)
    except LoginFailed:
        context.after(context.delay_ms, pending.close)
        return None
    return len(token).to_bytes(4, "big") + token


def _step(context: LoginContext, pending: PendingRequest, token: bytes) -> tuple[bytes, int]:
    """Returns the broker's token, and the lifetime of a complete login in ms (0: it does not end,
    or is not complete). Raises LoginFailed."""
    logins, session = context.logins(), Session.decode(pending.session)
    try:
        answer = logins.step(pending.listener, session, token)
        if answer.refused:
            context.failed(*pending.peer, f"login: {answer.refused}")
        if not answer.user:
            pending.set_login(pending.login, session._replace(exchange=answer.exchange).encode())
            return answer.token, 0
        return answer.token, _logged_in(context, pending, session, answer)
    except Exception as failure:  # also one that is a fault of this broker
        pending.set_login(FAILED, b"")
        logins.counts.add(pending.listener, REAUTH_FAILURE if session.is_reauth else FAILURE)
        if isinstance(failure, LoginFailed):
            context.failed(*pending.peer, f"login: {failure.text}")
        raise


def _logged_in(
    context: LoginContext, pending: PendingRequest, session: Session, answer: Answer
) -> int:
    """Opens the connection. Returns the lifetime of the login in ms; 0: it does not end."""
    logins, (host, port) = context.logins(), pending.peer
    principal = built_principal(
        context.build_principal,
        listener=pending.listener,
        host=host,
        mechanism=session.mechanism,
        user=answer.user,
    ) or principal_of(answer.user)
    if session.is_reauth and principal != pending.principal:
        raise LoginFailed(
            "Cannot change principals during re-authentication from"
            f" {_shown(pending.principal)}: {_shown(principal)}"
        )
    lifetime_ms = logins.lifetime_ms(
        pending.listener, session.mechanism, answer.expires_ms, context.clock.wall_ms()
    )
    kept = Session(
        session.mechanism, reauth_ns=session.reauth_ns, by_token=answer.by_token
    ).encode()
    pending.set_principal(principal)
    if lifetime_ms is None:
        pending.set_login(OPEN, kept)
    else:
        ends_ns = context.clock.monotonic_ns() + min(lifetime_ms, LIFETIME_MS_MAX) * 1_000_000
        pending.set_login(EXPIRING, kept, ends_ns)
    again = "again " if session.is_reauth else ""
    log.info(
        "%s:%d on %s logged in %sas %.200r", host, port, pending.listener, again, principal.decode()
    )
    logins.counts.add(pending.listener, REAUTH_SUCCESS if session.is_reauth else SUCCESS)
    if session.is_reauth:
        now_ns = context.clock.monotonic_ns()
        logins.counts.add_reauth(pending.listener, session.reauth_ns, now_ns)
    elif pending.api_version <= 0:
        logins.counts.add(pending.listener, SUCCESS_NO_REAUTH)
    return lifetime_ms or 0


def _shown(principal: bytes) -> str:
    """Returns the principal as Kafka writes it in this text: User.alice."""
    return principal.decode().replace(":", ".", 1)
