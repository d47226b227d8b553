"""Kafka's access rules (ACLs) and what they permit. Pure: no I/O, no clock.

A rule belongs to a resource pattern: a literal name, a prefix of names, or the literal `*`, which
stands for every name of the type. It allows or denies one operation to one principal from one host;
`User:*` is every principal and `*` every host. A rule that denies wins. An allowed READ, WRITE,
DELETE or ALTER implies DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS; a denied one implies
nothing. Access that no rule permits is denied (Kafka: StandardAuthorizerData).

`AccessRules` is frozen: a change makes another one, which shares what has not changed. A decision
looks up one name, `*`, and one prefix of each length that some rule has, however many rules exist.
Next: acl_store.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import NamedTuple

from barnabas.security.acl_codes import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    ANY,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    EVERY_OPERATION,
    EVERY_PRINCIPAL,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    WILDCARD,
    WRITE,
)

_SOME_NAME = "hardcode"  # Kafka's name for the question whether any resource is permitted

_IMPLIED = {operation: DESCRIBE for operation in (READ, WRITE, DELETE, ALTER)}
_IMPLIED[ALTER_CONFIGS] = DESCRIBE_CONFIGS


class ResourcePattern(NamedTuple):
    resource_type: int
    name: str
    pattern_type: int


class AccessControlEntry(NamedTuple):
    principal: str  # TYPE:NAME
    host: str
    operation: int
    permission: int


class AclBinding(NamedTuple):
    """One rule: Kafka's AclBinding."""

    pattern: ResourcePattern
    entry: AccessControlEntry


class AclBindingFilter(NamedTuple):
    """Kafka's AclBindingFilter: None, and ANY, match everything."""

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def matches(self, rule: AclBinding) -> bool:
        entry = rule.entry
        return (
            self.matches_pattern(rule.pattern)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """MATCH finds the patterns that apply to a resource of this name."""
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type != MATCH:
            return False
        if pattern.pattern_type == LITERAL:
            return pattern.name == WILDCARD
        return self.name.startswith(pattern.name)


Entries = Mapping[ResourcePattern, Collection[AccessControlEntry]]


class _Grant(NamedTuple):
    """The operations that the entries of a pattern allow and deny to one principal from one
    host."""

    host: str
    allowed: int  # operations, with those that they imply
    denied: int


class AccessRules:
    """The rules of one moment."""

    def __init__(self, entries: Entries | None = None) -> None:
        self._entries = {
            pattern: frozenset(found) for pattern, found in (entries or {}).items() if found
        }
        self._grants = {pattern: _grants_of(found) for pattern, found in self._entries.items()}
        self._lengths = _prefix_lengths(self._entries)

    def replaced(self, changed: Entries) -> AccessRules:
        """Returns the rules with other entries for some patterns; a pattern without entries is
        removed."""
        rules = AccessRules.__new__(AccessRules)
        rules._entries, rules._grants = dict(self._entries), dict(self._grants)
        for pattern, entries in changed.items():
            rules._entries.pop(pattern, None)
            rules._grants.pop(pattern, None)
            if entries:
                rules._entries[pattern] = frozenset(entries)
                rules._grants[pattern] = _grants_of(entries)
        rules._lengths = _prefix_lengths(rules._entries)
        return rules

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._entries.values())

    def __iter__(self) -> Iterator[AclBinding]:
        for pattern, entries in self._entries.items():
            for entry in entries:
                yield AclBinding(pattern, entry)

    def entries_of(self, pattern: ResourcePattern) -> frozenset[AccessControlEntry]:
        return self._entries.get(pattern, frozenset())

    def matching(self, wanted: AclBindingFilter) -> list[AclBinding]:
        return [
            rule
            for pattern, entries in self._entries.items()
            if wanted.matches_pattern(pattern)
            for entry in entries
            if wanted.matches(rule := AclBinding(pattern, entry))
        ]

    def permitted(
        self, principal: str, host: str, resource_type: int, name: str, without_rules: int = 0
    ) -> int:
        """Returns the operations that the principal may do with a resource, as a bit set.
        `without_rules`: what everyone may do with a resource to which no pattern applies."""
        allowed = denied = 0
        is_ruled = False
        host = canonical_host(host)
        for grants in self._applying(resource_type, name):
            is_ruled = True
            for who in (principal, EVERY_PRINCIPAL):
                for grant in grants.get(who, ()):
                    if grant.host in (WILDCARD, host):
                        allowed |= grant.allowed
                        denied |= grant.denied
        return allowed & ~denied if is_ruled else without_rules

    def permits_any(
        self, principal: str, host: str, operation: int, resource_type: int, without_rules: int = 0
    ) -> bool:
        """Whether the principal may do the operation with some resource of a type, existing or not.
        Implied operations do not count, as in Kafka's authorizeByResourceType."""
        bit = 1 << operation
        if self.permitted(principal, host, resource_type, _SOME_NAME, without_rules) & bit:
            return True
        host = canonical_host(host)
        allowed: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        for who in dict.fromkeys((principal, EVERY_PRINCIPAL)):
            for pattern in self._patterns_of.get((who, resource_type), ()):
                for entry in self._entries[pattern]:
                    if (
                        entry.principal == who
                        and entry.operation in (operation, ALL)
                        and canonical_host(entry.host) in (WILDCARD, host)
                    ):
                        if entry.permission == ALLOW:
                            allowed.append(pattern)
                        else:
                            denied.add(pattern)
        if ResourcePattern(resource_type, WILDCARD, LITERAL) in denied:
            return False
        return any(not _is_covered(pattern, denied) for pattern in allowed)

    def _applying(
        self, resource_type: int, name: str
    ) -> Iterator[Mapping[str, Collection[_Grant]]]:
        grants = self._grants
        for literal in (name, WILDCARD) if name != WILDCARD else (WILDCARD,):
            found = grants.get(ResourcePattern(resource_type, literal, LITERAL))
            if found is not None:
                yield found
        for length in self._lengths.get(resource_type, ()):
            if length > len(name):
                return
            found = grants.get(ResourcePattern(resource_type, name[:length], PREFIXED))
            if found is not None:
                yield found

    @cached_property
    def _patterns_of(self) -> Mapping[tuple[str, int], Collection[ResourcePattern]]:
        """By principal and type. Made for the first question of `permits_any`."""
        found: dict[tuple[str, int], list[ResourcePattern]] = {}
        for pattern, grants in self._grants.items():
            for principal in grants:
                found.setdefault((principal, pattern.resource_type), []).append(pattern)
        return found


