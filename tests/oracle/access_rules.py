"""What access rules permit, rule by rule as Kafka's manual says it: the slow twin of
AccessRules."""

from barnabas.security.acl_codes import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    LITERAL,
    READ,
    WRITE,
)

IMPLIES = {
    DESCRIBE: {DESCRIBE, READ, WRITE, DELETE, ALTER},
    DESCRIBE_CONFIGS: {DESCRIBE_CONFIGS, ALTER_CONFIGS},
}


def is_permitted(rules, principal, host, operation, resource_type, name, without_rules=False):
    applying = [rule for rule in rules if is_about(rule.pattern, resource_type, name)]
    if not applying:
        return without_rules
    mine = [
        rule.entry
        for rule in applying
        if rule.entry.principal in (principal, "User:*") and rule.entry.host in (host, "*")
    ]
    if any(e.permission == DENY and e.operation in (operation, ALL) for e in mine):
        return False
    enough = IMPLIES.get(operation, {operation}) | {ALL}
    return any(e.permission == ALLOW and e.operation in enough for e in mine)


def is_about(pattern, resource_type, name):
    if pattern.resource_type != resource_type:
        return False
    if pattern.pattern_type == LITERAL:
        return pattern.name in (name, "*")
    return name.startswith(pattern.name)


def is_any_permitted(rules, principal, host, operation, resource_type, without_rules=False):
    """As Authorizer.authorizeByResourceType of Kafka: names are tried, all that could differ."""
    if is_permitted(rules, principal, host, operation, resource_type, "hardcode", without_rules):
        return True
    mine = [
        rule
        for rule in rules
        if rule.pattern.resource_type == resource_type
        and rule.entry.principal in (principal, "User:*")
        and rule.entry.host in (host, "*")
        and rule.entry.operation in (operation, ALL)
    ]
    denied = {rule.pattern for rule in mine if rule.entry.permission == DENY}
    if any(p.pattern_type == LITERAL and p.name == "*" for p in denied):
        return False
    for rule in mine:
        pattern = rule.pattern
        if rule.entry.permission != ALLOW:
            continue
        if pattern.pattern_type == LITERAL and pattern.name == "*":
            return True
        hidden = any(
            pattern.name == other.name
            if other.pattern_type == LITERAL and pattern.pattern_type == LITERAL
            else other.pattern_type != LITERAL and pattern.name.startswith(other.name)
            for other in denied
        )
        if not hidden:
            return True
    return False
