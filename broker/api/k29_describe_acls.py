"""DescribeAcls (29), versions 0-3: the access rules that match a filter.

This broker has no authorizer: the answer is SECURITY_DISABLED, as that of Kafka without
authorizer.class.name.

v1 pattern types; v2 flexible; v3 user resources (delegation tokens).
"""

from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.errors import SecurityDisabled
from barnabas.wire import Struct

KEY = 29
VERSIONS = (0, 3)
CONTEXT = MetadataContext
NO_AUTHORIZER = "No authorizer is configured on this broker (authorizer.class.name)."


def handle(_request: Struct, call: Call[MetadataContext]) -> Struct:
    return call.answer()(errorCode=SecurityDisabled.code, errorMessage=NO_AUTHORIZER)


def refuse(_request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    return call.answer()(errorCode=code, errorMessage=None)
