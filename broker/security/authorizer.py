"""Decides what a principal may do: Kafka's authorizer, with its rules in the metadata tree.

Handlers in Python ask `authorize` (api/access.py). Decisions for native handlers are kept
(decisions.py), and dropped when `on_change` is called. A change is in force on this broker when its
request is answered: the frozen rules are replaced, and then `on_change` is called. Next:
access_rules.py, and acl_store.py for where the rules are.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.metadata.tree import MetadataTree
from barnabas.security.access_rules import AccessRules
from barnabas.security.acl_codes import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    EVERY_OPERATION,
)
from barnabas.security.acl_store import AclStore
from barnabas.security.audit_log import AuditLog

CHANGES = frozenset({CREATE, DELETE, ALTER, ALTER_CONFIGS})


class Authorizer:
    """One per broker that has authorizer.class.name; any thread asks."""

    def __init__(
        self,
        tree: MetadataTree,
        super_users: frozenset[str],
        everyone_without_rules: bool,
        monotonic_ns: Callable[[], int],
    ) -> None:
        """`super_users` may do everything. `everyone_without_rules`: so may everyone with a
        resource that no rule is for (allow.everyone.if.no.acl.found). Raises MetadataError."""
        self.on_change: list[Callable[[], object]] = []
        self.audit = AuditLog(monotonic_ns)
        self._super_users = super_users
        self._without_rules = EVERY_OPERATION if everyone_without_rules else 0
        self.store = AclStore(tree, self._changed)

    def permitted(self, principal: str, host: str, resource_type: int, name: str) -> int:
        """Returns the operations that a principal (TYPE:NAME) may do from an address, as a bit set:
        bit n for AclOperation n. Writes nothing to the audit log."""
        if principal in self._super_users:
            return EVERY_OPERATION
        rules = self.store.rules
        return rules.permitted(principal, host, resource_type, name, self._without_rules)

    def authorize(
        self,
        principal: str,
        host: str,
        operation: int,
        resource_type: int,
        name: str = CLUSTER_NAME,
    ) -> bool:
        """Whether a principal may do an operation that it has asked for. Logs a denial, and a
        change that is permitted."""
        if self.permitted(principal, host, resource_type, name) >> operation & 1:
            if operation in CHANGES:
                self.audit.permitted(principal, host, operation, resource_type, name)
            return True
        self.audit.denied(principal, host, operation, resource_type, name)
        return False

    def authorize_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether a principal may do an operation with some resource of a type (Kafka:
        authorizeByResourceType). Writes nothing to the audit log."""
        return principal in self._super_users or self.store.rules.permits_any(
            principal, host, operation, resource_type, self._without_rules
        )

    def _changed(self, _rules: AccessRules) -> None:
        for changed in self.on_change:
            changed()
