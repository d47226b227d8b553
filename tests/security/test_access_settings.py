"""The settings of access rules: their effect, and what stops the start."""

import pytest
from compat.support import Wire, create_topic
from security.login_broker import PLAIN_MODULE, SAFE, header, login_broker
from security.ruled_broker import ANONYMOUS, ruled_broker

from barnabas.config import BrokerConfig, ConfigError
from barnabas.security.access_rules import AccessControlEntry, ResourcePattern
from barnabas.security.acl_codes import ALLOW, CREATE, DESCRIBE, PREFIXED, TOPIC
from barnabas.wire import request

AUTHORIZERS = [
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
]


def code_of_metadata(address, name="t"):
    row = request(3).struct("topics")
    with Wire(address) as wire:
        (topic,) = wire.call(3, 9, request(3).cls(topics=[row(name=name)])).topics
    return topic.errorCode


@pytest.mark.parametrize("name", AUTHORIZERS)
def test_authorizer_class_name(tmp_path, name):
    """authorizer.class.name: rules decide; without it everyone may do everything."""
    with ruled_broker(tmp_path, **{"authorizer.class.name": name}) as ruled:
        assert code_of_metadata(ruled.address) == 29
        with ruled.rights([(DESCRIBE, TOPIC, "t")]):
            assert code_of_metadata(ruled.address) == 3


def test_super_users(tmp_path):
    """super.users: rules do not apply to them."""
    with ruled_broker(tmp_path, **{"super.users": f"User:admin;{ANONYMOUS}"}) as ruled:
        create_topic(ruled.address, "t")
        assert code_of_metadata(ruled.address) == 0


def test_allow_everyone_if_no_acl_found(tmp_path):
    """allow.everyone.if.no.acl.found: a resource without rules is everyone's."""
    with ruled_broker(tmp_path, **{"allow.everyone.if.no.acl.found": "true"}) as ruled:
        create_topic(ruled.address, "t")
        assert code_of_metadata(ruled.address) == 0
        with ruled.rights([(DESCRIBE, TOPIC, "t")], who="User:alice"):
            assert code_of_metadata(ruled.address) == 29
        assert code_of_metadata(ruled.address) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"super.users": "User:admin"},
        {"authorizer.class.name": "org.example.Mine"},
        {"authorizer.class.name": AUTHORIZERS[0], "super.users": "admin"},
    ],
    ids=str,
)
def test_a_setting_that_would_not_protect_stops_the_start(tmp_path, settings):
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(settings | {"log.dirs": str(tmp_path)})
    (line,) = caught.value.problems
    assert "super.users" in line or "authorizer.class.name" in line


def test_rules_are_for_the_user_that_has_logged_in(tmp_path):
    """And they are there after a restart."""
    settings = {
        "authorizer.class.name": AUTHORIZERS[0],
        "super.users": "User:admin",
        "sasl.enabled.mechanisms": "PLAIN",
        SAFE + "plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} required user_alice="a" user_admin="b";'
        ),
        SAFE + "scram-sha-256.sasl.jaas.config": None,
        SAFE + "scram-sha-512.sasl.jaas.config": None,
    }

    def created(login, user, password, name):
        """The error code of CreateTopics 0 of one topic."""
        with login.connect() as conversation:
            assert conversation.handshake("PLAIN") == 0
            assert conversation.token(f"\0{user}\0{password}".encode())[0] == 0
            topic = request(19).struct("topics")
            body = request(19).encode(
                request(19).cls(topics=[topic(name=name, numPartitions=1, replicationFactor=1)]), 0
            )
            answer = conversation.ask(header(19, 0, body))
            return int.from_bytes(answer[-2:], "big")

    with login_broker(tmp_path, **settings) as login:
        assert created(login, "alice", "a", "t") == 29
        assert created(login, "admin", "b", "t") == 0
        assert code_of_metadata(login.plain) == 29
        authorizer = login.broker.node.opened.authorizer
        entry = AccessControlEntry("User:alice", "127.0.0.1", CREATE, ALLOW)
        authorizer.store.change({ResourcePattern(TOPIC, "al", PREFIXED): {entry}}, {})
        assert created(login, "alice", "a", "al-1") == 0
    with login_broker(tmp_path, **settings) as login:
        assert created(login, "alice", "a", "al-2") == 0
        assert created(login, "alice", "a", "b") == 29
