"""What rules permit, beside a slow twin, and by examples of Kafka's manual."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import access_rules as oracle

from barnabas.security.access_rules import (
    AccessControlEntry,
    AccessRules,
    AclBinding,
    AclBindingFilter,
    ResourcePattern,
    canonical_host,
)
from barnabas.security.acl_codes import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    ANY,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    EVERY_OPERATION,
    GROUP,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    TWO_PHASE_COMMIT,
    WRITE,
)

ALICE, HOST = "User:alice", "10.0.0.1"


def rule(
    name,
    operation,
    permission=ALLOW,
    *,
    kind=LITERAL,
    who=ALICE,
    host="*",
    resource_type=TOPIC,
):
    return AclBinding(
        ResourcePattern(resource_type, name, kind),
        AccessControlEntry(who, host, operation, permission),
    )


def rules_of(*rules):
    entries = {}
    for each in rules:
        entries.setdefault(each.pattern, []).append(each.entry)
    return AccessRules(entries)


def may(rules, operation, name, *, who=ALICE, host=HOST, resource_type=TOPIC):
    return bool(rules.permitted(who, host, resource_type, name) >> operation & 1)


def test_without_a_rule_nothing_is_permitted():
    assert AccessRules().permitted(ALICE, HOST, TOPIC, "t") == 0
    assert AccessRules().permitted(ALICE, HOST, TOPIC, "t", EVERY_OPERATION) == EVERY_OPERATION
    # A rule for someone else is a rule: everyone else loses what they had without one.
    rules = rules_of(rule("t", READ, who="User:bob"))
    assert rules.permitted(ALICE, HOST, TOPIC, "t", EVERY_OPERATION) == 0


def test_literal_prefix_and_wildcard():
    rules = rules_of(rule("t", READ), rule("log-", WRITE, kind=PREFIXED), rule("*", ALTER))
    assert may(rules, READ, "t") and not may(rules, READ, "t2") and not may(rules, WRITE, "t")
    assert may(rules, WRITE, "log-") and may(rules, WRITE, "log-a") and not may(rules, WRITE, "log")
    assert may(rules, ALTER, "anything") and not may(rules, ALTER, "g", resource_type=GROUP)


def test_a_rule_that_denies_wins():
    rules = rules_of(rule("*", ALL), rule("secret", READ, DENY, who="User:*"))
    assert may(rules, READ, "open") and not may(rules, READ, "secret")
    # What it denies it denies alone: DESCRIBE stays.
    assert may(rules, DESCRIBE, "secret") and may(rules, WRITE, "secret")


def test_implied_operations():
    rules = rules_of(rule("t", READ), rule("u", ALTER_CONFIGS))
    assert may(rules, DESCRIBE, "t") and not may(rules, DESCRIBE_CONFIGS, "t")
    assert may(rules, DESCRIBE_CONFIGS, "u") and not may(rules, DESCRIBE, "u")


def test_hosts_in_either_form():
    rules = rules_of(
        rule("t", READ, host="0:0:0:0:0:0:0:1"),
        rule("u", READ, host="10.1.2.3"),
    )
    assert may(rules, READ, "t", host="::1") and not may(rules, READ, "t", host="::2")
    assert may(rules, READ, "u", host="::ffff:10.1.2.3")
    assert canonical_host("not:an:address") == "not:an:address"


def test_filters():
    rules = rules_of(
        rule("abc", READ), rule("ab", READ, kind=PREFIXED), rule("*", READ), rule("abd", WRITE)
    )

    def names(**wanted):
        return sorted(found.pattern.name for found in rules.matching(AclBindingFilter(**wanted)))

    assert names(pattern_type=ANY) == ["*", "ab", "abc", "abd"]
    assert names(pattern_type=MATCH, name="abc") == ["*", "ab", "abc"]
    assert names(pattern_type=LITERAL, name="ab") == []
    assert names(pattern_type=PREFIXED) == ["ab"]
    assert names(operation=WRITE, principal=ALICE) == ["abd"]
    assert names(principal="User:bob") == names(host="h") == names(permission=DENY) == []
    assert names(resource_type=GROUP) == []


NAMES = st.text("ab*", min_size=1, max_size=3)
PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:*", "Role:a"])
HOSTS = st.sampled_from(["h", "i", "*"])
OPERATIONS = st.sampled_from([ALL, READ, WRITE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS])
BINDINGS = st.builds(
    AclBinding,
    st.builds(
        ResourcePattern,
        st.sampled_from([TOPIC, GROUP]),
        NAMES,
        st.sampled_from([LITERAL, PREFIXED]),
    ),
    st.builds(
        AccessControlEntry, PRINCIPALS, HOSTS, OPERATIONS, st.sampled_from([ALLOW, ALLOW, DENY])
    ),
)


@given(
    st.lists(BINDINGS, max_size=8),
    st.lists(BINDINGS, max_size=3),
    PRINCIPALS,
    HOSTS,
    NAMES,
    st.booleans(),
)
def test_every_answer_is_that_of_the_slow_twin(first, later, who, host, name, without):
    """Also after a change, which makes new rules of old ones."""
    before = rules_of(*first)
    entries = {each.pattern: [] for each in later}
    for each in later:
        entries[each.pattern].append(each.entry)
    rules = before.replaced(entries)
    now = [each for each in set(first) if each.pattern not in entries] + later
    assert set(rules) == set(now) and len(rules) == len(set(now))
    assert set(before) == set(first)
    nothing = EVERY_OPERATION if without else 0
    permitted = rules.permitted(who, host, TOPIC, name, nothing)
    for operation in range(READ, TWO_PHASE_COMMIT + 1):
        wanted = oracle.is_permitted(now, who, host, operation, TOPIC, name, without)
        assert bool(permitted >> operation & 1) == wanted
    for operation in (READ, WRITE, DESCRIBE):
        wanted = oracle.is_any_permitted(now, who, host, operation, TOPIC, without)
        assert rules.permits_any(who, host, operation, TOPIC, nothing) == wanted


class Counted(dict):
    """Counts what is looked up in it."""

    looked_up = 0

    def get(self, *arguments):
        self.looked_up += 1
        return super().get(*arguments)


@pytest.mark.parametrize(("kind", "most"), [(LITERAL, 2), (PREFIXED, 3)])
def test_a_decision_looks_up_as_much_with_10_000_rules_as_with_few(kind, most):
    """The name, `*`, and one prefix of each length that a rule has."""
    rules = rules_of(
        *(rule(f"topic-{n:05}", READ, kind=kind, who=f"User:{n % 1000}") for n in range(10_000))
    )
    counted = rules._grants = Counted(rules._grants)
    assert may(rules, READ, "topic-07042", who="User:42")
    assert counted.looked_up <= most
