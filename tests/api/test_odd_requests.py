"""Requests that a client rarely sends, and the answers of Apache Kafka 4.3.1 to them."""

from contextlib import closing

import pytest
from api.admin_calls import BROKER, SET, TOPIC, Admin
from compat.support import Wire

from barnabas import Broker

INVALID_TOPIC, INVALID_REQUEST = 17, 42
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def admin():
    with Broker(SETTINGS, durable=False) as broker, closing(Wire(broker.bootstrap_servers)) as wire:
        yield Admin(broker, wire)


@pytest.mark.parametrize("only", [False, True])
def test_the_metadata_log_is_not_created_as_a_topic(admin, only):
    topic = {"name": "__cluster_metadata", "numPartitions": 1, "replicationFactor": 1}
    topic |= {"assignments": [], "configs": []}
    (row,) = admin.call(19, 7, topics=[topic], timeoutMs=9000, validateOnly=only).topics
    text = "Creation of internal topic __cluster_metadata is prohibited."
    assert (row.errorCode, row.errorMessage) == (INVALID_REQUEST, text)
    assert "__cluster_metadata" not in admin.names()


def test_sizes_below_minus_one(admin):
    """Kafka takes every negative size for no limit; its type has no lower bound."""
    admin.create("kept", retention_bytes="-2")
    assert admin.alter(TOPIC, "kept", ("retention.bytes", SET, str(-(2**63)))) == (0, None)
    assert admin.configs(TOPIC, "kept", "retention.bytes")["retention.bytes"].value == str(-(2**63))
    assert admin.alter(BROKER, "", ("log.retention.bytes", SET, "-2")) == (0, None)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250])
def test_settings_of_a_name_that_no_topic_can_have(admin, name):
    resource = {"resourceType": TOPIC, "resourceName": name, "configurationKeys": None}
    asked = {"resources": [resource], "includeSynonyms": False, "includeDocumentation": False}
    (row,) = admin.call(32, 4, **asked).results
    assert row.errorCode == INVALID_TOPIC and row.errorMessage


@pytest.mark.parametrize(
    "principal, code",
    [(":x", 0), (":", 0), ("User:", 0), (" :x", 0), ("", INVALID_REQUEST), ("x", INVALID_REQUEST)],
)
def test_principals_of_rules(admin, principal, code):
    rule = {"resourceType": TOPIC, "resourceName": "ruled", "resourcePatternType": 3}
    rule |= {"principal": principal, "host": "*", "operation": 3, "permissionType": 3}
    (row,) = admin.call(30, 3, creations=[rule]).results
    assert row.errorCode == code
