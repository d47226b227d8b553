"""SaslHandshake (17), versions 0 and 1: the client chooses a mechanism for its login.

After version 1 the tokens come in SaslAuthenticate; after version 0 they come without a header
(k36_sasl_authenticate.py). An unknown mechanism is answered with those there are, and closes the
connection. A connection that needs no login gets ILLEGAL_SASL_STATE, as in Kafka.
"""

from __future__ import annotations

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import LoginContext
from barnabas.api.later import Later
from barnabas.cext.network.request_queue import FAILED, NEEDED, RAW_TOKENS, TOKENS
from barnabas.errors import IllegalSaslState, UnsupportedSaslMechanism
from barnabas.wire import Struct

KEY = 17
VERSIONS = (0, 1)
CONTEXT = LoginContext
ACCESS = Access(elsewhere="nothing: it is asked before a login")


def handle(request: Struct, call: Call[LoginContext]) -> Struct | Later:
    if call.pending.login != NEEDED:
        return refuse(request, IllegalSaslState.code, call)
    mechanisms = list(call.context.logins().mechanisms(call.listener))
    if request.mechanism not in mechanisms:
        call.pending.set_login(FAILED, b"")
        call.context.failed(*call.peer, "login: the client asked for an unknown SASL mechanism")
        return call.context.delayed(
            call.answer()(errorCode=UnsupportedSaslMechanism.code, mechanisms=mechanisms)
        )
    state = TOKENS if call.version else RAW_TOKENS
    call.pending.set_login(state, request.mechanism.encode())
    return call.answer()(mechanisms=mechanisms)


def refuse(request: Struct, code: int, call: Call[LoginContext]) -> Struct:
    return call.answer()(errorCode=code, mechanisms=[])
