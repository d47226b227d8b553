"""Super users, resources without rules, and that a change is in force before it is answered."""

import pytest

from barnabas.config import ConfigError
from barnabas.config.access import super_users
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.memory import MemoryStore
from barnabas.security.access_rules import AccessControlEntry, ResourcePattern
from barnabas.security.acl_codes import (
    ALLOW,
    ALTER,
    DESCRIBE,
    EVERY_OPERATION,
    IDEMPOTENT_WRITE,
    LITERAL,
    READ,
    TOPIC,
    WRITE,
)
from barnabas.security.authorizer import Authorizer

HOST = "10.0.0.1"
T = ResourcePattern(TOPIC, "t", LITERAL)
READS = AccessControlEntry("User:alice", "*", READ, ALLOW)


@pytest.fixture
def authorizer_of(tmp_path):
    trees = []

    def made(users="User:admin", everyone=False):
        tree = EmbeddedTree(tmp_path, clock_ms=lambda: 1, store=MemoryStore())
        trees.append(tree)
        supers = super_users({"super.users": users})
        return Authorizer(tree, supers, everyone, monotonic_ns=lambda: 0)

    yield made
    for tree in trees:
        tree.close()


def test_super_users_may_do_everything(authorizer_of):
    authorizer = authorizer_of("User:admin; User:CN=b,O=c ;")
    for who in ("User:admin", "User:CN=b,O=c"):
        assert authorizer.authorize(who, HOST, ALTER, TOPIC, "t")
        assert authorizer.authorize_any(who, HOST, WRITE, TOPIC)
    assert not authorizer.authorize("User:Admin", HOST, ALTER, TOPIC, "t")
    assert not authorizer.authorize_any("User:ANONYMOUS", HOST, WRITE, TOPIC)


@pytest.mark.parametrize("users", ["admin", "User:a;bob", ":x", "a,User"])
def test_a_super_user_without_a_type_is_refused(users):
    with pytest.raises(ConfigError):
        super_users({"super.users": users})


def test_resources_without_rules(authorizer_of):
    authorizer = authorizer_of(everyone=True)
    assert authorizer.permitted("User:bob", HOST, TOPIC, "t", EVERY_OPERATION) == EVERY_OPERATION
    assert authorizer.authorize("User:bob", HOST, IDEMPOTENT_WRITE, 4)
    authorizer.store.change({T: [READS]}, {})
    assert authorizer.permitted("User:bob", HOST, TOPIC, "t", EVERY_OPERATION) == 0
    assert authorizer.permitted("User:bob", HOST, TOPIC, "u", EVERY_OPERATION) == EVERY_OPERATION


def test_a_change_is_in_force_when_listeners_hear_of_it(authorizer_of):
    authorizer = authorizer_of()
    seen = []
    authorizer.on_change.append(
        lambda: seen.append(authorizer.authorize("User:alice", HOST, DESCRIBE, TOPIC, "t"))
    )
    authorizer.store.change({T: [READS]}, {})
    authorizer.store.change({}, {T: [READS]})
    assert seen == [True, False]
