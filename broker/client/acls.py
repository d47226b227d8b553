"""Administration of access rules: list, create, delete (KIP-140, KIP-290), with Kafka's codes."""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.failures import raise_for
from barnabas.wire import Struct, request

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
ANY = 1  # a resource type, pattern type, operation or permission


class Acl(NamedTuple):
    """One access rule."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """A filter of access rules: None and ANY match everything."""

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY


def describe_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """Returns the rules that match a filter, in order. Raises SecurityDisabled without an
    authorizer, KafkaError, ClientError."""
    body = request(DESCRIBE_ACLS).cls(**_filter(wanted))

    def step() -> list[Acl]:
        answer = cluster.any_connection().call(DESCRIBE_ACLS, body)
        raise_for(answer.errorCode, "access rules", answer.errorMessage)
        return sorted(
            Acl(
                row.resourceType,
                row.resourceName,
                row.patternType,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permissionType,
            )
            for row in answer.resources
            for acl in row.acls
        )

    return cluster.retrying(step)


def create_acls(cluster: Cluster, rules: Iterable[Acl]) -> None:
    """Creates access rules; a rule that exists already stays. Raises the first refusal after the
    broker has created the other rules (SecurityDisabled without an authorizer), and ClientError.
    Kafka: CreateAcls (30)."""
    message = request(CREATE_ACLS)
    row = message.struct("creations")
    creations = [
        row(
            resourceType=rule.resource_type,
            resourceName=rule.name,
            resourcePatternType=rule.pattern_type,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permissionType=rule.permission,
        )
        for rule in rules
    ]

    def step() -> None:
        body = message.cls(creations=creations)
        for result in cluster.any_connection().call(CREATE_ACLS, body).results:
            raise_for(result.errorCode, "access rule", result.errorMessage)

    cluster.retrying(step)


def delete_acls(cluster: Cluster, filters: Iterable[AclFilter]) -> list[Acl]:
    """Deletes the rules that match one of the filters, and returns them. Raises the first
    refusal."""
    message = request(DELETE_ACLS)
    row = message.struct("filters")
    wanted = [row(**_filter(each)) for each in filters]

    def step() -> list[Acl]:
        answer = cluster.any_connection().call(DELETE_ACLS, message.cls(filters=wanted))
        found: list[Acl] = []
        for result in answer.filterResults:
            raise_for(result.errorCode, "access rules", result.errorMessage)
            found += [_deleted(acl) for acl in result.matchingAcls]
        return sorted(set(found))

    return cluster.retrying(step)


def _filter(wanted: AclFilter) -> dict[str, object]:
    return {
        "resourceTypeFilter": wanted.resource_type,
        "resourceNameFilter": wanted.name,
        "patternTypeFilter": wanted.pattern_type,
        "principalFilter": wanted.principal,
        "hostFilter": wanted.host,
        "operation": wanted.operation,
        "permissionType": wanted.permission,
    }


def _deleted(row: Struct) -> Acl:
    raise_for(row.errorCode, f"access rule of {row.resourceName}", row.errorMessage)
    return Acl(
        row.resourceType,
        row.resourceName,
        row.patternType,
        row.principal,
        row.host,
        row.operation,
        row.permissionType,
    )
