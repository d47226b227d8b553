"""Decides what a principal may do: Kafka's authorizer, with its rules in the metadata tree.

Handlers in Python ask `authorize` (api/access.py). Decisions for native handlers are kept
(decisions.py), and dropped when `on_change` is called. A change is in force on this broker when its
request is answered: the frozen rules are replaced, and then `on_change` is called. A plugin that
authorizer.class.name names is asked before the rules, on the thread that asks here, and its answers
are not kept. Next: access_rules.py, and acl_store.py for where the rules are.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.metadata.tree import MetadataTree
from barnabas.security.acl_codes import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    EVERY_OPERATION,
    OPERATION_NAMES,
    TYPE_NAMES,
    operation_set,
)
from barnabas.security.acl_store import AclStore
from barnabas.security.audit_log import AuditLog

CHANGES = frozenset({CREATE, DELETE, ALTER, ALTER_CONFIGS})

# Asks the plugin: (principal, host, operation, resource type, name), the two in between with
# Kafka's names; name None: some resource of the type. None: the rules decide.
Decide = Callable[[str, str, str, str, str | None], bool | None]


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
        self._decide: Decide | None = None
        self.store = AclStore(tree, lambda _rules: self.rules_changed())

    def decide_first(self, decide: Decide) -> None:
        """Lets a plugin decide before the rules. Call it before the first request."""
        self._decide = decide

    def may(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether a principal (TYPE:NAME) may do an operation from an address. Writes nothing to
        the audit log."""
        decided = self._decided(principal, host, operation, resource_type, name)
        if decided is not None:
            return decided
        return bool(self._by_rules(principal, host, resource_type, name) >> operation & 1)

    def permitted(
        self, principal: str, host: str, resource_type: int, name: str, among: int
    ) -> int:
        """Returns which operations of a set a principal may do, as bit sets: bit n for AclOperation
        n. Writes nothing to the audit log."""
        if self._decide is None and principal not in self._super_users:
            return self._by_rules(principal, host, resource_type, name) & among
        asked = [operation for operation in OPERATION_NAMES if among >> operation & 1]
        return operation_set(
            *(one for one in asked if self.may(principal, host, one, resource_type, name))
        )

    def _by_rules(self, principal: str, host: str, resource_type: int, name: str) -> int:
        rules = self.store.rules
        return rules.permitted(principal, host, resource_type, name, self._without_rules)

    def _decided(
        self, principal: str, host: str, operation: int, resource_type: int, name: str | None
    ) -> bool | None:
        """What needs no rule: super users, and the answer of a plugin."""
        if principal in self._super_users:
            return True
        if self._decide is None:
            return None
        return self._decide(
            principal, host, OPERATION_NAMES[operation], TYPE_NAMES[resource_type], name
        )

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
        if self.may(principal, host, operation, resource_type, name):
            if operation in CHANGES:
                self.audit.permitted(principal, host, operation, resource_type, name)
            return True
        self.audit.denied(principal, host, operation, resource_type, name)
        return False

    def authorize_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether a principal may do an operation with some resource of a type (Kafka:
        authorizeByResourceType). Writes nothing to the audit log."""
        decided = self._decided(principal, host, operation, resource_type, None)
        if decided is not None:
            return decided
        return self.store.rules.permits_any(
            principal, host, operation, resource_type, self._without_rules
        )

    def rules_changed(self) -> None:
        """Takes back what was decided before: rules have changed, or a plugin decides otherwise."""
        for changed in self.on_change:
            changed()
