"""Access rules by request, by kafka-acls and by `barnabas acls`; what is in force after each."""

import json
import logging

import pytest
from cli.conftest import run_command
from compat.java.driver import missing
from compat.java.tool_runner import ToolRunner
from compat.support import KAFKA, Wire
from security.ruled_broker import ANONYMOUS, Ruled, ruled_broker

from barnabas.security.access_rules import AccessControlEntry, AclBinding, ResourcePattern
from barnabas.security.acl_codes import (
    ALLOW,
    ALTER,
    CLUSTER,
    CLUSTER_NAME,
    CREATE,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
)
from barnabas.wire import request

INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED = 42, 31
ANY, MATCH = 1, 2
MINE = [(ALTER, CLUSTER, CLUSTER_NAME)]  # implies DESCRIBE


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with ruled_broker(tmp_path_factory.mktemp("acls")) as made:
        yield made


@pytest.fixture
def ruled(broker: Ruled):
    """User:ANONYMOUS may change rules, and there are no others before and after a test."""
    with broker.rights(MINE):
        yield broker
        kept: dict = {}
        for rule in broker.authorizer.store.rules:
            kept.setdefault(rule.pattern, set()).add(rule.entry)
    broker.authorizer.store.change({}, kept)
    assert len(broker.authorizer.store.rules) == 0


def rules_of(ruled):
    return {rule for rule in ruled.authorizer.store.rules if rule.pattern.resource_type != CLUSTER}


def creation(name="t", **fields):
    row = {
        "resourceType": TOPIC,
        "resourceName": name,
        "resourcePatternType": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permissionType": ALLOW,
    }
    return request(30).struct("creations")(**row | fields)


def wanted(name=None, **fields):
    row = {
        "resourceTypeFilter": ANY,
        "resourceNameFilter": name,
        "patternTypeFilter": ANY,
        "principalFilter": None,
        "hostFilter": None,
        "operation": ANY,
        "permissionType": ANY,
    }
    return row | fields


def codes(rows):
    return [row.errorCode for row in rows]


@pytest.mark.parametrize("version", range(4))
def test_rules_are_created_found_and_deleted(ruled, version):
    pattern = LITERAL if version == 0 else PREFIXED
    with Wire(ruled.address) as wire:
        asked = [creation("t"), creation("lo", resourcePatternType=pattern), creation("t")]
        told = wire.call(30, version, request(30).cls(creations=asked))
        assert codes(told.results) == [0, 0, 0]
        assert ruled.authorizer.authorize("User:alice", "10.0.0.1", DESCRIBE, TOPIC, "t")
        found = wire.call(29, version, request(29).cls(**wanted("t", patternTypeFilter=LITERAL)))
        (row,) = found.resources
        (acl,) = row.acls
        assert (row.resourceType, row.resourceName, row.patternType) == (TOPIC, "t", LITERAL)
        assert (acl.principal, acl.host, acl.operation) == ("User:alice", "*", READ)
        assert acl.permissionType == ALLOW and not found.errorCode
        if version:
            match = request(29).cls(**wanted("log", patternTypeFilter=MATCH))
            (row,) = wire.call(29, version, match).resources
            assert (row.resourceName, row.patternType) == ("lo", PREFIXED)
        row_of = request(31).struct("filters")
        kinds = [row_of(**wanted(n, resourceTypeFilter=TOPIC)) for n in ("t", "none", None)]
        if version == 0:
            for kind in kinds:
                kind.patternTypeFilter = LITERAL
        told = wire.call(31, version, request(31).cls(filters=kinds))
        assert [len(result.matchingAcls) for result in told.filterResults] == [1, 0, 2]
        assert rules_of(ruled) == set()
        assert not ruled.authorizer.authorize("User:alice", "10.0.0.1", DESCRIBE, TOPIC, "t")


@pytest.mark.parametrize(
    "fields",
    [
        {"resourceType": ANY},
        {"resourceType": 0},
        {"resourceType": 99},
        {"resourcePatternType": MATCH},
        {"operation": ANY},
        {"operation": 100},
        {"permissionType": ANY},
        {"resourceName": ""},
        {"resourceType": CLUSTER, "resourceName": "other"},
        {"principal": "alice"},
        {"resourceType": GROUP, "resourceName": "a/b"},
        {"resourceType": GROUP, "resourceName": ".."},
        {"resourceName": "a\nb"},
    ],
    ids=str,
)
def test_a_rule_that_makes_no_sense_is_refused_alone(ruled, fields):
    with Wire(ruled.address) as wire:
        asked = request(30).cls(creations=[creation(**fields), creation("fine")])
        told = wire.call(30, 3, asked)
    assert codes(told.results) == [INVALID_REQUEST, 0]
    assert {rule.pattern.name for rule in rules_of(ruled)} == {"fine"}


def test_filters_that_make_no_sense(ruled):
    with Wire(ruled.address) as wire:
        told = wire.call(29, 3, request(29).cls(**wanted(operation=0)))
        assert told.errorCode == INVALID_REQUEST
        row_of = request(31).struct("filters")
        asked = [row_of(**wanted(permissionType=9)), row_of(**wanted("none"))]
        told = wire.call(31, 3, request(31).cls(filters=asked))
        assert codes(told.filterResults) == [INVALID_REQUEST, 0]


