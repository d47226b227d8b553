"""DescribeAcls (29), versions 0-3: the access rules that match a filter.

ANY and null match everything. The pattern type MATCH finds the rules that apply to the resource
with the given name: literal, prefixed and `*`. Without an authorizer the answer is
SECURITY_DISABLED, as in Kafka.

v1 pattern types; v2 flexible; v3 user resources (delegation tokens).
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.errors import SecurityDisabled
from barnabas.security.acl_codes import DESCRIBE
from barnabas.wire import Struct

KEY = 29
VERSIONS = (0, 3)
CONTEXT = MetadataContext
ACCESS = of_cluster(DESCRIBE)


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    from barnabas.api.acl_rows import NO_AUTHORIZER, filter_of

    if call.authorizer is None:
        return call.answer()(errorCode=SecurityDisabled.code, errorMessage=NO_AUTHORIZER)
    found: dict[tuple[int, str, int], list[Struct]] = {}
    entry_of = call.struct("resources.acls")
    for pattern, entry in call.authorizer.store.rules.matching(filter_of(request)):
        row = entry_of(
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permissionType=entry.permission,
        )
        found.setdefault(pattern, []).append(row)
    row_of = call.struct("resources")
    return call.answer()(
        errorMessage=None,
        resources=[
            row_of(resourceType=kind, resourceName=name, patternType=pattern_type, acls=rows)
            for (kind, name, pattern_type), rows in found.items()
        ],
    )


def refuse(_request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    return call.answer()(errorCode=code, errorMessage=None)
