"""Access rules as the requests 29 to 31 carry them: filters, rules, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.api.store_errors import kafka_error_of
from barnabas.errors import InvalidRequest, KafkaError, UnknownServerError
from barnabas.metadata.tree import MetadataError
from barnabas.metadata.znode_json import ZnodeDataError
from barnabas.security.access_rules import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    ResourcePattern,
)
from barnabas.security.acl_codes import (
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
)
from barnabas.wire import Struct

NO_AUTHORIZER = "No authorizer is configured on this broker (authorizer.class.name)."


def filter_of(row: Struct) -> AclBindingFilter:
    """Returns the filter in a row of a request. Raises InvalidRequest. In version 0 every filter is
    for literal names."""
    _check("resource type", row.resourceTypeFilter, RESOURCE_TYPES, ANY)
    _check("pattern type", row.patternTypeFilter, PATTERN_TYPES, ANY, MATCH)
    _check("operation", row.operation, OPERATIONS, ANY)
    _check("permission type", row.permissionType, PERMISSIONS, ANY)
    return AclBindingFilter(
        row.resourceTypeFilter,
        row.resourceNameFilter,
        row.patternTypeFilter,
        row.principalFilter,
        row.hostFilter,
        row.operation,
        row.permissionType,
    )


def rule_of(row: Struct) -> AclBinding:
    """Returns a rule to be created. Raises InvalidRequest, with Kafka's text if it has one."""
    _check("resource type", row.resourceType, RESOURCE_TYPES)
    _check("pattern type", row.resourcePatternType, PATTERN_TYPES)
    _check("operation", row.operation, OPERATIONS)
    _check("permission type", row.permissionType, PERMISSIONS)
    if row.resourceType == CLUSTER and row.resourceName != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not row.resourceName:
        raise InvalidRequest("Invalid empty resource name")
    if ":" not in row.principal:  # Kafka takes an empty type, and one with spaces
        raise InvalidRequest(f"{row.principal[:60]!r} is not a principal: write TYPE:NAME")
    return AclBinding(
        ResourcePattern(row.resourceType, row.resourceName, row.resourcePatternType),
        AccessControlEntry(row.principal, row.host, row.operation, row.permissionType),
    )


def _check(what: str, code: int, known: Mapping[str, int], *others: int) -> None:
    if code not in known.values() and code not in others:
        raise InvalidRequest(f"Invalid {what} {code}")


def error_of_outcome(
    outcome: MetadataError | None, call: Call[MetadataContext]
) -> KafkaError | None:
    """Returns the error that the client gets for an outcome of AclStore.change."""
    if outcome is None:
        return None
    if isinstance(outcome, ZnodeDataError):
        return UnknownServerError(f"the rules of this resource cannot be read: {outcome}")
    return kafka_error_of(outcome, call)


def text_of(rule: AclBinding) -> str:
    """Returns a rule as the audit log writes it."""
    pattern, entry = rule
    return (
        f"{_name(PERMISSIONS, entry.permission)} {entry.principal[:200]!r}"
        f" from {entry.host[:60]!r} {_name(OPERATIONS, entry.operation)}"
        f" on {_name(RESOURCE_TYPES, pattern.resource_type)}"
        f":{_name(PATTERN_TYPES, pattern.pattern_type)}:{pattern.name[:200]!r}"
    )


def _name(known: Mapping[str, int], code: int) -> str:
    return next(name for name, each in known.items() if each == code)