def test_who_may_describe_may_not_change(broker, caplog):
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    with broker.rights([(DESCRIBE, CLUSTER, CLUSTER_NAME)]), Wire(broker.address) as wire:
        assert wire.call(29, 3, request(29).cls(**wanted())).errorCode == 0
        told = wire.call(30, 3, request(30).cls(creations=[creation()]))
        assert codes(told.results) == [CLUSTER_AUTHORIZATION_FAILED]
        assert rules_of(broker) == set()
    assert f"'{ANONYMOUS}' from 127.0.0.1 was denied ALTER on CLUSTER" in caplog.text


def test_changes_of_rules_are_in_the_audit_log(ruled, caplog):
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    with Wire(ruled.address) as wire:
        wire.call(30, 3, request(30).cls(creations=[creation("a b"), creation("")]))
        filters = [request(31).struct("filters")(**wanted(resourceTypeFilter=TOPIC))]
        wire.call(31, 3, request(31).cls(filters=filters))
    who, rule = f"'{ANONYMOUS}' from 127.0.0.1", r"ALLOW 'User:alice' from '*' READ on TOPIC"
    assert [record.getMessage() for record in caplog.records] == [
        f"{who} may ALTER CLUSTER 'kafka-cluster'",
        rf"{who} added the access rule {rule}:LITERAL:'a b'",
        f"{who} may ALTER CLUSTER 'kafka-cluster'",
        rf"{who} deleted the access rule {rule}:LITERAL:'a b'",
    ]


@pytest.mark.java
@pytest.mark.takes(seconds=12)
def test_kafka_acls(ruled, tmp_path):
    if reason := missing(KAFKA):
        pytest.skip(reason)
    runner = ToolRunner(KAFKA, tmp_path)

    def tool(*arguments):
        ran = runner.run("acls", "--bootstrap-server", ruled.address, *arguments)
        assert ran.status == 0, ran.out + ran.err
        return ran.out

    try:
        prefixed = ("--resource-pattern-type", "prefixed")
        alice = ("--allow-principal", "User:alice")
        tool("--add", *alice, "--consumer", "--topic", "news", "--group", "readers")
        tool("--add", *alice, "--producer", "--topic", "log-", *prefixed)
        tool("--add", "--deny-principal", "User:bob", "--operation", "All", "--topic", "*")
        authorizer = ruled.authorizer
        assert authorizer.authorize("User:alice", "h", READ, TOPIC, "news")
        assert authorizer.authorize("User:alice", "h", READ, GROUP, "readers")
        assert authorizer.authorize("User:alice", "h", WRITE, TOPIC, "log-5")
        told = tool("--list", "--topic", "news", "--resource-pattern-type", "match")
        assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in told
        assert "principal=User:bob, host=*, operation=ALL, permissionType=DENY" in told
        tool("--remove", "--force", "--topic", "log-", *prefixed)
        assert not authorizer.authorize("User:alice", "h", WRITE, TOPIC, "log-5")
    finally:
        runner.close()


def test_barnabas_acls(ruled):
    def acls(*words, status=0):
        ran = run_command("acls", *words, "-b", ruled.address)
        assert ran.status == status, ran.text + ran.err
        return ran

    alice = ("--allow-principal", "User:alice")
    acls("add", *alice, "--operation", "read", "--topic", "news", "--group", "g", "--json")
    acls("add", *alice, "--producer", "--topic", "log-", "--pattern", "prefixed")
    deny = ("--deny-principal", "User:bob", "--deny-host", "h")
    acls("add", *deny, "--operation", "DescribeConfigs", "--topic", "*")
    entry = AccessControlEntry("User:alice", "*", READ, ALLOW)
    news = AclBinding(ResourcePattern(TOPIC, "news", LITERAL), entry)
    assert news in rules_of(ruled) and len(rules_of(ruled)) == 6
    assert sum(rule.entry.permission == DENY for rule in rules_of(ruled)) == 1
    listed = json.loads(acls("list", "--topic", "log-1", "--pattern", "match", "--json").out)
    assert {row["operation"] for row in listed} == {
        "write",
        "describe",
        "create",
        "describe_configs",
    }
    assert listed[0]["name"] in ("*", "log-") and "principal" in acls("list").text
    assert "removed: allow User:alice from * read on topic news (literal)" in (
        acls("remove", "--topic", "news").err
    )
    acls("remove", "--principal", "User:nobody", status=1)
    acls("remove", status=1)
    acls("remove", "--principal", "User:alice", "--principal", "User:alice")
    assert {rule.entry.principal for rule in rules_of(ruled)} == {"User:bob"}


def test_changes_of_topics_are_in_the_audit_log(broker, caplog):
    """By a right to the topic, and by one to the cluster."""
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    for right in ((CREATE, TOPIC, "news"), (CREATE, CLUSTER, CLUSTER_NAME)):
        with broker.rights([right]), Wire(broker.address) as wire:
            row = request(19).struct("topics")
            topics = [row(name="news", numPartitions=1, replicationFactor=1)]
            told = wire.call(19, 5, request(19).cls(topics=topics, validateOnly=True))
            assert codes(told.topics) == [0]
    line = f"'{ANONYMOUS}' from 127.0.0.1 may CREATE TOPIC 'news'"
    assert [record.getMessage() for record in caplog.records] == [line, line]
