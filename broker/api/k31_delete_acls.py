"""DeleteAcls (31), versions 0-3: deletes the access rules that match filters.

This broker has no authorizer: each filter gets SECURITY_DISABLED, as in Kafka without
authorizer.class.name.

v1 pattern types; v2 flexible; v3 user resources (delegation tokens).
"""

from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.api.k29_describe_acls import NO_AUTHORIZER
from barnabas.errors import SecurityDisabled
from barnabas.wire import Struct

KEY = 31
VERSIONS = (0, 3)
CONTEXT = MetadataContext


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    return _answer(request, SecurityDisabled.code, NO_AUTHORIZER, call)


def refuse(request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    return _answer(request, code, None, call)


def _answer(request: Struct, code: int, message: str | None, call: Call[MetadataContext]) -> Struct:
    row = call.struct("filterResults")
    return call.answer()(
        filterResults=[row(errorCode=code, errorMessage=message) for _ in request.filters]
    )