def _is_covered(pattern: ResourcePattern, denied: Collection[ResourcePattern]) -> bool:
    """Returns whether every resource that a pattern matches is denied, without regard to a denied
    `*`."""
    if pattern.pattern_type == LITERAL and pattern.name != WILDCARD and pattern in denied:
        return True
    if pattern.pattern_type == LITERAL and pattern.name == WILDCARD:
        return False
    return any(
        pattern._replace(name=pattern.name[:length], pattern_type=PREFIXED) in denied
        for length in range(1, len(pattern.name) + 1)
    )


def _prefix_lengths(patterns: Iterable[ResourcePattern]) -> Mapping[int, list[int]]:
    """Returns the lengths of the prefixes by resource type, the shortest first."""
    found: dict[int, set[int]] = {}
    for pattern in patterns:
        if pattern.pattern_type == PREFIXED:
            found.setdefault(pattern.resource_type, set()).add(len(pattern.name))
    return {resource_type: sorted(lengths) for resource_type, lengths in found.items()}


def _grants_of(
    entries: Iterable[AccessControlEntry],
) -> Mapping[str, Collection[_Grant]]:
    bits: dict[str, dict[str, list[int]]] = {}
    for entry in entries:
        hosts = bits.setdefault(entry.principal, {})
        allowed_and_denied = hosts.setdefault(canonical_host(entry.host), [0, 0])
        allowed_and_denied[entry.permission == DENY] |= _bits(entry)
    return {
        principal: [_Grant(host, allowed, denied) for host, (allowed, denied) in hosts.items()]
        for principal, hosts in bits.items()
    }


def _bits(entry: AccessControlEntry) -> int:
    if entry.operation == ALL:
        return EVERY_OPERATION
    bits = 1 << entry.operation
    if entry.permission == ALLOW and entry.operation in _IMPLIED:
        bits |= 1 << _IMPLIED[entry.operation]
    return bits


@lru_cache(maxsize=1024)
def _ipv6(text: str) -> str:
    from ipaddress import ip_address

    try:
        address = ip_address(text)
    except ValueError:
        return text
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def canonical_host(host: str) -> str:
    """An address in one form. Java writes `::1` as `0:0:0:0:0:0:0:1`, so that rules have either,
    and an IPv4 address that came over an IPv6 socket is an IPv4 address."""
    return _ipv6(host) if ":" in host else host
